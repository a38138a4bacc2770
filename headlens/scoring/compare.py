"""`compare`: what changed between two runs of classify."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray
from scipy import stats

from headlens.errors import RunError
from headlens.runs.read import TableForm
from headlens.runs.result import Examples, Result, record_without_model
from headlens.scoring.classify import Classification

HEADS = ["stack", "layer", "head", "first", "second", "gained", "lost"]
BY_TAG = ["tag", "first", "second", "both", "gained", "lost", "kappa"]
BY_MEASURE = ["tag", "measure", "heads", "mean_first", "mean_second", "pearson", "spearman"]
ALL = "all"  # the row over all tags
FEWEST = 3  # heads that a correlation rests on
_HEAD = ["stack", "layer", "head"]
_FACTS = {
    "model": ("model", "name"),
    "weights": ("model", "weights_sha256"),
    "revision": ("model", "revision"),
    "corpus": ("corpus", "sha256"),
    "sentences left out": ("corpus", "sentences_cut"),
    "margins": ("margins",),
    "evidence settings": ("evidence",),
    "parser": ("corpus", "parser"),
    "relations": ("options", "relations"),
    "frequencies": ("options", "frequencies"),
    "targets": ("options", "targets"),
    "longest input": ("options", "options", "max_length"),
    "headlens version": ("headlens",),
}
Flags = NDArray[np.bool_]


@dataclass(frozen=True, eq=False, repr=False)
class Comparison(Result):
    """What two runs have in common, and what changed from the first to the second.

    Args:
        heads: one row per head: its tags in each run, those gained and those lost, joined by ``;``.
        by_tag: one row per tag, and one for all tags together: how many heads carry it in the first run,
            in the second, in both, how many gained and lost it, and Cohen's kappa. Kappa is NaN where no
            head, or every head, carries the tag in both runs; all but the count is NaN where only one run
            looked for the tag.
        by_measure: one row per measure that both runs took: over how many heads, their mean score in each
            run, and Pearson's and Spearman's correlation of the scores, NaN where those of a run are all
            equal or fewer than 3.
        run: what `run.json` says: which runs, and what else is different between them.
        examples: none.
    """

    command = "compare"
    forms = (
        TableForm("heads", HEADS, ("stack", *HEADS[3:]), stem="compare_heads"),
        TableForm("by_tag", BY_TAG, ("tag",), stem="compare_tags"),
        TableForm("by_measure", BY_MEASURE, ("tag", "measure"), stem="compare_scores"),
    )
    heads: pd.DataFrame
    by_tag: pd.DataFrame
    by_measure: pd.DataFrame
    run: Mapping[str, Any]
    examples: Examples | None = None


def compare(first: Classification, second: Classification) -> Comparison:
    """Compare two runs of classify, head by head.

    Args:
        first: one run.
        second: another, of a model with the same layers and heads (or the same model).

    Returns:
        The comparison.

    Raises:
        RunError: the models have different layers or heads.
    """
    if set(first.heads) != set(second.heads):
        raise RunError(
            f"Expected two models with the same layers and heads; {_told(first)}, {_told(second)}.",
            "Compare runs of one model, or of models of one shape.",
        )
    carried = _carried(first), _carried(second)
    shared = [tag for tag in _looked_for(first) if tag in _looked_for(second)]
    heads = [
        (*head, ";".join(one), ";".join(two), _without(two, one, shared), _without(one, two, shared))
        for head, one, two in ((head, carried[0][head], carried[1][head]) for head in first.heads)
    ]
    by_tag = _by_tag(first, second, shared)
    facts = {
        "first": str(first.path or ""),
        "second": str(second.path or ""),
        "models": [first.model, second.model],
    }
    return Comparison(
        pd.DataFrame(heads, columns=HEADS),
        by_tag,
        _by_measure(first.scores, second.scores),
        record_without_model("compare", {**facts, "notes": _notes(by_tag, first.run, second.run)}),
    )


def _notes(table: pd.DataFrame, first: Mapping[str, Any], second: Mapping[str, Any]) -> list[str]:
    """What a reader of the table must know."""
    alone = table.loc[table["both"].isna(), "tag"].tolist()
    vague = table.loc[table["kappa"].isna() & table["both"].notna(), "tag"].tolist()
    notes = []
    if vague:
        who = "where no head or every head carries the tag in both runs"
        notes.append(f"kappa is not defined {who}: {', '.join(vague)}.")
    if alone:
        notes.append(f"Only one run looked for {', '.join(alone)}: not compared.")
    different = [what for what, path in _FACTS.items() if _at(first, path) != _at(second, path)]
    notes.append(f"The runs differ in: {', '.join(different) or 'nothing that run.json tells'}.")
    return notes


def _at(run: Mapping[str, Any], path: tuple[str, ...]) -> Any:
    found: Any = run
    for name in path:
        found = found.get(name) if isinstance(found, Mapping) else None
    return found


def kappa(first: Flags, second: Flags) -> float:
    """Measure how far two yes-or-no judgements of the same items agree beyond chance (Cohen 1960).

    1 is full agreement, 0 that of chance; NaN where both always say the same one thing, since chance alone
    would agree as well.
    """
    if len(first) == 0:
        return float("nan")
    yes, also = float(first.mean()), float(second.mean())
    chance = yes * also + (1 - yes) * (1 - also)
    return float("nan") if chance == 1 else (float((first == second).mean()) - chance) / (1 - chance)


def _by_tag(first: Classification, second: Classification, shared: list[str]) -> pd.DataFrame:
    carried = _carried(first), _carried(second)
    rows: list[tuple[object, ...]] = []
    pooled: list[tuple[Flags, Flags]] = []
    for tag in dict.fromkeys([*_looked_for(first), *_looked_for(second)]):
        one, two = (np.array([tag in mine[head] for head in first.heads], bool) for mine in carried)
        if tag in shared:
            pooled.append((one, two))
            rows.append(_agreement(tag, one, two))
        else:
            there = tag in _looked_for(first)
            rows.append((tag, one.sum() if there else None, None if there else two.sum(), *[None] * 4))
    if pooled:
        rows.append(_agreement(ALL, *(np.concatenate(both) for both in zip(*pooled, strict=True))))
    frame = pd.DataFrame(rows, columns=BY_TAG)
    return frame.astype(dict.fromkeys(BY_TAG[1:-1], "Int64") | {"kappa": float})


def _agreement(tag: str, one: Flags, two: Flags) -> tuple[object, ...]:
    counts = (one.sum(), two.sum(), (one & two).sum(), (two & ~one).sum(), (one & ~two).sum())
    return tag, *counts, kappa(one, two)


def _by_measure(first: pd.DataFrame, second: pd.DataFrame) -> pd.DataFrame:
    keys = [*_HEAD, "tag", "measure"]
    both = first[[*keys, "score"]].merge(second[[*keys, "score"]], on=keys, suffixes=("_first", "_second"))
    both = both.dropna(subset=["score_first", "score_second"])
    rows = []
    for (tag, measure), mine in both.groupby(["tag", "measure"], sort=False):
        one, two = mine["score_first"].to_numpy(float), mine["score_second"].to_numpy(float)
        rows.append((tag, measure, len(mine), one.mean(), two.mean(), *_correlations(one, two)))
    return pd.DataFrame(rows, columns=BY_MEASURE)


def _correlations(one: NDArray[np.float64], two: NDArray[np.float64]) -> tuple[float, float]:
    if len(one) < FEWEST or np.ptp(one) == 0 or np.ptp(two) == 0:
        return float("nan"), float("nan")
    pearson, spearman = stats.pearsonr(one, two), stats.spearmanr(one, two)
    return float(pearson.statistic), float(spearman.statistic)


def _looked_for(run: Classification) -> list[str]:
    return list(dict.fromkeys(run.scores["tag"]))


def _carried(run: Classification) -> dict[tuple[str, int, int], tuple[str, ...]]:
    """The tags of each head, strongest first."""
    return {
        head: tuple(filter(None, tags.split(";")))
        for head, tags in zip(run.heads, run.tags["tags"], strict=True)
    }


def _without(these: Iterable[str], those: Iterable[str], shared: Iterable[str]) -> str:
    return ";".join(tag for tag in these if tag not in those and tag in shared)


def _told(run: Classification) -> str:
    model = f" ({run.model})" if run.model else ""
    return f"{run.path}{model} has {run.shape}"
