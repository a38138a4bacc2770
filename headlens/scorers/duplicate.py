"""Duplicate-token heads: those that look at earlier copies of the current token."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar, Literal

from headlens.scorers.base import Counts, Gold, Rule, Scorer, TokenView
from headlens.scorers.copies import earlier_copies, share_on


@dataclass(frozen=True)
class DuplicateToken(Scorer):
    """Weight, summed over a row, on earlier copies of the current token, on repeated random tokens.

    A row counts where it may see such a copy. Baseline: uniform weights over the visible keys.
    """

    tag: ClassVar[str] = "duplicate-token"
    rules: ClassVar[Mapping[str, Rule]] = {"duplicate-token": Rule("score", 0.4)}
    reads: ClassVar[Literal["repeats"]] = "repeats"

    @property
    def measures(self) -> tuple[str, ...]:
        """One measure."""
        return ("duplicate-token",)

    def __call__(self, view: TokenView) -> Counts:
        """Score one block."""
        score, n, uniform = share_on(view, earlier_copies(view))
        return Counts(score[:, None], Gold(n[:, None], uniform[:, None, None]))
