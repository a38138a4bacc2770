"""Whether a device computes what the CPU does: patterns, ablation and scores, within stated bounds."""

from __future__ import annotations

import copy
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass

import numpy as np
import pandas as pd
import torch
from measure.timing import Row
from torch import Tensor

from headlens.corpus.corpus import Corpus
from headlens.lens import Lens
from headlens.scoring.classify import classify

BOUNDS = {  # what differences may be at most
    "float32": {"largest weight": 1e-4, "mean weight": 1e-6, "states": 1e-4, "mean score": 1e-4, "own": 1e-5},
    "bfloat16": {"largest weight": 0.1, "mean weight": 2e-3, "states": 0.05, "mean score": 5e-3, "own": 0.02},
}
MODES = ("zero", "uniform")
SEVERAL = 30  # decisions that a score rests on, where it is compared

Scored = tuple[Corpus, "Sequence[str] | None"]
Check = tuple[Row, bool]  # a line of the table, and whether the bound holds


@contextmanager
def exact_float32() -> Iterator[None]:
    """Multiply float32 as such, not in TF32, while the block lasts."""
    was = torch.get_float32_matmul_precision()
    torch.set_float32_matmul_precision("highest")
    try:
        yield
    finally:
        torch.set_float32_matmul_precision(was)


def placed(lens: Lens, device: torch.device, dtype: torch.dtype) -> Lens:
    """The same model elsewhere."""
    return Lens(copy.deepcopy(lens.model).to(device, dtype), lens.tokenizer)


def inputs_of(lens: Lens, shape: tuple[int, int]) -> dict[str, Tensor]:
    """Random tokens, the second half of every other row padded."""
    generator = torch.Generator().manual_seed(0)
    ids = torch.randint(5, lens.model.config.vocab_size, shape, generator=generator)
    mask = torch.ones_like(ids)
    mask[1::2, shape[1] // 2 :] = 0
    return {"input_ids": ids, "attention_mask": mask}


def states(lens: Lens, inputs: dict[str, Tensor], mode: str) -> Tensor:
    """Last hidden states of real tokens with the first head of each layer out, float32 on the CPU."""
    with torch.inference_mode(), lens.ablate("*.0", mode):
        found: Tensor = lens.run(inputs).last_hidden_state
    return found.float().cpu()[inputs["attention_mask"].bool()]


def patterns(lens: Lens, inputs: dict[str, Tensor]) -> Tensor:
    """All weights of real queries, float32 on the CPU."""
    real = inputs["attention_mask"].bool()
    found = lens.patterns(**inputs).values()
    return torch.cat([one.float().cpu().permute(0, 2, 1, 3)[real].flatten() for one in found])


def returned(lens: Lens, inputs: dict[str, Tensor]) -> Tensor:
    """The same weights as the model itself returns them under eager attention."""
    own, real = lens.model.config._attn_implementation, inputs["attention_mask"].bool()
    lens.model.set_attn_implementation("eager")
    with torch.inference_mode():
        placed = {name: value.to(lens.device) for name, value in inputs.items()}
        found = lens.model.base_model(**placed, output_attentions=True).attentions
    lens.model.set_attn_implementation(own)
    return torch.cat([one.float().cpu().permute(0, 2, 1, 3)[real].flatten() for one in found])


@dataclass(frozen=True, slots=True)
class Looked:
    """What is compared: weights, states under ablation in each mode, scores."""

    weights: Tensor
    states: list[Tensor]
    scores: pd.DataFrame

    @classmethod
    def at(cls, lens: Lens, inputs: dict[str, Tensor], scored: Scored) -> Looked:
        """Look at a model."""
        scores = classify(lens, *scored).scores
        return cls(patterns(lens, inputs), [states(lens, inputs, mode) for mode in MODES], scores)

    def off(self, other: Looked) -> dict[str, float]:
        """How far another is off this one, by the names in `BOUNDS`."""
        apart = (self.weights - other.weights).abs()
        both = zip(self.states, other.states, strict=True)
        return {
            "largest weight": float(apart.max()),
            "mean weight": float(apart.mean()),
            "states": max(float((one - two).norm() / one.norm()) for one, two in both),
            "mean score": _mean_difference(self.scores, other.scores),
        }


def parity(what: str, cpu: Lens, device: torch.device, scored: Scored) -> list[Check]:
    """Hold a device in several types against the CPU in float32.

    Args:
        what: the model, for the table.
        cpu: the model on the CPU.
        device: the device.
        scored: the corpus that scores are compared on, and the tags whose scores.

    Returns:
        What was found.
    """
    inputs = inputs_of(cpu, (4, 48))
    right = Looked.at(cpu, inputs, scored)
    checks = []
    for dtype, bounds in BOUNDS.items():
        other, part = placed(cpu, device, getattr(torch, dtype)), f"parity: {what}, {dtype}"
        found = Looked.at(other, inputs, scored)
        for name, value in right.off(found).items():
            checks.append(check(part, f"off the CPU: {name}", value, bounds[name]))
        own = float((found.weights - returned(other, inputs)).abs().max())
        checks.append(check(part, "off output_attentions: largest weight", own, bounds["own"]))
    return checks


def _mean_difference(one: pd.DataFrame, two: pd.DataFrame) -> float:
    """Of two tables of scores; infinite where one has what the other has not."""
    if list(one["measure"]) != list(two["measure"]) or (one["score"].isna() != two["score"].isna()).any():
        return np.inf
    return float((one["score"] - two["score"]).abs()[one["n"] >= SEVERAL].mean())


def check(part: str, name: str, value: float, most: float) -> Check:
    """A line of the table that has a bound."""
    return Row(part, name, value, f"at most {most:g}"), bool(value <= most)
