"""The page of a ``headlens run``: what was measured beside what was published."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pandas as pd

from headlens.report.page.section import Column, PageSection, Table
from headlens.report.words import RunPlace
from headlens.runs.read import at, read_table
from headlens.util.formatting import counted, visible

COLUMNS = [
    "model", "seed", "what", "measured", "bound", "published", "difference", "source", "found_in",
]  # fmt: skip

FILES = ("published.csv",)
_TEXTS = ("model", "what", "bound", "source", "found_in")


def section(path: Path, run: Mapping[str, Any], place: RunPlace) -> PageSection:
    """Read an experiment and put it into words.

    Args:
        path: its directory.
        run: its run.json.
        place: of the run in the page.

    Returns:
        The section.

    Raises:
        RunError: it is not whole.
    """
    table = read_table(path / FILES[0], COLUMNS, _TEXTS)
    models, seeds = at(run, "models", default=[]), at(run, "seeds", default=[0])
    ran = f"{counted(len(at(run, 'steps', default=[])), 'command')} on {counted(len(models), 'model')}"
    ran += f" with {counted(len(seeds), 'seed')}."
    return PageSection(
        title=visible(str(at(run, "title", default="An experiment"))),
        findings=[ran, *_findings(table)],
        tables=[_table(table)] if len(table) else [],
        heads=[],
        evidence=[],
        notes=[visible(note)] if (note := str(at(run, "note", default=""))) else [],
        files=FILES,
    )


def _findings(table: pd.DataFrame) -> list[str]:
    known = table[table["measured"].notna()]
    rows: list[Any] = list(known.itertuples())
    said = []
    for row in rows:
        numbers = f"{row.measured:.4g} measured, {as_published(row.bound, row.published)} published"
        said.append(visible(f"{row.what}: {numbers} ({row.source}; {row.model})."))
    if lacking := len(table) - len(known):
        said.append(f"{counted(lacking, 'published figure')} could not be measured here: the cell is empty.")
    return said


def _table(table: pd.DataFrame) -> Table:
    bounded = (table["bound"] != "").any()
    columns = [
        Column("what", "what"),
        Column("model", "model"),
        Column("seed", "seed", "number"),
        Column("measured", "measured", "number"),
        *([Column("bound", "bound")] if bounded else []),
        Column("published", "published", "number"),
        Column("difference", "difference", "change"),
        Column("source", "published in"),
        Column("found_in", "measured in"),
    ]
    note = "A difference says little where model, corpus or parser are others than in the paper."
    if bounded:
        note += " Where there is a bound, the paper gives no more than that of the number."
    return Table("Measured and published", columns, table, FILES[0], note)


def as_published(bound: str, value: float) -> str:
    """Write a published figure: ``0.57``, or ``at least 0.9``."""
    return f"{bound} {value:.4g}".strip()
