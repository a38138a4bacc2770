"""What a sweep over all heads costs, against the loop that everyone writes: the whole model for each."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
import transformers
from scipy import stats
from torch import Tensor

from headlens.ablation.measure import Measuring
from headlens.ablation.plan import Choice, each
from headlens.ablation.prefix import MEMORY
from headlens.ablation.sweep import open_for, sweep
from headlens.benchmarks.base import BenchmarkOptions
from headlens.benchmarks.metrics import Ratio
from headlens.benchmarks.predict import predict
from headlens.benchmarks.registry import Benchmark
from headlens.lens import Lens, load
from headlens.model.heads import Head
from measure.setting import Setting
from measure.timing import Row, timed

BERT = {"hidden_size": 32, "intermediate_size": 48, "num_hidden_layers": 3, "num_attention_heads": 4}
GPT2 = {"n_embd": 32, "n_layer": 3, "n_head": 4}
SHAPES: dict[str, Any] = {  # of BERT-base and GPT-2 small, with random weights; or tiny
    "BERT-base shape, classification": lambda small: transformers.BertForSequenceClassification(
        transformers.BertConfig(**(BERT if small else {}))
    ),
    "GPT-2 shape, loss": lambda small: transformers.GPT2LMHeadModel(
        transformers.GPT2Config(**(GPT2 if small else {}))
    ),
}


@dataclass(frozen=True, eq=False)
class Random:
    """Random tokens: what comes out says nothing, what it costs does."""

    ids: Tensor
    name: str = "random"
    metrics: tuple[Ratio, ...] = (Ratio("loss", "loss", False, 0, 1),)
    stacks: tuple[str, ...] = ("encoder", "decoder")

    @property
    def facts(self) -> dict[str, Any]:
        """How many rows there are."""
        return {"examples": len(self.ids)}

    def take(self, examples: Sequence[int]) -> Benchmark:
        """Some of the rows."""
        return Random(self.ids[list(examples)])

    def measure(self, lens: Lens) -> Any:
        """Logits of a class, or the loss of every token."""
        inputs = {"input_ids": self.ids, "attention_mask": torch.ones_like(self.ids)}
        n, length = self.ids.shape
        with torch.inference_mode():
            if not lens.anatomy.sites[0].causal:
                found = lens.model(**inputs).logits[:, 0]
            else:
                rows = torch.arange(n).repeat_interleave(length - 1)
                places = torch.arange(length - 1).repeat(n)
                loss = predict(lens, inputs, rows, places, self.ids[rows, places + 1]).loss
                found = loss.reshape(n, length - 1).mean(dim=1)
        return np.column_stack([found.double().numpy(), np.ones(n)])


@contextmanager
def zeroed(lens: Lens, head: Head) -> Iterator[None]:
    """Zero a head by a hook before W_O, as people do by hand."""
    part = next(p for p in lens.anatomy.parts if (p.site.stack, p.site.layer) == (head.stack, head.layer))
    place = slice(head.head * part.site.head_width, (head.head + 1) * part.site.head_width)

    def hook(_: Any, taken: tuple[Tensor, ...]) -> tuple[Tensor, ...]:
        states = taken[0].clone()
        states[..., place] = 0
        return (states, *taken[1:])

    handle = lens.model.get_submodule(part.projections.output).register_forward_pre_hook(hook)
    try:
        yield
    finally:
        handle.remove()


def plain_loop(lens: Lens, ids: Tensor, heads: Sequence[Head]) -> None:
    """The whole model for every head, and its own loss."""
    labels = {"labels": ids} if lens.anatomy.sites[0].causal else {}
    with torch.inference_mode():
        for head in heads:
            with zeroed(lens, head):
                lens.model(input_ids=ids, attention_mask=torch.ones_like(ids), **labels)


def ablation(setting: Setting) -> list[Row]:
    """A sweep over all heads of two models, against the plain loop."""
    inputs = (2, 16) if setting.small else (2, 128)
    return [row for what in SHAPES for row in sweeps(what, inputs, setting.small)]


def sweeps(what: str, inputs: tuple[int, int], small: bool) -> list[Row]:
    """All heads of a model one by one: the plain loop, headlens without reuse of prefixes, and with it."""
    torch.manual_seed(0)
    lens = load(SHAPES[what](small).eval())
    ids = torch.randint(1000, 20000, inputs)
    heads = lens.anatomy.heads
    conditions = each(Choice(lens.anatomy, heads))
    plain_loop(lens, ids, heads[:1])  # warm up
    loop = timed(lambda: plain_loop(lens, ids, heads))
    found: dict[str, Any] = {}
    part, rows = f"ablation: {what}, {len(heads)} heads", []
    for name, memory in (("a sweep without reuse", 0), ("a sweep", MEMORY)):
        spent = timed(
            lambda name=name, memory=memory: found.update(
                {name: np.stack(Measuring(lens, Random(ids), prefix_memory=memory).values(conditions))}
            )
        )
        rows.append(Row(part, name, spent / loop, "the plain loop"))
    apart = np.abs(found["a sweep"] - found["a sweep without reuse"]).max()
    return [*rows, Row(part, "largest difference that reuse makes", float(apart), "nats")]


def screening(setting: Setting) -> list[Row]:
    """How many of the exact top tenth of the heads are among the first fifth by the gradient."""
    lens = load(setting.model)
    opened = open_for(lens, None, BenchmarkOptions())
    opened = opened.take(range(8)) if setting.small else opened
    heads = "0.*,1.*" if setting.small else None
    found: dict[str, Any] = {}
    whole = timed(lambda: found.update(exact=sweep(lens, opened, heads=heads)))
    n = len(found["exact"].conditions)
    some = timed(lambda: found.update(some=sweep(lens, opened, heads=heads, screen=n // 5)))
    exact = found["exact"].importance.set_index(["layer", "head"])["importance"]
    top = exact.nlargest(max(1, n // 10)).index
    first = {(one.heads[0].layer, one.heads[0].head) for one in found["some"].conditions}
    gradient = (
        found["some"].importance.query("method == 'gradient'").set_index(["layer", "head"])["importance"]
    )
    part = f"screening: {setting.model}, {opened.name}"
    known = sum(head in first for head in top)
    rank = stats.spearmanr(exact, gradient.loc[exact.index]).statistic
    return [
        Row(part, f"a sweep over {n // 5} heads chosen by gradient", some / whole, f"a sweep over all {n}"),
        Row(part, f"of the exact top {len(top)}, among those {n // 5}", known, "heads"),
        Row(part, "rank correlation of gradient and exact effect", float(rank), "Spearman"),
    ]
