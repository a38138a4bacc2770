"""From sums to evidence: cross-fitted baselines, effects, intervals, p-values and q-values."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from headlens.statistics import RESAMPLES, benjamini_hochberg, ratio_effects
from headlens.tables import SCORES, HeadScores
from headlens.tags import Rules
from headlens.tally import Tally

Array = NDArray[np.float64]


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


def score_table(tallies: Sequence[Tally], rules: Rules, settings: Settings) -> HeadScores:
    """Turn sums into the table of `scores.csv`.

    Args:
        tallies: of all scorers.
        rules: what each tag asks for.
        settings: how evidence is weighed.

    Returns:
        One row per head and measure, columns as in `headlens.tables.SCORES`.
    """
    tables = [
        _measure(tally, index, rules, settings)
        for tally in tallies
        for index in range(len(tally.scorer.measures))
    ]
    table = pd.concat(tables, ignore_index=True)
    table["q_value"] = np.nan
    for _, rows in table.groupby("tag", sort=False).groups.items():
        p_values = table.loc[rows, "p_value"].where(table.loc[rows, "_tested"])
        table.loc[rows, "q_value"] = benjamini_hochberg(p_values.to_numpy(float))
    table["tagged"] = table["_large"] & (table["ci_low"] > 0) & (table["q_value"] < settings.alpha)
    return HeadScores(table[SCORES])


def _measure(tally: Tally, index: int, rules: Rules, settings: Settings) -> pd.DataFrame:
    """The rows of one measure, before false-discovery control."""
    scorer, sites = tally.scorer, tally.site_of_head.numpy()
    score = tally.score[:, index].numpy()  # [unit, head]
    n = tally.n[:, index].numpy()  # [unit, site]
    baselines = tally.baseline[:, index].numpy()  # [unit, site, baseline]
    chosen = cross_fit(baselines)[:, sites]  # [unit, head]
    counts = n[:, sites]
    found = ratio_effects(score - chosen, counts, settings.seed, settings.resamples)
    with np.errstate(invalid="ignore", divide="ignore"):
        share = score.sum(0) / found.n
        against = chosen.sum(0) / found.n
        every = (baselines.sum(0) / n.sum(0)[:, None])[sites]  # [head, baseline]
    measure, tag = scorer.measures[index], scorer.tag
    rule = rules.of(tag, measure)
    worst = share[:, None] - every if scorer.n_baselines == 2 else found.effect[:, None]
    large = rule.met(share, np.minimum(found.effect, worst.min(axis=1)))
    tested = (found.n >= settings.min_n) & rule.ground
    heads = tally.heads
    return pd.DataFrame(
        {
            "stack": [head.stack for head in heads],
            "layer": [head.layer for head in heads],
            "head": [head.head for head in heads],
            "tag": tag,
            "measure": measure,
            "score": share,
            "baseline": against,
            "effect": found.effect,
            "ci_low": found.ci_low,
            "ci_high": found.ci_high,
            "p_value": np.where(found.n >= settings.min_n, found.p_value, np.nan),
            "n": found.n.astype(int),
            "_large": large,
            "_tested": tested,
        }
    )


def cross_fit(baselines: Array) -> Array:
    """Choose the best baseline on each half of the units and count it on the other half.

    Units take turns between the halves. Where a half has nothing to choose from, the best of all units
    stands in, which can only make the baseline stronger.

    Args:
        baselines: what each baseline gets right, [unit, site, baseline].

    Returns:
        What the chosen one gets right, [unit, site].
    """
    if baselines.shape[2] == 1:
        return baselines[..., 0]
    chosen = np.empty(baselines.shape[:2])
    half = np.arange(len(baselines)) % 2
    overall = baselines.sum(axis=0)
    for mine, other in ((0, 1), (1, 0)):
        sums = baselines[half == other].sum(axis=0)  # [site, baseline]
        best = np.where(sums.max(axis=1) > 0, sums.argmax(axis=1), overall.argmax(axis=1))
        part = baselines[half == mine]
        chosen[half == mine] = np.take_along_axis(part, best[None, :, None], axis=2)[..., 0]
    return chosen
