"""Reads benchmark files: rows of named or numbered columns, with the line each row stands on."""

from __future__ import annotations

from collections.abc import Container, Sequence
from dataclasses import dataclass
from pathlib import Path

from headlens.corpus.corpus import read_text
from headlens.errors import InputError

Lines = list[tuple[int, list[str]]]
"""The number of each line, from 1, and its cells."""


@dataclass(frozen=True, slots=True)
class Row:
    """One row of a file.

    Args:
        place: file and line, for messages.
        cells: the wanted cells, in the wanted order.
    """

    place: str
    cells: tuple[str, ...]


def read_rows(path: Path, expected: Sequence[str], columns: Sequence[str] = ()) -> list[Row]:
    """Read the wanted columns of a tab-separated file.

    Quotation marks are text like any other: a cell is what stands between two tabs. Blank lines are no
    rows.

    Args:
        path: the file.
        expected: names of the columns that are wanted.
        columns: names that stand for those in this file's header, or numbers from 0 for a file without
            header; as many as `expected`. By default the expected names themselves.

    Returns:
        The rows, in file order.

    Raises:
        InputError: the file cannot be read, lacks a column, or a row is shorter than the header.
    """
    return pick(path, tab_lines(path), [expected], columns, "tab-separated")


def tab_lines(path: Path) -> Lines:
    """Read a tab-separated file.

    Args:
        path: the file.

    Returns:
        The number of each line that is not blank, and its cells.
    """
    text = read_text(path).split("\n")
    return [(number, line.split("\t")) for number, line in enumerate(text, start=1) if line.strip()]


def pick(
    path: Path, lines: Lines, choices: Sequence[Sequence[str]], columns: Sequence[str], separated: str
) -> list[Row]:
    """Pick the wanted columns.

    Args:
        path: where the lines come from.
        lines: numbered lines, the header among them.
        choices: names of the columns that are wanted, in one or more ways; without `columns` the first way
            that the header allows.
        columns: see `read_rows`; as many as one of the choices.
        separated: how its columns are separated, for messages.

    Returns:
        The rows, with as many cells as the choice has names.

    Raises:
        InputError: a column is lacking or there twice, or a row is too short.
    """
    header = [cell.strip() for cell in lines[0][1]] if lines else []
    names = wanted(choices, columns, header)
    if are_numbers(names):
        places, names = [int(name) for name in names], [f"number {int(name)}" for name in names]
    else:
        if any(name not in header for name in names):
            raise _lacking(path, header, [names] if columns else choices)
        twice = next((name for name in names if header.count(name) > 1), None)
        if twice is not None:
            raise InputError(
                f"{path}, line {lines[0][0]}: expected one column {twice}, found {header.count(twice)}.",
                "Rename the others, or choose others with --columns.",
            )
        places = [header.index(name) for name in names]
        lines = lines[1:]
    rows = []
    for number, cells in lines:
        lost = next((name for place, name in zip(places, names, strict=True) if place >= len(cells)), None)
        if lost is not None:
            raise InputError(
                f"{path}, line {number}: expected a column {lost}, found {len(cells)} {separated} columns.",
                "Correct the line, or choose others with --columns.",
            )
        rows.append(Row(f"{path}, line {number}", tuple(cells[place].strip() for place in places)))
    return rows


def wanted(choices: Sequence[Sequence[str]], columns: Sequence[str], present: Container[str]) -> list[str]:
    """Settle which columns to read.

    Args:
        choices: names of the columns that are wanted, in one or more ways.
        columns: what the user asks for instead; none for one of the choices.
        present: names that the file has.

    Returns:
        Names, or numbers as text, as many as one of the choices has.

    Raises:
        InputError: `columns` has not as many entries as any choice, or mixes names and numbers.
    """
    if not columns:
        there = [choice for choice in choices if all(name in present for name in choice)]
        return list((there or choices)[0])
    names = [name.strip() for name in columns]
    numbers = [are_numbers([name]) for name in names]
    sizes = [len(choice) for choice in choices]
    if len(names) not in sizes or (any(numbers) and not all(numbers)):
        size = " or ".join(map(str, sizes))
        raise InputError(
            f"--columns: expected {size} names, or {size} numbers from 0, for {_ways(choices)}; "
            f"found {','.join(columns)!r}.",
            f"Type for example --columns {','.join(choices[0])}.",
        )
    return names


def are_numbers(names: Sequence[str]) -> bool:
    """Tell whether columns are chosen by number.

    Args:
        names: what the user typed.

    Returns:
        True where all of them are numbers.
    """
    return all(name.isascii() and name.isdigit() and len(name) < 10 for name in names)


def _lacking(path: Path, header: Sequence[str], choices: Sequence[Sequence[str]]) -> InputError:
    found = ", ".join(repr(cell[:40]) for cell in header) or "an empty file"
    numbers = ",".join(map(str, range(len(choices[0]))))
    return InputError(
        f"{path}: expected the columns {_ways(choices)} in its header, found {found}.",
        f"Name the columns with --columns, or number them for a file without header: --columns {numbers}",
    )


def _ways(choices: Sequence[Sequence[str]]) -> str:
    return " or ".join(", ".join(choice) for choice in choices)
