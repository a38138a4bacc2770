"""What a run of ``headlens ablate`` found, in sentences."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
import pandas as pd
from markupsafe import Markup

from headlens.ablation.result import SIGNIFICANT
from headlens.findings import (
    as_bad_or_worse,
    beyond_random,
    effects,
    judged,
    last_without_loss,
    one_head_kept,
)
from headlens.report.ablation_words import INSTEAD
from headlens.report.claims import among, can_go, interval, number, one_head, tested, too_few_draws
from headlens.report.page.ablation_run import Ablation
from headlens.report.page.words import Place, chip
from headlens.runs.read import at
from headlens.util.formatting import counted, visible

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


def _change(row: Any, metric: str, by: Sequence[str] = ("q",)) -> str:
    """A change with its interval and what it is claimed by."""
    if np.isinf(row.value):
        return visible(f"{metric} is infinite")
    if not np.isfinite(row.delta):
        return visible(f"{metric} is not defined")
    proof = ", ".join(
        [interval(row.ci_low, row.ci_high), *(tested(name, getattr(row, f"{name}_value")) for name in by)]
    )
    return visible(f"{metric} {row.value:.4f} instead of {row.baseline:.4f}, {row.delta:+.4f} ({proof})")


def _unsure(row: Any) -> str:
    if row.q_value < SIGNIFICANT or not np.isfinite(row.delta):
        return ""
    return ", which could not be tested" if np.isnan(row.q_value) else ", which is not significant"


def _each(found: Ablation, place: Place) -> Sentences:
    rows = judged(found.rows)
    worse, better = effects(rows)
    said: Sentences = [
        f"Taken out alone, {len(worse) or 'none'} of {among(len(rows), len(found.rows), 'head')} "
        f"matter{'s' * (len(worse) == 1)} ({visible(found.metric)} is significantly worse without), and "
        f"{len(better) or 'none'} harm{'s' * (len(better) == 1)} (it is significantly better without)."
    ]
    largest: list[Any] = list(found.rows[found.rows["loss"] > 0].head(1).itertuples())
    for row in largest:
        name = place.link(row.condition.removeprefix("head "))
        said.append(
            Markup("The largest loss is that without head {}: {}{}.").format(
                name, _change(row, found.metric), _unsure(row)
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
    said = can_go(rows, share, at(found.run, "model", "heads"), found.metric)
    step = last_without_loss(rows, share)
    shown: list[Any] = list((step if len(step) else judged(rows.head(1))).itertuples())
    for row in shown:
        said += f": {_change(row, found.metric, ('p', 'q'))}; what can go ends where p < {SIGNIFICANT}"
    estimated = at(found.run, "importance_estimated_on", default="all examples")
    method = found.importance["method"].iloc[0] if len(found.importance) else "?"
    return [
        visible(f"{said}."),
        visible(f"The least important by {method} went first, estimated on {estimated}."),
    ]


def _only(found: Ablation, place: Place) -> Sentences:
    best = found.others.get("best_of_layers.csv")
    if best is None:
        rows = judged(found.rows)
        worse, _ = effects(rows)
        return [
            f"Of {among(len(rows), len(found.rows), 'way', ' to keep one head of a layer')}, "
            f"{len(worse) or 'none'} {'makes' if len(worse) == 1 else 'make'} {visible(found.metric)} "
            "significantly worse."
        ]
    said: Sentences = [
        f"{one_head(best, found.larger_is_better)}. What is measured is {visible(found.metric)}; the head "
        "was chosen on one half of the examples and measured on the other."
    ]
    kinds = one_head_kept(best, found.larger_is_better)
    claimed = pd.concat([kinds["worse"], kinds["better"]]).sort_values("q_value", kind="stable")
    named: list[Any] = list(claimed.head(NAMED).itertuples())
    for row in named:
        said.append(
            Markup("Layer {} with head {} alone: {:+.4f} ({}, {}).").format(
                visible(row.layer),
                place.link(row.kept),
                row.delta,
                interval(row.ci_low, row.ci_high),
                tested("q", row.q_value),
            )
        )
    return said


def _sets(found: Ablation, place: Place) -> Sentences:
    rows = found.rows
    known = judged(rows)
    worse, better = effects(known)
    said: Sentences = [
        f"Of {among(len(known), len(rows), 'set', ' of heads taken out together')}, {len(worse) or 'none'} "
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
        count = counted(int(row.n_removed), "head")
        said.append(Markup("Without {} ({}): {}.").format(name, count, _change(row, found.metric)))
    if len(rows) > NAMED:
        said.append(f"The table below has the other {len(rows) - NAMED:,}.")
    return said


def _set(found: Ablation, place: Place) -> Sentences:
    """What the chosen heads are worth together."""
    rows: list[Any] = list(found.rows.itertuples())
    return [
        Markup("Without {}: {}{}.").format(
            _together([place.link(name) for name in _named(row.removed, found)]),
            _change(row, found.metric),
            _unsure(row),
        )
        for row in rows
    ]


def _together(links: list[Markup]) -> Markup:
    if len(links) == 1:
        return Markup("head {}").format(links[0])
    return Markup("{} together ({})").format(counted(len(links), "head"), Markup(", ").join(links))


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
    clear: list[Any] = list(beyond_random(found.controls).itertuples())
    said: Sentences = [
        f"Against random sets with as many heads of each layer: {len(clear) or 'none'} of "
        f"{counted(len(known), 'set')} {'is' if len(clear) == 1 else 'are'} worse than nearly all (p of "
        f"at most {SIGNIFICANT}, of each alone); {_luck(found.controls)}"
    ]
    for row in clear[:NAMED]:
        n = as_bad_or_worse(row.at_least_as_bad, int(row.draws))
        mean, low, high = (number(x, ".4f") for x in (row.random_mean, row.random_low, row.random_high))
        said.append(
            visible(
                f"{row.condition}: {row.value:.4f}; without random sets {mean} on average "
                f"({low} to {high}), {n} of {row.draws:.0f} as bad or worse."
            )
        )
    return said


def _luck(controls: pd.DataFrame) -> str:
    if few := too_few_draws(controls):
        return f"{few}."
    draws = controls.loc[controls["at_least_as_bad"].notna(), "draws"]
    return f"with {draws.min():.0f} random sets a p below {1 / (1 + draws.min()):.2g} cannot come out."


_KINDS: Mapping[str, Callable[[Ablation, Place], Sentences]] = {
    "each": _each,
    "cumulative": _cumulative,
    "only": _only,
    "set": _set,
}
"""What is said of a kind of sweep; of any other kind, what is said of sets."""
