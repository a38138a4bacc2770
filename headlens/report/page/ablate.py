"""What a sweep found: the section of a page, and the sentences that the page and the screen share."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
import pandas as pd
from markupsafe import Markup

from headlens.ablation.result import SIGNIFICANT, Sweep
from headlens.model.heads import Head, link_name
from headlens.report.ablation_heads import INSTEAD
from headlens.report.page.section import Column, Evidence, PageSection, Table
from headlens.report.words import (
    RunPlace,
    Screen,
    among,
    as_number,
    beyond_random,
    can_go,
    effects,
    interval,
    judged,
    last_without_loss,
    one_head,
    one_head_kept,
    only_stack,
    tested,
    too_few_draws,
    with_losses,
)
from headlens.runs.read import at, failed_checks
from headlens.util.formatting import counted, visible

CAPTIONS: Mapping[str, str] = {
    "heads": "What each head is worth: the change when it alone is taken out",
    "pruning": "How many heads can go: the metric as ever more are taken out",
    "one-head-per-layer": "One head of each layer kept",
    "layers": "Whole layers taken out",
    "tags": "All heads of a tag taken out, against random sets",
    "importance-": "The importance of each head",
    "methods": "How far methods of importance agree",
    "gates": "What learned gates came to",
}
_HEAD = Column("name", "head", "head", "head")
_CHANGE = [
    Column("metric", "metric", "text", "metric"),
    Column("value", "value", "value", "value"),
    Column("baseline", "all heads", "value", "all heads"),
    Column("delta", "change", "change", "change"),
    Column("ci_low", "95 % from", "change", "change interval"),
    Column("ci_high", "to", "change", "change interval"),
    Column("p_value", "p", "p", "p"),
    Column("q_value", "q", "p", "q"),
    Column("n", "n", "count", "n"),
]
_TAKEN = [
    Column("condition", "taken out", "text", "taken out"),
    Column("n_removed", "heads", "count", "heads"),
]
_METHOD = Column("method", "method", "text", "method")
_IMPORTANCE = [
    _METHOD,
    Column("importance", "importance", "number", "importance"),
    Column("rank", "rank", "count", "rank"),
]
_GATES = [
    Column("open_closing", "open under pressure to close", "share", "gate"),
    Column("open_opening", "open under pressure to open", "share", "gate"),
    Column("role", "role", "text", "role"),
]


def section(found: Sweep, place: RunPlace) -> PageSection:
    """Put a sweep into words, for its place in the page."""
    named = _names(found)
    return PageSection(
        title=f"What {found.model or 'a model'} loses without its heads: {found.kind}",
        findings=[*_findings(found, place), *_each_one(found, place), *_beside_random(found)],
        tables=_tables(found),
        heads=list(named.values()),
        evidence=_evidence(found),
        notes=_notes(found),
        unmeasured=_unmeasured(found),
        files=list(found.tables),
        speaks_of=[tag for tag in _by_loss(found)["tag"] if tag],
        captions=CAPTIONS,
        stack=only_stack(head.stack for head in named),
    )


def _by_loss(found: Sweep) -> pd.DataFrame:
    """The rows of the primary metric, random sets aside, with their `loss`, the largest first."""
    return with_losses(found.primary, found.metric.larger_is_better)


def _names(found: Sweep) -> dict[Head, str]:
    """How each head is called: with its stack where the run speaks of several."""
    heads = found.heads
    several = len({head.stack for head in heads}) > 1
    return {head: link_name(head, several) for head in heads}


def _named(table: pd.DataFrame, found: Sweep) -> pd.DataFrame:
    names = _names(found)
    places = table[["stack", "layer", "head"]].itertuples(index=False, name=None)
    heads = (Head(str(stack), int(layer), int(head)) for stack, layer, head in places)
    return table.assign(name=[names.get(head, str(head)) for head in heads])


def _removed(rows: pd.DataFrame, found: Sweep) -> list[str]:
    """The heads that are out in each row, by the names of the page."""
    names = {str(head): name for head, name in _names(found).items()}
    return [" ".join(names[head] for head in removed.split()) for removed in rows["removed"]]


def _tables(found: Sweep) -> list[Table]:
    tables = [_conditions(found)]
    if len(found.best):
        columns = [Column("layer", "layer"), Column("kept", "kept", "head", "kept"), *_CHANGE[3:-1]]
        tables.append(Table("The best head of each layer", columns, found.best, "best_of_layers.csv"))
    if len(found.controls):
        tables.append(Table("Against random sets", _random(), found.controls, "controls.csv"))
    if len(found.importance):
        ranked = _named(found.importance, found).sort_values(["method", "rank"], kind="stable")
        tables.append(Table("Importance", [_HEAD, *_IMPORTANCE], ranked, "importance.csv"))
    if len(agreed := found.agreement):
        columns = [
            Column("method_a", "method", "text", "method"),
            Column("method_b", "and", "text", "method"),
        ]
        columns += [Column("rho", "Spearman", "change"), Column("n", "heads", "count")]
        tables.append(Table("How far methods of importance agree", columns, agreed, "", "From run.json."))
    if len(found.gates):
        tables.append(Table("Learned gates", [_HEAD, *_GATES], _named(found.gates, found), "gates.csv"))
    return tables


def _conditions(found: Sweep) -> Table:
    """All conditions but random sets: the primary metric first, effects first, then by loss."""
    rows = found.table[found.table["control_of"] == ""]
    order = {name: number for number, name in enumerate(_by_loss(found)["condition"])}
    keys = {"_effect": ~(rows["q_value"] < SIGNIFICANT), "_metric": rows["metric"] != found.metric.name}
    ordered = rows.assign(**keys, _order=rows["condition"].map(order)).sort_values(
        ["_metric", "_effect", "_order"], kind="stable"
    )
    columns = [*_TAKEN, *_CHANGE]
    if found.kind == "each":
        ordered, columns = ordered.assign(name=_removed(ordered, found)), [_HEAD, *_CHANGE]
    note = "Effects first (q < 0.05), then by loss. Nothing significant is not the same as no role."
    return Table("What is lost", columns, ordered, "ablation.csv", note)


def _random() -> list[Column]:
    return [
        _TAKEN[0],
        *_CHANGE[:2],
        Column("random_mean", "random sets", "value", "random sets"),
        Column("random_low", "95 % from", "value", "random interval"),
        Column("random_high", "to", "value", "random interval"),
        Column("at_least_as_bad", "at least as bad", "p", "at least as bad"),
        Column("draws", "drawn", "count"),
    ]


def _evidence(found: Sweep) -> list[Evidence]:
    """What is shown of one head."""
    shown = [
        Evidence("What is lost without it", "ablation.csv", "removed", [*_TAKEN, *_CHANGE], ("n_removed",))
    ]
    if found.kind == "only":
        shown.insert(0, Evidence("It alone kept in its layer", "ablation.csv", "kept", [*_TAKEN, *_CHANGE]))
    if len(found.importance):
        shown.append(Evidence("How important it is", "importance.csv", "head", _IMPORTANCE))
    if len(found.gates):
        shown.append(Evidence("Its learned gates", "gates.csv", "head", _GATES))
    return shown


# ---- What a reader of a sweep should know, and what it says nothing about


def _notes(found: Sweep) -> list[str]:
    """What the reader should know before believing it."""
    said = [*failed_checks(found.run), *found.notes]
    if at(found.run, "bundled_sample"):
        said.append("These are results for the small sample of headlens: no --benchmark was given.")
    if missing := at(found.run, "model", "missing_weights", default=()):
        said.append(
            f"The checkpoint lacks these weights, so they are random: {', '.join(map(str, missing))}."
        )
    return [*map(visible, said), _what_is_claimed(found)]


def _what_is_claimed(found: Sweep) -> str:
    """Say by what an effect is claimed."""
    examples = counted(int(found.table["n"].max()), "example")
    return (
        f"Effects are claimed where q < {SIGNIFICANT}. With {examples} even a real loss may not be "
        "significant: look at the intervals."
    )


def _unmeasured(found: Sweep) -> list[str]:
    """What the run says nothing about."""
    said = [
        f"Any other benchmark, and what stands in a head's place by any --mode but {visible(found.mode)}."
    ]
    if undefined := int(found.primary["delta"].isna().sum()):
        said.append(f"{visible(found.metric.name)} is not defined under {counted(undefined, 'condition')}.")
    if found.kind == "each":
        said.append("Heads that stand in for each other: --sweep cumulative, only and tags take several out.")
    return said


# ---- What a sweep found, in sentences that the page and the screen share: places write heads and tags


Place = RunPlace | Screen
Sentences = list[str | Markup]
NAMED = 12  # sets that get a sentence each


def _findings(found: Sweep, place: Place) -> Sentences:
    """Say what was measured, and what it comes to."""
    return [_measured(found), *_KINDS.get(found.kind, _sets)(found, place)]


def _each_one(found: Sweep, place: Place) -> Sentences:
    """Sentences about single conditions, where the screen has a table."""
    if found.kind == "only":
        return _layers(found, place)
    return [] if found.kind in _KINDS else _each_set(found, place)


def _measured(found: Sweep) -> str:
    base = found.table.drop_duplicates("metric")
    values = [
        f"{name} {value:.4f}"
        for name, value in zip(base["metric"], base["baseline"], strict=True)
        if value == value
    ]
    return visible(
        f"With all heads: {', '.join(values)}, on {found.benchmark} "
        f"({counted(int(base['n'].iloc[0]), 'example')}). "
        f"{'Higher' if found.metric.larger_is_better else 'Lower'} {found.metric.name} is better. A head "
        f"that is taken out puts out {INSTEAD.get(found.mode, found.mode)}."
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


def _each(found: Sweep, place: Place) -> Sentences:
    by_loss = _by_loss(found)
    rows = judged(by_loss)
    worse, better = effects(rows)
    said: Sentences = [
        f"Taken out alone, {len(worse) or 'none'} of {among(len(rows), len(by_loss), 'head')} "
        f"matter{'s' * (len(worse) == 1)} ({visible(found.metric.name)} is significantly worse without), and "
        f"{len(better) or 'none'} harm{'s' * (len(better) == 1)} (it is significantly better without)."
    ]
    first = (worse if len(worse) else by_loss[by_loss["loss"] > 0]).head(1)
    kind = "largest significant" if len(worse) and worse.index[0] != by_loss.index[0] else "largest"
    largest: list[Any] = list(first.itertuples())
    for row, name in zip(largest, _removed(first, found), strict=True):
        said.append(
            Markup("The {} loss is that without head {}: {}{}.").format(
                kind, place.link(name), _change(row, found.metric.name), _unsure(row)
            )
        )
    if rest := len(rows) - len(worse) - len(better):
        who = "head" if rest == len(rows) else "other head"
        said.append(
            f"Without {counted(rest, who)}, each alone, nothing significant changes. They may have a role "
            "all the same: heads stand in for each other."
        )
    if (left := int((found.importance["method"] == "each").sum()) - len(by_loss)) > 0:
        method = next((name for name in found.importance["method"] if name != "each"), "?")
        said.append(
            f"{counted(left, 'head')} did not rank high enough by {visible(method)} to be taken out "
            "(--screen); q-values count them all."
        )
    return said


def _cumulative(found: Sweep, place: Place) -> Sentences:
    rows = found.primary.sort_values("n_removed", kind="stable")
    said = can_go(rows, found.can_go, found.heads_of_model, found.metric.name)
    step = last_without_loss(rows, found.can_go)
    shown: list[Any] = list((step if len(step) else judged(rows.head(1))).itertuples())
    for row in shown:
        proof = _change(row, found.metric.name, ("p", "q"))
        said += f": {proof}; what can go ends where p < {SIGNIFICANT}"
    method = found.importance["method"].iloc[0] if len(found.importance) else "?"
    return [
        visible(f"{said}."),
        visible(f"The least important by {method} went first, estimated on {found.estimated_on}."),
    ]


def _only(found: Sweep, place: Place) -> Sentences:
    metric, better = visible(found.metric.name), found.metric.larger_is_better
    if len(found.best):
        return [
            f"{one_head(found.best, better)}. What is measured is {metric}; the head was chosen on one half "
            "of the examples and measured on the other."
        ]
    rows = judged(_by_loss(found))
    worse, _ = effects(rows)
    return [
        f"Of {among(len(rows), len(found.primary), 'way', ' to keep one head of a layer')}, "
        f"{len(worse) or 'none'} {'makes' if len(worse) == 1 else 'make'} {metric} significantly worse."
    ]


def _layers(found: Sweep, place: Place) -> Sentences:
    """The layers whose change with one head kept is claimed."""
    kinds = one_head_kept(found.best, found.metric.larger_is_better)
    claimed = pd.concat([kinds["worse"], kinds["better"]]).sort_values("q_value", kind="stable")
    named: list[Any] = list(claimed.head(NAMED).itertuples())
    return [
        Markup("Layer {} with head {} alone: {:+.4f} ({}, {}).").format(
            visible(row.layer),
            place.link(row.kept),
            row.delta,
            interval(row.ci_low, row.ci_high),
            tested("q", row.q_value),
        )
        for row in named
    ]


def _sets(found: Sweep, place: Place) -> Sentences:
    rows = _by_loss(found)
    known = judged(rows)
    worse, better = effects(known)
    return [
        f"Of {among(len(known), len(rows), 'set', ' of heads taken out together')}, {len(worse) or 'none'} "
        f"{'makes' if len(worse) == 1 else 'make'} {visible(found.metric.name)} significantly worse, and "
        f"{len(better) or 'none'} significantly better."
    ]


def _each_set(found: Sweep, place: Place) -> Sentences:
    rows = _by_loss(found)
    said: Sentences = []
    named: list[Any] = list(rows.head(NAMED).itertuples())
    for row in named:
        name = visible(row.condition)
        if row.tag:
            name = Markup("all heads tagged {}").format(place.chip(row.tag))
        count = counted(int(row.n_removed), "head")
        said.append(Markup("Without {} ({}): {}.").format(name, count, _change(row, found.metric.name)))
    if len(rows) > NAMED:
        said.append(f"The table below has the other {len(rows) - NAMED:,}.")
    return said


def _set(found: Sweep, place: Place) -> Sentences:
    """What the chosen heads are worth together."""
    rows: list[Any] = list(found.primary.itertuples())
    return [
        Markup("Without {}: {}{}.").format(
            _together([place.link(name) for name in names.split()]),
            _change(row, found.metric.name),
            _unsure(row),
        )
        for row, names in zip(rows, _removed(found.primary, found), strict=True)
    ]


def _together(links: Sequence[str]) -> Markup:
    if len(links) == 1:
        return Markup("head {}").format(links[0])
    return Markup("{} together ({})").format(counted(len(links), "head"), Markup(", ").join(links))


def _beside_random(found: Sweep) -> Sentences:
    """The sets against random ones of the same size and layers; one by one those that are clearly worse."""
    controls = found.primary_controls
    known = int(np.isfinite(controls["at_least_as_bad"].astype(float)).sum())
    if not known:
        return []
    clear = beyond_random(controls)
    said: Sentences = [
        f"Against random sets with as many heads of each layer: {len(clear) or 'none'} of "
        f"{counted(known, 'set')} {'is' if len(clear) == 1 else 'are'} worse than nearly all (p of "
        f"at most {SIGNIFICANT}, of each alone); {_luck(controls)}"
    ]
    return [*said, *_each_beside_random(clear.head(NAMED))]


def _each_beside_random(controls: pd.DataFrame) -> list[str]:
    """Hold single sets against their random ones, a sentence each."""
    said = []
    rows: list[Any] = list(controls.itertuples())
    for row in rows:
        value, mean, low, high = (
            as_number(x, ".4f") for x in (row.value, row.random_mean, row.random_low, row.random_high)
        )
        count = f"{row.as_bad_or_worse:.0f} of {row.draws:.0f} as bad or worse"
        if not np.isfinite(row.at_least_as_bad):
            count = "which cannot be compared"
        said.append(
            visible(
                f"{row.condition}: {value}; without random sets {mean} on average ({low} to {high}), {count}."
            )
        )
    return said


def _luck(controls: pd.DataFrame) -> str:
    if few := too_few_draws(controls):
        return f"{few}."
    draws = controls.loc[controls["at_least_as_bad"].notna(), "draws"]
    return f"with {draws.min():.0f} random sets a p below {1 / (1 + draws.min()):.2g} cannot come out."


_KINDS: Mapping[str, Callable[[Sweep, Place], Sentences]] = {
    "each": _each,
    "cumulative": _cumulative,
    "only": _only,
    "set": _set,
}
"""What is said of a kind of sweep; of any other kind, what is said of sets."""


# ---- The same on a screen, with a table of the conditions that say most


TOP = 5  # heads shown of *each*


def on_screen(found: Sweep) -> str:
    """Write what a sweep found for a terminal."""
    place = Screen()
    first, *rest = _findings(found, place)
    best = found.best if found.kind == "only" else None
    table = _rows(_shown(found), found.metric.name) if best is None else _best(best)
    controls = found.primary_controls
    lines = [first, "", *table, "", *rest]
    if len(controls):
        lines += [*_beside_random(found)[:1], *(f"  {line}" for line in _each_beside_random(controls))]
    if len(found.agreement):
        lines.append("Rank correlation (Spearman) of methods of importance:")
        lines += [
            f"  {a} and {b}: {as_number(rho, '.2f')} over {n} heads"
            for a, b, rho, n in found.agreement.itertuples(index=False)
        ]
    lines.append(_what_is_claimed(found))
    return "\n".join(line.unescape() if isinstance(line, Markup) else line for line in lines)


def _shown(found: Sweep) -> pd.DataFrame:
    if found.kind == "cumulative":
        return found.primary
    return _by_loss(found).head(TOP if found.kind == "each" else len(found.table))


def _rows(rows: pd.DataFrame, metric: str) -> list[str]:
    width = max(14, *(len(name) + 2 for name in rows["condition"]))
    lines = [f"{'removed':<{width}}{metric:>16}{'change':>10}   {'95 % interval':<22}{'q':>8}"]
    listed: list[Any] = list(rows.itertuples())
    for row in listed:
        known = row.ci_low == row.ci_low
        low_high = f"{row.ci_low:+.4f} to {row.ci_high:+.4f}" if known else "none"
        numbers = f"{_cell(row.value, '.4f'):>16}{_cell(row.delta, '+.4f'):>10}   {low_high:<22}"
        lines.append(f"{row.condition:<{width}}{numbers}{_cell(row.q_value, '.2g'):>8}")
    return lines


def _best(best: pd.DataFrame) -> list[str]:
    lines = [f"{'layer':<14}{'kept':<14}{'change':>10}{'p':>10}{'q':>10}"]
    listed: list[Any] = list(best.itertuples())
    for row in listed:
        numbers = (
            f"{_cell(row.delta, '+.4f'):>10}{_cell(row.p_value, '.2g'):>10}{_cell(row.q_value, '.2g'):>10}"
        )
        lines.append(f"{row.layer:<14}{row.kept:<14}{numbers}")
    return lines


def _cell(value: Any, form: str) -> str:
    """A number of a table; a dash where it is not defined."""
    return format(value, form) if value == value else "-"
