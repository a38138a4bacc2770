"""What a page is made of: sections with tables, figures and sentences."""

from __future__ import annotations

import math
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, Literal
from xml.etree import ElementTree

import pandas as pd
from markupsafe import Markup, escape

from headlens.errors import RunError
from headlens.report.words import RunPlace, chips, number
from headlens.runs.read import AGAIN
from headlens.util.files import csv_text, open_regular
from headlens.util.formatting import visible

Kind = Literal["text", "number", "value", "change", "share", "p", "count", "head", "tags"]
MOST = 1500  # rows of a table in a page; the file has all
CARRIED = 2_000_000  # bytes of a large file that a page carries
NUMBERS = ("number", "value", "change", "share", "p", "count")


@dataclass(frozen=True, slots=True)
class Column:
    """A column of a table.

    Args:
        name: of the column in the data.
        label: its heading.
        kind: what its cells hold; heads become links, tags are joined by ``;``.
        meaning: key of its definition in `headlens.report.words.COLUMNS`.
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

    def rows(self, place: RunPlace) -> list[list[tuple[str | Markup, str]]]:
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
            among the heads of the column `removed`, "kept" among those of `kept`, random sets aside.
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
class PageSection:
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


def is_carried(table: pd.DataFrame, columns: Sequence[str], most: int) -> bool:
    """Whether a page carries the file of a table, which is of at most so many bytes."""
    shortest = len(columns)  # of a row: its commas and its end
    return len(csv_text(table.head(most // shortest + 1), columns)) <= most


def cell(value: Any, kind: Kind, place: RunPlace) -> tuple[str | Markup, str]:
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


# ---- A figure's SVG as a part of a page: only what draws is kept, and names do not meet those of others


_SVG, _XLINK = "{http://www.w3.org/2000/svg}", "{http://www.w3.org/1999/xlink}href"
_DRAWN = frozenset((
    "svg", "g", "defs", "path", "use", "clipPath", "rect", "circle", "ellipse", "line", "polyline", "polygon",
    "text", "tspan", "image", "a", "title", "desc", "linearGradient", "radialGradient", "stop", "pattern",
    "marker", "mask", "symbol",
))  # fmt: skip
_NOT_KEPT = frozenset({"class", "tabindex", "href", "target", "width", "height"})
_SIZED = frozenset({"rect", "image", "use", "pattern", "mask", "symbol", "svg"})
_POINT = 96 / 72  # CSS pixels
_URL = re.compile(r"url\(\s*['\"]?(.*?)['\"]?\s*\)")
_WRITING = frozenset({"text", "tspan", "title", "desc"})


def inline_svg(file: Path, place: RunPlace, label: str) -> Markup:
    """Read a figure so that it can stand in a page, beside others.

    Args:
        file: an SVG.
        place: of its run in the page; links to heads mean this run.
        label: what it is called for those who do not see it.

    Returns:
        The ``<svg>``, as wide as it was drawn or as its column, whichever is less.

    Raises:
        RunError: it cannot be read.
    """
    try:
        with open_regular(file) as content:
            root = ElementTree.parse(content).getroot()  # entities of other files are not followed
    except (OSError, ValueError, LookupError, ElementTree.ParseError) as error:
        raise RunError(f"{file} cannot be read: {error}.", AGAIN) from error
    if root.tag != f"{_SVG}svg":
        raise RunError(f"Expected an SVG in {file}; it is something else.", AGAIN)
    width, height = (_pixels(root.get(side)) for side in ("width", "height"))
    box = root.get("viewBox") or f"0 0 {width or 1000:g} {height or 1000:g}"
    try:
        inside = "".join(_parts(root, place, f"{place.name}-{file.stem}"))
    except RecursionError as error:
        raise RunError(f"{file} cannot be read: it is nested too deeply.", AGAIN) from error
    return Markup('<svg viewBox="{}" style="width:{}px" role="group" aria-label="{}">{}</svg>').format(
        box, f"{width or 1000:.0f}", label, Markup(inside)
    )


def _pixels(length: str | None) -> float:
    found = re.fullmatch(r"([\d.]+)(pt|px)?", length or "")
    return float(found[1]) * (_POINT if found[2] == "pt" else 1) if found else 0.0


def _parts(parent: ElementTree.Element, place: RunPlace, prefix: str) -> Iterator[str]:
    """What is drawn inside an element, as HTML takes it."""
    writes = parent.tag.removeprefix(_SVG) in _WRITING
    if writes and parent.text:
        yield str(escape(parent.text))
    for child in parent:
        name = child.tag.removeprefix(_SVG) if isinstance(child.tag, str) else ""
        if name in _DRAWN:
            attributes = "".join(f' {key}="{escape(value)}"' for key, value in _kept(child, place, prefix))
            yield f"<{name}{attributes}>"
            yield from _parts(child, place, prefix)
            yield f"</{name}>"
        if writes and child.tail:
            yield str(escape(child.tail))


def _kept(one: ElementTree.Element, place: RunPlace, prefix: str) -> Iterator[tuple[str, str]]:
    """The attributes that draw; names and what points at them begin with the prefix."""
    name = one.tag.removeprefix(_SVG)
    for key, value in one.attrib.items():
        foreign = key.startswith("{") or key.lower().startswith("on")
        if foreign or (key in _NOT_KEPT and not (key in ("width", "height") and name in _SIZED)):
            continue
        if all(target.startswith("#") for target in _URL.findall(value)):
            clean = _URL.sub(lambda found: f"url(#{prefix}-{found[1][1:]})", " ".join(value.split()))
            yield key, f"{prefix}-{clean}" if key == "id" else clean
    target = one.get(_XLINK) or one.get("href") or ""
    if name == "a":
        head = re.fullmatch(r"#head=([\w.]+)", target)
        if head:
            yield "href", place.address(head[1])
            if "aria-label" not in one.attrib:
                yield "aria-label", f"Head {head[1]}"
    elif target.startswith("#"):
        yield "href", f"#{prefix}-{target[1:]}"
    elif name == "image" and re.match(r"data:image/(png|jpeg);base64,", target):
        yield "href", "".join(target.split())
