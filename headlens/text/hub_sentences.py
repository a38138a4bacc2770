"""Rows of words as the CoNLL-U lines that they stand for, so that one reader reads both alike."""

from __future__ import annotations

import ast
from collections.abc import Iterator, Mapping
from typing import Any

from headlens.text.hub_columns import Columns
from headlens.util.formatting import decimal

NO_HEAD = (None, "", "_", "None")  # what stands for the head of what is no word


def conllu_lines(columns: Columns, number: int, row: Mapping[str, Any]) -> Iterator[str]:
    """Write a row of words as CoNLL-U.

    In some datasets multiword tokens and empty nodes stand among the words, without a head. They are left
    out where other words have one, since heads do not count them.

    Args:
        columns: what is read.
        number: of the row, from 1.
        row: the row.

    Yields:
        Comments and word lines; nothing for a row without words or with a blank one.

    Raises:
        CorpusError: a cell is of the wrong kind, or a column has not as many as there are words.
    """
    cells = {what: columns.lists(number, row, what) for what in ("words", "lemmas", "upos", "deprel", "misc")}
    heads = [_head(columns, number, head) for head in columns.lists(number, row, "head")]
    kept = [i for i, head in enumerate(heads) if head != "_"] or range(len(heads))
    if not all(word.strip() for word in cells["words"]):
        return
    if kept:
        yield from _comments(columns, row)
    ranges = {str(span["id"]).partition("-")[0]: span for span in _records(columns, row, "mwt")}
    for index, i in enumerate(kept, start=1):
        if span := ranges.get(str(index)):
            yield _line(str(span["id"]), span["form"], misc=_misc(span.get("misc")))
        word, lemma, upos, deprel, misc = (cells[what][i] for what in cells)
        yield _line(str(index), word, lemma, upos, heads[i], deprel, _misc(misc))


def is_word(line: str) -> bool:
    """Tell whether a line is that of a word."""
    return line.partition("\t")[0].isdigit()


def _line(
    place: str, form: str, lemma: str | None = None, upos: str | None = None, head: str = "_",
    deprel: str | None = None, misc: str = "_",
) -> str:  # fmt: skip
    cells = [place, form, lemma, upos, None, None, head, deprel, None, misc]
    return "\t".join("_" if cell is None else " ".join(cell.split()) or "_" for cell in cells)


def _head(columns: Columns, number: int, head: Any) -> str:
    if head in NO_HEAD:
        return "_"
    value = decimal(str(head))
    if not value.is_integer():
        raise columns.wrong(number, "head", "whole numbers", head)
    return str(int(value))


def _comments(columns: Columns, row: Mapping[str, Any]) -> Iterator[str]:
    for comment in row[columns.names["comments"]] or () if "comments" in columns.names else ():
        yield "# " + " ".join(str(comment).lstrip("#").split())
    if "sent_id" in columns.names and row["sent_id"] is not None:
        yield f"# sent_id = {row['sent_id']}"


def _records(columns: Columns, row: Mapping[str, Any], what: str) -> list[dict[str, Any]]:
    """Records, which datasets hold as a list of them or as lists of their parts."""
    found = row[columns.names[what]] or [] if what in columns.names else []
    if isinstance(found, dict):
        return [dict(zip(found, parts, strict=True)) for parts in zip(*found.values(), strict=True)]
    return list(found)


def _misc(value: str | None) -> str:
    """The last column; some datasets hold it as Python writes a dictionary."""
    if value is None or value in NO_HEAD:
        return "_"
    try:
        found = ast.literal_eval(value) if value.startswith("{") else None
    except (ValueError, SyntaxError):
        found = None
    if not isinstance(found, dict):
        return value
    return "|".join(str(key) if told is None else f"{key}={told}" for key, told in found.items())
