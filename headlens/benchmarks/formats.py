"""Reads benchmark files of other formats: comma-separated values, and one JSON object a line."""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import Any

from headlens.benchmarks.tables import Lines, Row, pick, tab_lines, wanted
from headlens.corpus.corpus import read_text
from headlens.errors import InputError
from headlens.util.files import parse_json


def read_table(
    path: Path, choices: Sequence[Sequence[str]], columns: Sequence[str] = (), numeric: Sequence[str] = ()
) -> list[Row]:
    """Read the wanted columns of a file in the format that its name ends in.

    Args:
        path: a file named .csv, .tsv or .jsonl.
        choices: names of the columns that are wanted, in one or more ways; the first that the file allows.
        columns: names that stand for one of the choices, or numbers from 0 for a file without header.
        numeric: those of the wanted names whose JSON values may be whole numbers, too.

    Returns:
        The rows, with as many cells as the choice has names.

    Raises:
        InputError: the file has another name, cannot be read, or lacks a column.
    """
    suffix = path.suffix.lower()
    if suffix == ".csv":
        return pick(path, comma_lines(path), choices, columns, "comma-separated")
    if suffix == ".tsv":
        return pick(path, tab_lines(path), choices, columns, "tab-separated")
    if suffix == ".jsonl":
        return read_json_lines(path, choices, columns, numeric)
    raise InputError(
        f"{path}: expected a file named .csv, .tsv or .jsonl, found {suffix or 'no ending'}.",
        "Rename it after what it holds.",
    )


def comma_lines(path: Path) -> Lines:
    """Read a file of comma-separated values; a cell in double quotes may hold commas and line ends.

    Args:
        path: the file.

    Returns:
        The number of the line that each row begins on, and its cells; blank rows are left out.

    Raises:
        InputError: quotes are not closed, or a row has not as many cells as the first one, as happens where
            a text with a comma is not quoted.
    """
    reader = csv.reader(io.StringIO(read_text(path), newline=""), strict=True)
    lines: Lines = []
    start = 1
    remedy = "Put cells that hold commas or line ends in double quotes, and double the quotes inside."
    try:
        for cells in reader:
            if any(cell.strip() for cell in cells):
                lines.append((start, cells))
            start = reader.line_num + 1
    except csv.Error as error:
        raise InputError(f"{path}, line {start}: expected comma-separated cells: {error}.", remedy) from None
    for number, cells in lines:
        if len(cells) != len(lines[0][1]):
            raise InputError(
                f"{path}, line {number}: expected {len(lines[0][1])} comma-separated cells as in the first "
                f"line, found {len(cells)}.",
                remedy,
            )
    return lines


def read_json_lines(
    path: Path, choices: Sequence[Sequence[str]], columns: Sequence[str] = (), numeric: Sequence[str] = ()
) -> list[Row]:
    """Read the wanted fields of a file with one JSON object a line.

    Args:
        path: the file.
        choices: names of the fields that are wanted, in one or more ways; the first that line 1 allows.
        columns: names that stand for one of the choices.
        numeric: those of the wanted names whose values may be whole numbers, too.

    Returns:
        The rows, cells as they stand in the file; blank lines are no rows.

    Raises:
        InputError: a line is no JSON object, lacks a field, or a field holds no text.
    """
    rows: list[Row] = []
    names: list[str] = []
    whole: list[bool] = []
    for place, values in _objects(path):
        if not rows:
            names = wanted(choices, columns, values)
            expected = next(choice for choice in choices if len(choice) == len(names))
            whole = [name in numeric for name in expected]
        cells = [_cell(place, values, name, flag) for name, flag in zip(names, whole, strict=True)]
        rows.append(Row(place, tuple(cells)))
    return rows


def _objects(path: Path) -> Iterator[tuple[str, dict[str, Any]]]:
    """Place and content of each JSON object."""
    for number, line in enumerate(read_text(path).split("\n"), start=1):
        if not line.strip():
            continue
        place = f"{path}, line {number}"
        try:
            values = parse_json(line, partial(_once, place))
        except ValueError as error:
            what = error.msg if isinstance(error, json.JSONDecodeError) else str(error)
            where = f" at character {error.pos + 1}" if isinstance(error, json.JSONDecodeError) else ""
            raise InputError(
                f"{place}: expected a JSON object, found no JSON: {what}{where}.", "Write one object a line."
            ) from None
        if not isinstance(values, dict):
            raise InputError(
                f"{place}: expected a JSON object, found {line.strip()[:40]}.", "Write one object a line."
            )
        yield place, values


def _once(place: str, pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    """The dict of an object's names and values, each name there once."""
    made = dict(pairs)
    if len(made) < len(pairs):
        names = [name for name, _ in pairs]
        twice = next(name for name in names if names.count(name) > 1)
        raise InputError(
            f"{place}: expected one field {twice[:40]!r}, found {names.count(twice)}.", "Correct the line."
        )
    return made


def _cell(place: str, values: dict[str, Any], name: str, whole: bool) -> str:
    if name not in values:
        raise InputError(
            f"{place}: expected a field {name}, found {', '.join(values) or 'none'}.",
            "Correct the line, or choose others with --columns.",
        )
    value = values[name]
    if whole and isinstance(value, int) and not isinstance(value, bool):
        return str(value)
    if not isinstance(value, str):
        what = "a text or a whole number" if whole else "a text"
        raise InputError(
            f"{place}: expected {what} in the field {name}, found {json.dumps(value)[:40]}.",
            "Correct the line, or choose others with --columns.",
        )
    try:
        value.encode("utf-8")
    except UnicodeEncodeError:
        raise InputError(
            f"{place}: the field {name} holds half of a surrogate pair, which is no character.",
            "Correct the line.",
        ) from None
    return value
