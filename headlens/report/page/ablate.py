"""The section of a sweep."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from markupsafe import Markup

from headlens.ablation.result import BEST, SIGNIFICANT
from headlens.errors import RunError
from headlens.report.ablation_heads import INSTEAD
from headlens.report.page.section import Column, Evidence, PageSection, Table
from headlens.report.words import (
    CONTROL,
    RunPlace,
    among,
    as_bad_or_worse,
    as_number,
    beyond_random,
    can_go,
    chip,
    effects,
    interval,
    judged,
    last_without_loss,
    one_head,
    one_head_kept,
    only_stack,
    primary_rows,
    tested,
    too_few_draws,
    with_losses,
)
from headlens.runs.read import at, failed_checks, read_table
from headlens.util.files import ABLATION, AGREEMENT, CONTROLS, GATES, IMPORTANCE
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


def section(path: Path, run: Mapping[str, Any], place: RunPlace) -> PageSection:
    """Read a run and put it into words.

    Args:
        path: its directory.
        run: its run.json.
        place: of the run in the page.

    Returns:
        The section.

    Raises:
        RunError: the run is not whole.
    """
    found = read_ablation(path, run)
    model = Path(str(at(run, "model", "name", default=""))).name or "a model"
    return PageSection(
        title=f"What {model} loses without its heads: {found.kind}",
        findings=findings(found, place),
        tables=_tables(found),
        heads=list(_names(found).values()),
        evidence=_evidence(found),
        notes=notes(found),
        unmeasured=unmeasured(found),
        files=["ablation.csv", "importance.csv", *found.others],
        speaks_of=[name.removeprefix("tag ") for name in found.rows["condition"] if found.kind == "tags"],
        captions=CAPTIONS,
        stack=only_stack(stack for stack, _, _ in found.heads),
    )


def _names(found: Ablation) -> dict[tuple[str, int, int], str]:
    """How each head is called: with its stack where the run speaks of several."""
    several = len({stack for stack, _, _ in found.heads}) > 1
    return {(s, x, h): f"{s}.{x}.{h}" if several else f"{x}.{h}" for s, x, h in found.heads}


def _named(table: pd.DataFrame, found: Ablation) -> pd.DataFrame:
    names = _names(found)
    places = table[["stack", "layer", "head"]].itertuples(index=False, name=None)
    return table.assign(name=[names[str(s), int(x), int(h)] for s, x, h in places])


def _tables(found: Ablation) -> list[Table]:
    tables = [_conditions(found)]
    if (best := found.other("best_of_layers.csv")) is not None:
        columns = [Column("layer", "layer"), Column("kept", "kept", "head", "kept"), *_CHANGE[3:-1]]
        tables.append(Table("The best head of each layer", columns, best, "best_of_layers.csv"))
    if (controls := found.other("controls.csv")) is not None:
        tables.append(Table("Against random sets", _random(), controls, "controls.csv"))
    if len(found.importance):
        ranked = _named(found.importance, found).sort_values(["method", "rank"], kind="stable")
        tables.append(Table("Importance", [_HEAD, *_IMPORTANCE], ranked, "importance.csv"))
    if agreed := at(found.run, "importance_agreement", default=[]):
        columns = [
            Column("method_a", "method", "text", "method"),
            Column("method_b", "and", "text", "method"),
        ]
        columns += [Column("rho", "Spearman", "change"), Column("n", "heads", "count")]
        frame = pd.DataFrame(agreed).reindex(columns=AGREEMENT)
        tables.append(Table("How far methods of importance agree", columns, frame, "", "From run.json."))
    if (gates := found.other("gates.csv")) is not None:
        tables.append(Table("Learned gates", [_HEAD, *_GATES], _named(gates, found), "gates.csv"))
    return tables


def _conditions(found: Ablation) -> Table:
    """All conditions but random sets: the primary metric first, effects first, then by loss."""
    rows = found.table[~found.table["condition"].str.startswith(CONTROL)]
    order = {name: number for number, name in enumerate(found.rows["condition"])}
    keys = {"_effect": ~(rows["q_value"] < 0.05), "_metric": rows["metric"] != found.metric}
    ordered = rows.assign(**keys, _order=rows["condition"].map(order)).sort_values(
        ["_metric", "_effect", "_order"], kind="stable"
    )
    if ordered["condition"].str.fullmatch(r"head \S+").all():
        ordered = ordered.assign(name=ordered["condition"].str.removeprefix("head "))
        columns = [_HEAD, *_CHANGE]
    else:
        columns = [*_TAKEN, *_CHANGE]
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


def _evidence(found: Ablation) -> list[Evidence]:
    """What is shown of one head."""
    shown = [
        Evidence("What is lost without it", "ablation.csv", "removed", [*_TAKEN, *_CHANGE], ("n_removed",))
    ]
    if found.kind == "only":
        shown.insert(0, Evidence("It alone kept in its layer", "ablation.csv", "kept", [*_TAKEN, *_CHANGE]))
    if len(found.importance):
        shown.append(Evidence("How important it is", "importance.csv", "head", _IMPORTANCE))
    if "gates.csv" in found.others:
        shown.append(Evidence("Its learned gates", "gates.csv", "head", _GATES))
    return shown


# ---- What a reader of a run of ``headlens ablate`` should know, and what the run says nothing about


def notes(found: Ablation) -> list[str]:
    """Say what the reader should know before believing it."""
    said = [*failed_checks(found.run), *(str(note) for note in at(found.run, "notes", default=()))]
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


# ---- What a run of ``headlens ablate`` found, in sentences


Sentences = list[str | Markup]
NAMED = 12  # sets that get a sentence each


def findings(found: Ablation, place: RunPlace) -> Sentences:
    """Say what was measured, and what the model loses.

    Args:
        found: the run.
        place: of the run in the page.

    Returns:
        Sentences.
    """
    return [_measured(found), *_KINDS.get(found.kind, _sets)(found, place), *_words_random(found)]


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


def _each(found: Ablation, place: RunPlace) -> Sentences:
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


def _cumulative(found: Ablation, place: RunPlace) -> Sentences:
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


def _only(found: Ablation, place: RunPlace) -> Sentences:
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


def _sets(found: Ablation, place: RunPlace) -> Sentences:
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


def _set(found: Ablation, place: RunPlace) -> Sentences:
    """What the chosen heads are worth together."""
    rows: list[Any] = list(found.rows.itertuples())
    return [
        Markup("Without {}: {}{}.").format(
            _together([place.link(name) for name in _words_named(row.removed, found)]),
            _change(row, found.metric),
            _unsure(row),
        )
        for row in rows
    ]


def _together(links: list[Markup]) -> Markup:
    if len(links) == 1:
        return Markup("head {}").format(links[0])
    return Markup("{} together ({})").format(counted(len(links), "head"), Markup(", ").join(links))


def _words_named(removed: str, found: Ablation) -> list[str]:
    """The heads of a cell of the column `removed` as the page names them."""
    several = len({stack for stack, _, _ in found.heads}) > 1
    return [name if several else name.partition(".")[2] for name in removed.split()]


def _words_random(found: Ablation) -> Sentences:
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
        mean, low, high = (as_number(x, ".4f") for x in (row.random_mean, row.random_low, row.random_high))
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


_KINDS: Mapping[str, Callable[[Ablation, RunPlace], Sentences]] = {
    "each": _each,
    "cumulative": _cumulative,
    "only": _only,
    "set": _set,
}
"""What is said of a kind of sweep; of any other kind, what is said of sets."""


# ---- A run of ``headlens ablate``, read back from its directory


_TEXT = ("condition", "sweep", "mode", "removed", "metric", "no_significant_loss")
OPTIONAL = {
    "controls.csv": (CONTROLS, ("condition", "metric")),
    "gates.csv": (GATES, ("stack", "role")),
    "best_of_layers.csv": (BEST, ("layer", "kept")),
}


@dataclass(frozen=True, slots=True)
class Ablation:
    """A finished sweep.

    Args:
        run: `run.json`.
        kind: of the sweep.
        table: `ablation.csv`.
        importance: `importance.csv`.
        others: `controls.csv`, `gates.csv` and `best_of_layers.csv`, those that there are.
        metric: the primary metric.
        larger_is_better: whether a larger value of it is a better one.
    """

    run: Mapping[str, Any]
    kind: str
    table: pd.DataFrame
    importance: pd.DataFrame
    others: Mapping[str, pd.DataFrame]
    metric: str
    larger_is_better: bool

    @property
    def rows(self) -> pd.DataFrame:
        """The rows of the primary metric, random sets aside, with their `loss`, the largest first."""
        return with_losses(primary_rows(self.table, self.metric), self.larger_is_better)

    def other(self, name: str) -> pd.DataFrame | None:
        """One of the other tables; None where there is none or it is empty."""
        table = self.others.get(name)
        return None if table is None or table.empty else table

    @property
    def controls(self) -> pd.DataFrame:
        """The primary metric against random sets."""
        table = self.others.get("controls.csv", pd.DataFrame(columns=CONTROLS))
        return table[table["metric"] == self.metric]

    @property
    def heads(self) -> list[tuple[str, int, int]]:
        """Stack, layer and head of every head that it speaks of, in model order."""
        named = {tuple(name.split(".")) for cell in set(self.table["removed"]) for name in cell.split()}
        ranked = self.importance[["stack", "layer", "head"]].itertuples(index=False, name=None)
        found = {(str(s), int(x), int(h)) for s, x, h in [*named, *ranked]}
        return sorted(found, key=lambda one: (_STACKS.get(one[0], 9), *one))


_STACKS = {"encoder": 0, "decoder": 1, "cross": 2}


def read_ablation(path: Path, run: Mapping[str, Any]) -> Ablation:
    """Read what a run of ``headlens ablate`` left.

    Args:
        path: its directory.
        run: its `run.json`.

    Returns:
        Its tables and its record.

    Raises:
        RunError: a file is missing or broken, or does not fit the others.
    """
    table = read_table(path / "ablation.csv", ABLATION, _TEXT)
    importance = read_table(path / "importance.csv", IMPORTANCE, ("stack", "method"))
    others = {
        name: read_table(path / name, columns, text)
        for name, (columns, text) in OPTIONAL.items()
        if (path / name).is_file()
    }
    better = at(run, "larger_is_better", default={})
    if table.empty or not isinstance(better, Mapping) or table["metric"].iloc[0] not in better:
        what = (
            f"{path / 'ablation.csv'} holds no rows"
            if table.empty
            else f"{path / 'run.json'} does not say which"
        )
        what += "." if table.empty else f" values of {table['metric'].iloc[0]} are better."
        raise RunError(what, "Type the same headlens ablate again: what was measured is kept.")
    metric = str(table["metric"].iloc[0])
    bad = table.loc[
        ~table["removed"].str.fullmatch(r"|(\w+\.\d{1,9}\.\d{1,9})( \w+\.\d{1,9}\.\d{1,9})*"), "removed"
    ]
    if len(bad):
        raise RunError(
            f"Expected heads such as encoder.2.8 in the column removed of {path / 'ablation.csv'}; found "
            f"{bad.iloc[0]!r}.",
            "Make the run again.",
        )
    return Ablation(run, str(table["sweep"].iloc[0]), table, importance, others, metric, bool(better[metric]))
