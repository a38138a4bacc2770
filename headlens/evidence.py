"""From sums to evidence: effects, intervals, p-values, q-values and whether they carry a tag."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np
import pandas as pd

from headlens.scorers.base import Rule, Scorer
from headlens.tally import Summary, Tally
from headlens.util.files import SCORES, HeadScores
from headlens.util.statistics import RESAMPLES, benjamini_hochberg, ratio_effects

HEAD = ["stack", "layer", "head"]


@dataclass(frozen=True, slots=True)
class Settings:
    """How evidence is weighed.

    Args:
        min_n: rows resting on fewer decisions are written, not tested.
        alpha: false-discovery rate within a tag.
        resamples: of the bootstrap.
        seed: of the bootstrap.
    """

    min_n: int = 30
    alpha: float = 0.05
    resamples: int = RESAMPLES
    seed: int = 0


def score_table(tallies: Sequence[Tally], margins: Mapping[str, float], settings: Settings) -> HeadScores:
    """Turn sums into the table of `scores.csv`.

    Args:
        tallies: of all scorers.
        margins: shares that differ from the scorers' own rules, by the names of the rules.
        settings: how evidence is weighed.

    Returns:
        One row per head and measure, columns as in `headlens.util.files.SCORES`.
    """
    tables = [
        _measure(tally, summary, _rule(tally.scorer, summary.measure, margins), settings)
        for tally in tallies
        for summary in tally.scorer.summarise(tally)
    ]
    table = pd.concat(tables, ignore_index=True)
    table["q_value"] = np.nan
    for _, rows in table.groupby("tag", sort=False).groups.items():
        p_values = table.loc[rows, "p_value"].where(table.loc[rows, "_tested"])
        table.loc[rows, "q_value"] = benjamini_hochberg(p_values.to_numpy(float))
    table["tagged"] = table["_large"] & (table["ci_low"] > 0) & (table["q_value"] < settings.alpha)
    table["tagged"] &= _accompanied(table)
    return HeadScores(table[SCORES])


def _rule(scorer: Scorer, measure: str, margins: Mapping[str, float]) -> Rule:
    name, rule = scorer.rule(measure)
    return replace(rule, margin=margins.get(name, rule.margin))


def _measure(tally: Tally, summary: Summary, rule: Rule, settings: Settings) -> pd.DataFrame:
    """The rows of one measure, before false-discovery control."""
    gains = summary.score - summary.baseline
    found = ratio_effects(gains, summary.n, settings.seed, settings.resamples)
    with np.errstate(invalid="ignore", divide="ignore"):
        share = summary.score.sum(0) / found.n
        against = summary.baseline.sum(0) / found.n
    least = np.minimum(found.effect, (share[:, None] - summary.beaten).min(axis=1, initial=np.inf))
    heads = tally.heads
    enough = found.n >= settings.min_n
    return pd.DataFrame(
        {
            "stack": [head.stack for head in heads],
            "layer": [head.layer for head in heads],
            "head": [head.head for head in heads],
            "tag": tally.scorer.tag,
            "measure": summary.measure,
            "score": share,
            "baseline": against,
            "effect": found.effect,
            "ci_low": found.ci_low,
            "ci_high": found.ci_high,
            "p_value": np.where(enough, found.p_value, np.nan),
            "n": found.n.astype(int),
            "_large": rule.met(share, least),
            "_tested": enough & rule.ground,
            "_besides": rule.besides or "",
        }
    )


def _accompanied(table: pd.DataFrame) -> pd.Series[bool]:
    """Whether a head scores above 0 on the measure that a rule asks for besides, where it was taken."""
    held = pd.Series(True, index=table.index)
    for (tag, measure), rows in table[table["_besides"] != ""].groupby(["tag", "_besides"], sort=False):
        others = table[(table["tag"] == tag) & (table["measure"] == measure)]
        scores = rows[HEAD].merge(others[[*HEAD, "score"]], how="left", on=HEAD)["score"]
        held[rows.index] = ~(scores.to_numpy() <= 0)
    return held
