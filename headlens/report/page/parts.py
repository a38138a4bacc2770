"""What a page shows of a run: sentences, figures, tables, files, and what belongs to each head."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any, Literal

import pandas as pd
from markupsafe import Markup

from headlens.report.page.words import Place, chips, number
from headlens.util.formatting import visible

Kind = Literal["text", "number", "value", "change", "share", "p", "count", "head", "tags"]
MOST = 1500  # rows of a table in a page; the file has all
NUMBERS = ("number", "value", "change", "share", "p", "count")


@dataclass(frozen=True, slots=True)
class Column:
    """A column of a table.

    Args:
        name: of the column in the data.
        label: its heading.
        kind: what its cells hold; heads become links, tags are joined by ``;``.
        meaning: key of its definition in `headlens.report.definitions.COLUMNS`.
    """

    name: str
    label: str
    kind: Kind = "text"
    meaning: str = ""

    @property
    def numeric(self) -> bool:
        """Whether it is sorted by number."""
        return self.kind in NUMBERS


@dataclass(frozen=True, slots=True)
class Table:
    """A table that can be sorted and filtered.

    Args:
        title: above it.
        columns: its columns.
        frame: the data, in the order in which it is shown first.
        file: the CSV file that has all of it.
        note: what a reader must know of what is shown.
    """

    title: str
    columns: Sequence[Column]
    frame: pd.DataFrame
    file: str = ""
    note: str = ""

    def rows(self, place: Place) -> list[list[tuple[str | Markup, str]]]:
        """Write its rows: of each cell what is shown, and what it is sorted by (nothing if it is empty)."""
        values = self.frame[[column.name for column in self.columns]].head(MOST)
        return [
            [cell(value, column.kind, place) for value, column in zip(row, self.columns, strict=True)]
            for row in values.itertuples(index=False, name=None)
        ]

    @property
    def left_out(self) -> int:
        """How many rows only the file has."""
        return max(0, len(self.frame) - MOST)


@dataclass(frozen=True, slots=True)
class Evidence:
    """What a file says about one head, to be shown when the head is clicked.

    Args:
        title: above it.
        file: a CSV file of the run.
        match: which rows are about a head: "head" by the columns stack, layer and head; "removed" where it is
            among the heads of the column `removed`, random sets aside; "kept" where it alone is kept.
        columns: what is shown of them.
        order: columns that they are sorted by, one with "-" in front from the largest down.
    """

    title: str
    file: str
    match: Literal["head", "removed", "kept"]
    columns: Sequence[Column]
    order: Sequence[str] = ()

    def plain(self) -> dict[str, Any]:
        """What the page's script is told."""
        return asdict(self)


@dataclass(frozen=True, slots=True)
class Section:
    """One run.

    Args:
        title: what was done, on what.
        findings: what was found, in sentences.
        tables: what is shown of the tables.
        heads: names of the heads that it speaks of.
        evidence: what is shown of each head.
        notes: what the reader should know before believing it.
        unmeasured: what it does not say.
        files: names of its CSV files.
        tags: tags of each head, joined by ``;``.
        speaks_of: tags that its files name, whether or not a head carries them.
        captions: of figures, by the beginning of their names, in the order in which they are shown.
        stack: the only one that the heads are in, where their names do not say it.
    """

    title: str
    findings: Sequence[str | Markup]
    tables: Sequence[Table]
    heads: Sequence[str]
    evidence: Sequence[Evidence]
    notes: Sequence[str] = ()
    unmeasured: Sequence[str] = ()
    files: Sequence[str] = ()
    tags: Mapping[str, str] = field(default_factory=dict)
    speaks_of: Sequence[str] = ()
    captions: Mapping[str, str] = field(default_factory=dict)
    stack: str = ""


def cell(value: Any, kind: Kind, place: Place) -> tuple[str | Markup, str]:
    """Write a cell.

    Args:
        value: of any kind; NaN, None and the empty text are empty.
        kind: of its column.
        place: of the run in the page.

    Returns:
        What is shown, and what it is sorted by.
    """
    if value is None or value == "" or value is pd.NA or (isinstance(value, float) and math.isnan(value)):
        return "", ""
    if kind in NUMBERS:
        return number(value, kind), f"{float(value):.9g}"
    text = str(value)
    if kind == "head":
        return place.link(text), text
    return (chips(text.split(";")) if kind == "tags" else visible(text)), visible(text)
