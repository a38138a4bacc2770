"""The rules by which evidence becomes a tag."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from headlens.errors import InputError
from headlens.scorers.syntactic import NO_GROUND
from headlens.tables import TAGS, HeadScores

Array = NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class Rule:
    """What one measure must reach, besides an interval above 0 and q below 0.05.

    Args:
        on: whether the score itself or its effect over the baseline is held against the margin.
        margin: a share, 0..1.
        ground: whether the measure is a ground for the tag at all.
        strict: whether the margin must be passed, not only reached.
    """

    on: Literal["score", "effect"]
    margin: float
    ground: bool = True
    strict: bool = False

    def met(self, score: Array, effect: Array) -> NDArray[np.bool_]:
        """Tell which heads reach the margin, [head]; NaN reaches nothing."""
        value = score if self.on == "score" else effect
        reached = value > self.margin if self.strict else value >= self.margin
        return reached & self.ground


DEFAULTS: Mapping[str, Rule] = {
    "argmax": Rule("score", 0.9),  # Voita et al. 2019
    "mass": Rule("score", 0.5, strict=True),  # Clark et al. 2019
    "special": Rule("score", 0.6, strict=True),
    "punctuation": Rule("score", 0.6, strict=True),
    "first-token": Rule("score", 0.3, strict=True),  # Gu et al. 2024
    "syntactic": Rule("effect", 0.10),
    "coreference": Rule("effect", 0.05),
}
"""The rule of each measure (its name before any @ or :), or else of each tag."""


@dataclass(frozen=True, slots=True)
class Rules:
    """All rules of a run.

    Args:
        margins: margins that differ from the defaults, by the names in `DEFAULTS`.
    """

    margins: Mapping[str, float] = field(default_factory=dict)

    def __post_init__(self) -> None:
        for name in self.margins:
            if name not in DEFAULTS:
                raise InputError(f"There is no margin {name!r}.", f"Choose one of: {', '.join(DEFAULTS)}.")

    def of(self, tag: str, measure: str) -> Rule:
        """Find the rule of a measure.

        Args:
            tag: its tag.
            measure: its name, such as ``mass@-1`` or ``nsubj:dependent->head``.

        Returns:
            The rule.
        """
        stem = measure.partition("@")[0].partition(":")[0]
        name = stem if tag not in DEFAULTS and stem in DEFAULTS else tag
        rule = DEFAULTS[name]
        return Rule(
            rule.on,
            self.margins.get(name, rule.margin),
            ground=not (tag == "syntactic" and stem in NO_GROUND),
            strict=rule.strict,
        )

    def all_margins(self) -> dict[str, float]:
        """Every margin in force, for `run.json`."""
        return {name: self.margins.get(name, rule.margin) for name, rule in DEFAULTS.items()}


def tag_table(scores: HeadScores) -> pd.DataFrame:
    """Collect the tags of each head.

    Args:
        scores: the table of `scores.csv`.

    Returns:
        One row per head, columns as in `headlens.tables.TAGS`: its tags joined by ``;``, that with the
        strongest evidence (the highest lower end of an interval) first, and that evidence in words.
    """
    rows = []
    for (stack, layer, head), mine in scores.groupby(["stack", "layer", "head"], sort=False):
        proven = mine[mine["tagged"]].sort_values("ci_low", ascending=False, kind="stable")
        best = proven.drop_duplicates("tag")
        evidence = "; ".join(
            f"{row.tag}: {row.measure} {row.score:.2f} against {row.baseline:.2f} (n={row.n})"
            for row in best.itertuples()
        )
        rows.append((stack, layer, head, ";".join(best["tag"]), evidence))
    return pd.DataFrame(rows, columns=TAGS)
