"""The page of a run of ``headlens ablate``."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pandas as pd

from headlens.findings import CONTROL
from headlens.report.page.ablate_notes import notes, unmeasured
from headlens.report.page.ablate_words import findings
from headlens.report.page.ablation_run import Ablation, read_ablation
from headlens.report.page.parts import Column, Evidence, Section, Table
from headlens.report.page.words import Place, only_stack
from headlens.runs.read import at
from headlens.util.files import AGREEMENT

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


def section(path: Path, run: Mapping[str, Any], place: Place) -> Section:
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
    return Section(
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
