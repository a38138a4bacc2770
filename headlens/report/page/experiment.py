"""What a ``headlens run`` leaves, and its page: what was measured beside what was published."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pandas as pd

from headlens.report.page.section import Column, PageSection, Table
from headlens.report.words import RunPlace
from headlens.runs.read import TableForm, at
from headlens.runs.result import Examples, Result, save
from headlens.util.files import write_csv
from headlens.util.formatting import counted, visible

COLUMNS = [
    "model", "seed", "what", "measured", "bound", "published", "difference", "source", "found_in",
]  # fmt: skip


@dataclass(frozen=True, eq=False, repr=False)
class ExperimentResult(Result):
    """What an experiment measured, beside what was published.

    Args:
        published: one row per published figure, model and seed, columns as in `published.csv`.
        run: what `run.json` says: the file, its models, seeds and steps.
        examples: none.
    """

    command = "run"
    forms = (TableForm("published", COLUMNS, ("model", "what", "bound", "source", "found_in")),)
    published: pd.DataFrame
    run: Mapping[str, Any]
    examples: Examples | None = None

    def write(self, out: Path) -> None:
        """Write table and record; all else in the directory is what the steps wrote, and stays."""
        (form,) = self.forms
        write_csv(self.published, out / form.file, form.columns)
        save(out, self.run, (form.file,))


def section(found: ExperimentResult, place: RunPlace) -> PageSection:
    """Put an experiment into words, for its place in the page."""
    table, run = found.published, found.run
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
        files=[form.file for form in found.forms],
    )


def _findings(table: pd.DataFrame) -> list[str]:
    known = table[table["measured"].notna()]
    rows: list[Any] = list(known.itertuples())
    sentences = []
    for row in rows:
        numbers = f"{row.measured:.4g} measured, {as_published(row.bound, row.published)} published"
        sentences.append(visible(f"{row.what}: {numbers} ({row.source}; {row.model})."))
    if lacking := len(table) - len(known):
        missing = counted(lacking, "published figure")
        sentences.append(f"{missing} could not be measured here: the cell is empty.")
    return sentences


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
    return Table("Measured and published", columns, table, "published.csv", note)


def as_published(bound: str, value: float) -> str:
    """Write a published figure: ``0.57``, or ``at least 0.9``."""
    return f"{bound} {value:.4g}".strip()
