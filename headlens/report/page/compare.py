"""The page of a ``headlens compare``."""

from __future__ import annotations

import math
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pandas as pd
from markupsafe import Markup

from headlens.report.canvas import head_names
from headlens.report.page.section import Column, Evidence, PageSection, Table
from headlens.report.words import RunPlace, chip, only_stack
from headlens.runs.read import at
from headlens.scoring.compare import ALL, Comparison
from headlens.util.formatting import counted, visible

FILES = tuple(form.file for form in Comparison.forms)
CAPTIONS: Mapping[str, str] = {"changes": "Which heads kept, gained or lost which tags"}
_CHANGED = [
    Column("first", "in the first run", "tags", "tags"),
    Column("second", "in the second", "tags", "tags"),
    Column("gained", "gained", "tags", "gained"),
    Column("lost", "lost", "tags", "lost"),
]


def section(found: Comparison, place: RunPlace) -> PageSection:
    """Put a comparison into words, for its place in the page."""
    heads, by_tag, by_measure, run = found.heads, found.by_tag, found.by_measure, found.run
    heads = heads.assign(name=head_names(heads), _changed=(heads["gained"] == "") & (heads["lost"] == ""))
    first, second = _named(run, 0), _named(run, 1)
    return PageSection(
        title=f"What changed from {first} to {second}",
        findings=_findings(heads, by_tag),
        tables=[_heads(heads), _tags(by_tag), _scores(by_measure)],
        heads=heads["name"].tolist(),
        evidence=[Evidence("Its tags in the two runs", FILES[0], "head", _CHANGED)],
        notes=[visible(str(note)) for note in at(run, "notes", default=())],
        unmeasured=[
            "Whether a change is more than chance: a head near a margin gains or loses a tag easily.",
            "What the heads look at: join the two runs by headlens report to see that.",
        ],
        files=FILES,
        speaks_of=[tag for tag in by_tag["tag"] if tag != ALL],
        captions=CAPTIONS,
        stack=only_stack(heads["stack"]),
    )


def _named(run: Mapping[str, Any], number: int) -> str:
    told = str(at(run, ("first", "second")[number], default=""))
    return Path(told).name or f"run {number + 1}"


def _findings(heads: pd.DataFrame, by_tag: pd.DataFrame) -> list[str | Markup]:
    changed = int((~heads["_changed"]).sum())
    said: list[str | Markup] = [f"{changed or 'None'} of {counted(len(heads), 'head')} gained or lost a tag."]
    rows: list[Any] = list(by_tag[by_tag["both"].notna()].itertuples())
    for row in rows:
        agree = "not defined" if math.isnan(row.kappa) else f"{round(row.kappa, 2) + 0.0:.2f}"
        who = "All tags together" if row.tag == ALL else chip(row.tag)
        said.append(
            Markup(
                "{}: kept {:,.0f}, gained {:,.0f}, lost {:,.0f}; agreement beyond chance (kappa) {}."
            ).format(who, row.both, row.gained, row.lost, agree)
        )
    return said


def _heads(heads: pd.DataFrame) -> Table:
    ordered = heads.sort_values("_changed", kind="stable")
    note = "Heads that changed come first."
    return Table(
        "Every head in the two runs",
        [Column("name", "head", "head", "head"), *_CHANGED],
        ordered,
        FILES[0],
        note,
    )


def _tags(by_tag: pd.DataFrame) -> Table:
    columns = [Column("tag", "tag", "text")]
    columns += [Column(name, name, "count") for name in ("first", "second", "both", "gained", "lost")]
    columns.append(Column("kappa", "kappa", "share", "kappa"))
    note = "How many heads carry each tag. Empty: only one run looked for the tag."
    return Table("Tags", columns, by_tag, FILES[1], note)


def _scores(by_measure: pd.DataFrame) -> Table:
    columns = [Column("tag", "tag", "tags"), Column("measure", "measure", "text", "measure")]
    columns += [Column("heads", "heads", "count")]
    columns += [Column(f"mean_{run}", f"mean, {run} run", "share", "score") for run in ("first", "second")]
    columns += [Column(name, name.title(), "change", "correlation") for name in ("pearson", "spearman")]
    return Table(
        "How well the scores agree", columns, by_measure, FILES[2], "A row for each measure that both took."
    )
