"""Broad heads: those that spread their weight over nearly everything they may see."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar, Literal

import torch

from headlens.model.heads import STACKS
from headlens.scoring.base import Counts, Gold, Rule, Scorer, TokenView


@dataclass(frozen=True)
class Broad(Scorer):
    """Mean entropy of a row in nats, over the logarithm of the number of keys it may see: 1 is uniform.

    Rows that may see one key only are not counted. There is no baseline: it stands as 0. Where the model
    has sinks, whose share of the weight is on no key, the row is taken as it is.
    """

    tag: ClassVar[str] = "broad"
    anywhere: ClassVar[bool] = True
    stacks: ClassVar[tuple[str, ...]] = STACKS
    rules: ClassVar[Mapping[str, Rule]] = {"entropy": Rule("score", 0.9)}
    colour: ClassVar[str] = "#44AA99"
    letter: ClassVar[str] = "B"
    meaning: ClassVar[str] = (
        "The entropy of the head's rows is at least 90 % of what it could be: it looks everywhere alike. "
        "It has no baseline."
    )
    figure: ClassVar[Literal["entropy"]] = "entropy"
    held_against: ClassVar[str] = ""
    words: ClassVar[Mapping[str, str]] = {"entropy": "entropy"}

    @property
    def measures(self) -> tuple[str, ...]:
        """One measure."""
        return ("entropy",)

    def __call__(self, view: TokenView) -> Counts:
        """Score one block."""
        lowest = torch.finfo(view.pattern.dtype).smallest_normal  # 0 ln 0 is 0
        logs = view.pattern.clamp(min=lowest).log_()
        entropy = -logs.mul_(view.pattern).sum(-1)  # [input, head, query]
        counted = view.counted & (view.n_visible > 1)
        most = view.n_visible.clamp(min=2).log()
        share = (entropy / most[:, None] * counted[:, None]).sum(-1)  # [input, head]
        n = counted.sum(-1).float()
        return Counts(share[:, None], Gold(n[:, None], torch.zeros_like(n)[:, None, None]))
