"""Reads benchmark files: rows of named or numbered columns, with the line each row stands on."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from headlens.errors import InputError


@dataclass(frozen=True, slots=True)
class Row:
    """One row of a file.

    Args:
        place: file and line, for messages.
        cells: the wanted cells, in the wanted order.
    """

    place: str
    cells: tuple[str, ...]


def read_text(path: Path) -> str:
    """Read a UTF-8 text file.

    Args:
        path: the file.

    Returns:
        Its text, without byte-order mark, lines ending in ``\\n``.

    Raises:
        InputError: it cannot be read or is no UTF-8 text.
    """
    try:
        raw = path.read_bytes()
    except FileNotFoundError:
        raise InputError(f"Expected a file at {path}, found nothing.", "Check the path.") from None
    except IsADirectoryError:
        raise InputError(f"Expected a file at {path}, found a directory.", "Name a file in it.") from None
    except OSError as error:
        raise InputError(f"{path} cannot be read: {error.strerror}.", "Make it readable.") from None
    try:
        text = raw.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        line = raw[: error.start].count(b"\n") + 1
        raise InputError(
            f"{path}, line {line}: expected UTF-8, found byte 0x{raw[error.start]:02x}.",
            "Convert the file to UTF-8.",
        ) from None
    return text.replace("\r\n", "\n")


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
    text = read_text(path).split("\n")
    lines = [(number, line.split("\t")) for number, line in enumerate(text, start=1) if line.strip()]
    wanted = _wanted(expected, columns)
    if isinstance(wanted[0], int):
        places, names = [int(place) for place in wanted], [f"number {place}" for place in wanted]
    else:
        header = [cell.strip() for cell in lines[0][1]] if lines else []
        names = [str(name) for name in wanted]
        places = _places(path, header, names)
        lines = lines[1:]
    rows = []
    for number, cells in lines:
        lost = next((name for place, name in zip(places, names, strict=True) if place >= len(cells)), None)
        if lost is not None:
            raise InputError(
                f"{path}, line {number}: expected a column {lost}, found {len(cells)} tab-separated columns.",
                "Correct the line, or choose others with --columns.",
            )
        rows.append(Row(f"{path}, line {number}", tuple(cells[place].strip() for place in places)))
    return rows


def _wanted(expected: Sequence[str], columns: Sequence[str]) -> list[str] | list[int]:
    names = [name.strip() for name in columns] or list(expected)
    numbers = [name.isascii() and name.isdigit() for name in names]
    if len(names) != len(expected) or (any(numbers) and not all(numbers)):
        raise InputError(
            f"--columns: expected {len(expected)} names, or {len(expected)} numbers from 0, for "
            f"{', '.join(expected)}; found {','.join(columns)!r}.",
            f"Type for example --columns {','.join(expected)}.",
        )
    return [int(name) for name in names] if all(numbers) else names


def _places(path: Path, header: Sequence[str], names: Sequence[str]) -> list[int]:
    missing = [name for name in names if name not in header]
    if missing:
        found = ", ".join(repr(cell[:40]) for cell in header) or "an empty file"
        numbers = ",".join(map(str, range(len(names))))
        raise InputError(
            f"{path}: expected the columns {', '.join(names)} in its header, found {found}.",
            f"Name the columns with --columns, or number them for a file without header: --columns {numbers}",
        )
    return [header.index(name) for name in names]
