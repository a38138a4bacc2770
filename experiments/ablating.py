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
from timing import Row, timed
from torch import Tensor

from headlens.ablation.conditions import Choice, each
from headlens.ablation.measuring import Measuring
from headlens.ablation.prefix import MEMORY
from headlens.ablation.sweep import open_for, sweep
from headlens.benchmarks.base import Benchmark
from headlens.benchmarks.inputs import Options
from headlens.benchmarks.metrics import Ratio
from headlens.benchmarks.prediction import predict
from headlens.heads import Head
from headlens.lens import Lens
from headlens.opening import load

SHAPES: dict[str, Any] = {  # of BERT-base and GPT-2 small, with random weights
    "encoder with a classification head": lambda: transformers.BertForSequenceClassification(
        transformers.BertConfig()
    ),
    "causal language-model loss": lambda: transformers.GPT2LMHeadModel(transformers.GPT2Config()),
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


def reuse(what: str, inputs: tuple[int, int]) -> list[Row]:
    """A sweep over all heads of a model: the plain loop, headlens without reuse, and with it."""
    torch.manual_seed(0)
    lens = load(SHAPES[what]().eval())
    ids = torch.randint(1000, 20000, inputs)
    heads = lens.anatomy.heads
    conditions = each(Choice(lens.anatomy, heads))
    plain_loop(lens, ids, heads[:1])  # warm up
    first = timed(lambda: plain_loop(lens, ids, heads))
    found, rows = {}, []
    for name, memory in (("without reuse", 0), ("with reuse", MEMORY)):
        measuring = Measuring(lens, Random(ids), prefix_memory=memory)
        spent = timed(lambda measuring=measuring: measuring.values(conditions))
        found[name] = np.stack(measuring.values(conditions))
        rows.append(Row(f"ablation: {what}", f"plain loop / headlens {name}", first / spent, "ratio"))
    apart = np.abs(found["with reuse"] - found["without reuse"]).max()
    return [*rows, Row(f"ablation: {what}", "largest difference that reuse makes", float(apart), "nats")]


def screening(model: str, benchmark: str | None, options: Options) -> list[Row]:
    """How many of the exact top tenth of the heads are among the first fifth by the gradient."""
    lens = load(model)
    opened = open_for(lens, benchmark, options)
    found: dict[str, Any] = {}
    whole = timed(lambda: found.update(exact=sweep(lens, opened)))
    n = len(lens.anatomy.heads)
    some = timed(lambda: found.update(some=sweep(lens, opened, screen=n // 5)))
    exact = found["exact"].importance.set_index(["layer", "head"])["importance"]
    top = exact.nlargest(max(1, n // 10)).index
    first = {(one.heads[0].layer, one.heads[0].head) for one in found["some"].conditions}
    gradient = (
        found["some"].importance.query("method == 'gradient'").set_index(["layer", "head"])["importance"]
    )
    part = f"screening: {model}, {opened.name}"
    return [
        Row(part, f"of the exact top {len(top)}, among the first {n // 5} by the gradient",
            sum(head in first for head in top), "heads"),
        Row(part, "cost of screening", some / whole, "the exact sweep"),
        Row(part, "rank correlation of gradient and exact effect",
            float(stats.spearmanr(exact, gradient.loc[exact.index]).statistic), "Spearman"),
    ]  # fmt: skip


def ablation(model: str) -> list[Row]:
    """Everything about ablation."""
    rows = [row for what in SHAPES for row in reuse(what, (4, 128))]
    return [*rows, *screening(model, None, Options())]
