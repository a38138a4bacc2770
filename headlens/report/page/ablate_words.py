"""What a run of ``headlens ablate`` found, in sentences."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import pandas as pd
from markupsafe import Markup

from headlens.ablation.result import SIGNIFICANT
from headlens.findings import as_bad_or_worse, effects, last_without_loss
from headlens.report.ablation_words import INSTEAD
from headlens.report.page.ablation_run import Ablation
from headlens.report.page.files import at
from headlens.report.page.words import Place, chip, counted, interval, percent
from headlens.text.display import visible

Sentences = list[str | Markup]
NAMED = 12  # sets that get a sentence each


def findings(found: Ablation, place: Place) -> Sentences:
    """Say what was measured, and what the model loses.

    Args:
        found: the run.
        place: of the run in the page.

    Returns:
        Sentences.
    """
    return [_measured(found), *_KINDS.get(found.kind, _sets)(found, place), *_random(found)]


def notes(found: Ablation) -> list[str]:
    """Say what the reader should know before believing it."""
    said = [str(note) for note in at(found.run, "notes", default=())]
    if at(found.run, "bundled_sample"):
        said.append("These are results for the small sample of headlens: no --benchmark was given.")
    if missing := at(found.run, "model", "missing_weights", default=()):
        said.append(
            f"The checkpoint lacks these weights, so they are random: {', '.join(map(str, missing))}."
        )
    n = int(found.table["n"].max())
    said.append(
        f"Effects are claimed where q < {SIGNIFICANT}. With {counted(n, 'example')} even a real loss may not "
        "be significant: look at the intervals."
    )
    return [visible(text) for text in said]


def unmeasured(found: Ablation) -> list[str]:
    """Say what the run says nothing about."""
    mode = visible(str(found.table["mode"].iloc[0]))
    said = [f"Any other benchmark, and what stands in a head's place by any --mode but {mode}."]
    if undefined := int(found.rows["delta"].isna().sum()):
        said.append(f"{visible(found.metric)} is not defined under {counted(undefined, 'condition')}.")
    measured = int((found.importance["method"] == "each").sum())
    if found.kind == "each" and measured > len(found.rows):
        left = counted(measured - len(found.rows), "head")
        said.append(f"{left} did not rank high enough to be taken out (--screen); q-values count them all.")
    if found.kind == "each":
        said.append("Heads that stand in for each other: --sweep cumulative, only and tags take several out.")
    return said


def _measured(found: Ablation) -> str:
    base = found.table.drop_duplicates("metric")
    values = [
        f"{name} {value:.4f}"
        for name, value in zip(base["metric"], base["baseline"], strict=True)
        if value == value
    ]
    mode, name = str(found.table["mode"].iloc[0]), at(found.run, "benchmark", "name", default="the benchmark")
    return visible(
        f"With all heads: {', '.join(values)}, on {name} "
        f"({counted(int(base['n'].iloc[0]), 'example')}). {'Higher' if found.larger_is_better else 'Lower'} "
        f"{found.metric} is better. A head that is taken out puts out {INSTEAD.get(mode, mode)}."
    )


def _change(row: Any, metric: str) -> str:
    if not np.isfinite(row.delta):
        return visible(f"{metric} is not defined")
    proof = f"95 % interval {interval(row.ci_low, row.ci_high)}, q = {row.q_value:.2g}"
    return visible(f"{metric} {row.value:.4f} instead of {row.baseline:.4f}, {row.delta:+.4f} ({proof})")


def _each(found: Ablation, place: Place) -> Sentences:
    rows = found.rows
    worse, better = effects(rows)
    said: Sentences = [
        f"Taken out alone, {len(worse) or 'none'} of {counted(len(rows), 'head')} "
        f"matter{'s' * (len(worse) == 1)} ({visible(found.metric)} is significantly worse without), and "
        f"{len(better) or 'none'} harm{'s' * (len(better) == 1)} (it is significantly better without)."
    ]
    largest: list[Any] = list(rows[rows["loss"] > 0].head(1).itertuples())
    for row in largest:
        sure = "" if row.q_value < SIGNIFICANT else ", which is not significant"
        name = place.link(row.condition.removeprefix("head "))
        said.append(
            Markup("The largest loss is that without head {}: {}{}.").format(
                name, _change(row, found.metric), sure
            )
        )
    if rest := len(rows) - len(worse) - len(better):
        who = "head" if rest == len(rows) else "other head"
        said.append(
            f"Without {counted(rest, who)}, each alone, nothing significant changes. They may have a role "
            "all the same: heads stand in for each other."
        )
    return said


def _cumulative(found: Ablation, place: Place) -> Sentences:
    share = float(at(found.run, "largest_share_without_significant_loss", default=0.0))
    rows = found.rows.sort_values("n_removed", kind="stable")
    said = f"{percent(share)} of the heads can go without a significant loss of {found.metric} "
    said += f"(p < {SIGNIFICANT})"
    last: list[Any] = list(last_without_loss(rows, share).itertuples())
    for row in last:
        said += f": {row.n_removed:,.0f} of {rows['n_removed'].max():,.0f}, {_change(row, found.metric)}"
    estimated = at(found.run, "importance_estimated_on", default="all examples")
    method = found.importance["method"].iloc[0] if len(found.importance) else "?"
    return [
        visible(f"{said}."),
        visible(f"The least important by {method} went first, estimated on {estimated}."),
    ]


def _only(found: Ablation, place: Place) -> Sentences:
    best = found.others.get("best_of_layers.csv")
    if best is None:
        worse, _ = effects(found.rows)
        return [
            f"Of {counted(len(found.rows), 'way')} to keep one head of a layer, {len(worse):,} make "
            f"{visible(found.metric)} significantly worse."
        ]
    claimed = best[best["q_value"] < SIGNIFICANT]
    said: Sentences = [
        f"One head was kept in a layer, chosen on one half of the examples and measured on the other: in "
        f"{len(claimed) or 'none'} of {counted(len(best), 'layer')} that changes {visible(found.metric)} "
        "significantly. Elsewhere nothing is shown: neither that one head is enough, nor that it is not."
    ]
    rows: list[Any] = list(claimed.sort_values("q_value", kind="stable").head(NAMED).itertuples())
    for row in rows:
        said.append(
            Markup("Layer {} with head {} alone: {:+.4f} (95 % interval {}, q = {:.2g}).").format(
                visible(row.layer),
                place.link(row.kept),
                row.delta,
                interval(row.ci_low, row.ci_high),
                row.q_value,
            )
        )
    return said


def _sets(found: Ablation, place: Place) -> Sentences:
    rows = found.rows
    worse, better = effects(rows)
    said: Sentences = [
        f"Of {counted(len(rows), 'set')} of heads taken out together, {len(worse) or 'none'} "
        f"{'makes' if len(worse) == 1 else 'make'} {visible(found.metric)} significantly worse, and "
        f"{len(better) or 'none'} significantly better."
    ]
    named: list[Any] = list(rows.head(NAMED).itertuples())
    for row in named:
        tag = row.condition.removeprefix("tag ")
        name = (
            Markup("all heads tagged {}").format(chip(tag))
            if tag != row.condition
            else visible(row.condition)
        )
        number = counted(int(row.n_removed), "head")
        said.append(Markup("Without {} ({}): {}.").format(name, number, _change(row, found.metric)))
    if len(rows) > NAMED:
        said.append(f"The table below has the other {len(rows) - NAMED:,}.")
    return said


def _set(found: Ablation, place: Place) -> Sentences:
    """What the chosen heads are worth together."""
    rows: list[Any] = list(found.rows.itertuples())
    return [
        Markup("Without {} together ({}): {}{}.").format(
            counted(int(row.n_removed), "head"),
            Markup(", ").join(place.link(name) for name in _named(row.removed, found)),
            _change(row, found.metric),
            "" if row.q_value < SIGNIFICANT else ", which is not significant",
        )
        for row in rows
    ]


def _named(removed: str, found: Ablation) -> list[str]:
    """The heads of a cell of the column `removed` as the page names them."""
    several = len({stack for stack, _, _ in found.heads}) > 1
    return [name if several else name.partition(".")[2] for name in removed.split()]


def _random(found: Ablation) -> Sentences:
    """The sets against random ones of the same size and layers."""
    rows: list[Any] = list(found.controls.itertuples())
    known = [row for row in rows if np.isfinite(row.at_least_as_bad)]
    if not known:
        return []
    clear = [row for row in known if row.at_least_as_bad <= SIGNIFICANT]
    said: Sentences = [
        f"Against random sets with as many heads of each layer: {len(clear) or 'none'} of "
        f"{counted(len(known), 'set')} {'is' if len(clear) == 1 else 'are'} worse than nearly all (p of "
        f"at most {SIGNIFICANT}, of each alone); {_luck(known)}"
    ]
    for row in clear[:NAMED]:
        n = as_bad_or_worse(row.at_least_as_bad, int(row.draws))
        said.append(
            visible(
                f"{row.condition}: {row.value:.4f}; without random sets {row.random_mean:.4f} on average "
                f"({row.random_low:.4f} to {row.random_high:.4f}), {n} of {row.draws:.0f} as bad or worse."
            )
        )
    return said


def _luck(rows: list[Any]) -> str:
    draws = pd.Series([row.draws for row in rows])
    return f"with {draws.min():.0f} random sets a p below {1 / (1 + draws.min()):.2g} cannot come out."


_KINDS: Mapping[str, Callable[[Ablation, Place], Sentences]] = {
    "each": _each,
    "cumulative": _cumulative,
    "only": _only,
    "set": _set,
}
"""What is said of a kind of sweep; of any other kind, what is said of sets."""
