"""Files of benchmarks: formats, columns, labels."""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Container, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

from headlens.benchmarks.base import MIN_EXAMPLES, need_tokenizer
from headlens.corpus.corpus import InputFile
from headlens.errors import InputError
from headlens.model.lens import Lens
from headlens.util.files import parse_json

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


def read_rows(file: InputFile, expected: Sequence[str], columns: Sequence[str] = ()) -> list[Row]:
    """Read the wanted columns of a tab-separated file.

    Quotation marks are text like any other: a cell is what stands between two tabs. Blank lines are no
    rows.

    Args:
        file: the file.
        expected: names of the columns that are wanted.
        columns: names that stand for those in this file's header, or numbers from 0 for a file without
            header; as many as `expected`. By default the expected names themselves.

    Returns:
        The rows, in file order.

    Raises:
        InputError: the file cannot be read, lacks a column, or a row is shorter than the header.
    """
    return pick(file, tab_lines(file), [expected], columns, "tab-separated")


def tab_lines(file: InputFile) -> Lines:
    """Read a tab-separated file.

    Args:
        file: the file.

    Returns:
        The number of each line that is not blank, and its cells.
    """
    text = file.text.split("\n")
    return [(number, line.split("\t")) for number, line in enumerate(text, start=1) if line.strip()]


def pick(
    file: InputFile, lines: Lines, choices: Sequence[Sequence[str]], columns: Sequence[str], separated: str
) -> list[Row]:
    """Pick the wanted columns.

    Args:
        file: where the lines come from.
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
            raise _lacking(file, header, [names] if columns else choices)
        twice = next((name for name in names if header.count(name) > 1), None)
        if twice is not None:
            raise InputError(
                f"{file}, line {lines[0][0]}: expected one column {twice}, found {header.count(twice)}.",
                "Rename the others, or choose others with --columns.",
            )
        places = [header.index(name) for name in names]
        lines = lines[1:]
    rows = []
    for number, cells in lines:
        lost = next((name for place, name in zip(places, names, strict=True) if place >= len(cells)), None)
        if lost is not None:
            raise InputError(
                f"{file}, line {number}: expected a column {lost}, found {len(cells)} {separated} columns.",
                "Correct the line, or choose others with --columns.",
            )
        rows.append(Row(f"{file}, line {number}", tuple(cells[place].strip() for place in places)))
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


def _lacking(file: InputFile, header: Sequence[str], choices: Sequence[Sequence[str]]) -> InputError:
    found = ", ".join(repr(cell[:40]) for cell in header) or "an empty file"
    numbers = ",".join(map(str, range(len(choices[0]))))
    return InputError(
        f"{file}: expected the columns {_ways(choices)} in its header, found {found}.",
        f"Name the columns with --columns, or number them for a file without header: --columns {numbers}",
    )


def _ways(choices: Sequence[Sequence[str]]) -> str:
    return " or ".join(", ".join(choice) for choice in choices)


# ---- Reads benchmark files of other formats: comma-separated values, and one JSON object a line


def read_table(
    file: InputFile,
    choices: Sequence[Sequence[str]],
    columns: Sequence[str] = (),
    numeric: Sequence[str] = (),
) -> list[Row]:
    """Read the wanted columns of a file in the format that its name ends in.

    Args:
        file: one named .csv, .tsv or .jsonl.
        choices: names of the columns that are wanted, in one or more ways; the first that the file allows.
        columns: names that stand for one of the choices, or numbers from 0 for a file without header.
        numeric: those of the wanted names whose JSON values may be whole numbers, too.

    Returns:
        The rows, with as many cells as the choice has names.

    Raises:
        InputError: the file has another name, cannot be read, or lacks a column.
    """
    suffix = file.path.suffix.lower()
    if suffix == ".csv":
        return pick(file, comma_lines(file), choices, columns, "comma-separated")
    if suffix == ".tsv":
        return pick(file, tab_lines(file), choices, columns, "tab-separated")
    if suffix == ".jsonl":
        return read_json_lines(file, choices, columns, numeric)
    raise InputError(
        f"{file}: expected a file named .csv, .tsv or .jsonl, found {suffix or 'no ending'}.",
        "Rename it after what it holds.",
    )


def comma_lines(file: InputFile) -> Lines:
    """Read a file of comma-separated values; a cell in double quotes may hold commas and line ends.

    Args:
        file: the file.

    Returns:
        The number of the line that each row begins on, and its cells; blank rows are left out.

    Raises:
        InputError: quotes are not closed, or a row has not as many cells as the first one, as happens where
            a text with a comma is not quoted.
    """
    reader = csv.reader(io.StringIO(file.text, newline=""), strict=True)
    lines: Lines = []
    start = 1
    remedy = "Put cells that hold commas or line ends in double quotes, and double the quotes inside."
    try:
        for cells in reader:
            if any(cell.strip() for cell in cells):
                lines.append((start, cells))
            start = reader.line_num + 1
    except csv.Error as error:
        raise InputError(f"{file}, line {start}: expected comma-separated cells: {error}.", remedy) from None
    for number, cells in lines:
        if len(cells) != len(lines[0][1]):
            raise InputError(
                f"{file}, line {number}: expected {len(lines[0][1])} comma-separated cells as in the first "
                f"line, found {len(cells)}.",
                remedy,
            )
    return lines


def read_json_lines(
    file: InputFile,
    choices: Sequence[Sequence[str]],
    columns: Sequence[str] = (),
    numeric: Sequence[str] = (),
) -> list[Row]:
    """Read the wanted fields of a file with one JSON object a line.

    Args:
        file: the file.
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
    for place, values in _objects(file):
        if not rows:
            names = wanted(choices, columns, values)
            expected = next(choice for choice in choices if len(choice) == len(names))
            whole = [name in numeric for name in expected]
        cells = [_cell(place, values, name, flag) for name, flag in zip(names, whole, strict=True)]
        rows.append(Row(place, tuple(cells)))
    return rows


def _objects(file: InputFile) -> Iterator[tuple[str, dict[str, Any]]]:
    """Place and content of each JSON object."""
    for number, line in enumerate(file.text.split("\n"), start=1):
        if not line.strip():
            continue
        place = f"{file}, line {number}"
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


# ---- Texts, or pairs of texts, with a label each: what `classification` and `probe` read


CHOICES = (("text", "label"), ("text_a", "text_b", "label"))
SHOWN = 12  # labels in a message


@dataclass(frozen=True, slots=True)
class Labelled:
    """One example.

    Args:
        place: file and line, for messages.
        texts: one or two.
        label: as it stands in the file.
    """

    place: str
    texts: tuple[str, ...]
    label: str


@dataclass(frozen=True, slots=True)
class Coded:
    """One example as the tokenizer encodes it.

    Args:
        ids: token ids, special ones included.
        types: which text each token belongs to; empty where the tokenizer does not say.
    """

    ids: tuple[int, ...]
    types: tuple[int, ...] = ()


def read_labelled(file: InputFile, columns: Sequence[str] = ()) -> list[Labelled]:
    """Read a file of labelled texts.

    Args:
        file: one named .csv, .tsv or .jsonl, with the columns text (or text_a and text_b) and label.
        columns: names that stand for those, or numbers from 0 for a file without header.

    Returns:
        The examples, in file order.

    Raises:
        InputError: the file is unfit; the message names file and line.
    """
    made = []
    for row in read_table(file, CHOICES, columns, numeric=("label",)):
        names = next(choice for choice in CHOICES if len(choice) == len(row.cells))
        cells = [cell.strip() for cell in row.cells]
        for name, cell in zip(names, cells, strict=True):
            if not cell:
                what = "label" if name == "label" else "text"
                raise InputError(f"{row.place}: expected a {what} in the column {name}, found nothing.")
        made.append(Labelled(row.place, tuple(cells[:-1]), cells[-1]))
    if len(made) < MIN_EXAMPLES:
        raise InputError(
            f"{file}: expected at least {MIN_EXAMPLES} examples, found {len(made)}.", "Give a longer file."
        )
    return made


def encode(lens: Lens, examples: Sequence[Labelled], longest: int | None) -> list[Coded]:
    """Encode examples; two texts together, as the tokenizer joins them.

    Args:
        lens: the model with its tokenizer.
        examples: all with one text, or all with two.
        longest: most tokens, special ones included; None for no limit.

    Returns:
        The examples' tokens.

    Raises:
        InputError: an example is too long, or the tokenizer makes nothing of it.
    """
    sides = [list(texts) for texts in zip(*(example.texts for example in examples), strict=True)]
    made = need_tokenizer(lens)(*sides)
    types = made.get("token_type_ids") or [()] * len(examples)
    for example, ids in zip(examples, made["input_ids"], strict=True):
        if not ids:
            raise InputError(f"{example.place}: the tokenizer makes no token of a text.", "Correct the line.")
        if longest is not None and len(ids) > longest:
            raise InputError(
                f"{example.place}: an example has {len(ids)} tokens, and inputs may have {longest}.",
                "Shorten it; headlens cuts no text off.",
            )
    return [Coded(tuple(ids), tuple(of)) for ids, of in zip(made["input_ids"], types, strict=True)]


def listed(labels: Sequence[str]) -> str:
    """Name labels in a message, not more than a reader wants to see.

    Args:
        labels: all of them.

    Returns:
        The first ones, and how many more there are.
    """
    more = len(labels) - SHOWN
    return ", ".join(labels[:SHOWN]) + (f" and {more} more" if more > 0 else "")


def below_chance(name: str, accuracy: float, n_labels: int) -> tuple[str, ...]:
    """Notice an accuracy that is worse than guessing.

    Args:
        name: of the benchmark.
        accuracy: without ablation.
        n_labels: labels to guess from.

    Returns:
        A sentence for the user, or nothing.
    """
    if accuracy >= 1 / n_labels:
        return ()
    return (
        f"Without ablation the accuracy of {name} is {accuracy:.3f}, below the {1 / n_labels:.3f} of a guess "
        f"among {n_labels} labels: check that the model and the file mean the same by each label.",
    )
