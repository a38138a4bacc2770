"""From tallies to evidence: effects, intervals, q-values, and the tags that follow."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np
import pandas as pd

from headlens.errors import InputError
from headlens.scoring.base import Rule, Scorer, Summary, Tally
from headlens.scoring.scorers import SCORERS
from headlens.util.files import SCORES, TAGS, HeadScores
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


# ---- From scores to tags: the margins in force, and the tags of each head


def margins_in_force(given: Mapping[str, float]) -> dict[str, float]:
    """Put given margins in the place of the defaults.

    Args:
        given: margins by name, such as ``mass``, ``special`` or ``syntactic``.

    Returns:
        The margin of every rule of every scorer.

    Raises:
        InputError: there is no rule of that name, or its margin is no share.
    """
    rules = {name: rule for scorer in SCORERS.values() for name, rule in scorer.rules.items()}
    margins = {name: rule.margin for name, rule in rules.items() if rule.ground}
    for name, share in given.items():
        if name not in margins:
            raise InputError(f"There is no margin {name!r}.", f"Choose one of: {', '.join(margins)}.")
        if not 0 <= share <= 1:
            raise InputError(
                f"Expected a share from 0 to 1 for the margin {name}, found {share}.",
                f"Its default is {margins[name]}.",
            )
    return {**margins, **given}


def tag_table(scores: HeadScores) -> pd.DataFrame:
    """Collect the tags of each head.

    Args:
        scores: the table of `scores.csv`.

    Returns:
        One row per head, columns as in `headlens.util.files.TAGS`: its tags joined by ``;``, that with the
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
