"""Cells with any characters come back from every format as they were written, line ends aside."""

import csv
import json

import pandas as pd
from hypothesis import example, given
from hypothesis import strategies as st

from headlens.benchmarks.files import read_rows, read_table
from headlens.corpus.corpus import InputFile
from headlens.util.files import read_csv, write_csv
from support import hostile

NAMES = ("text", "label")
ANY = st.text(st.characters(blacklist_categories=("Cs",), blacklist_characters="\0"), max_size=8)
CELL = st.one_of(hostile.words(), ANY, st.sampled_from(hostile.HOSTILE))
ROWS = st.lists(st.tuples(CELL, CELL), min_size=1, max_size=5)
SIGNS = ("=", "+", "-", "@", "\uff1d", "\uff0b", "\uff0d", "\uff20")


def lines(text):
    return text.replace("\r\n", "\n").replace("\r", "\n")


def filled(rows):
    """Rows that are not all blank, which are no rows, without blanks around the cells."""
    return [tuple(cell.strip() for cell in row) for row in rows if any(cell.strip() for cell in row)]


@hostile.examples(60)
@given(ROWS)
@example([("a\r\nb\rc", '"'), ("\ufeff", "\u2028")])
def test_comma_separated(tmp_path_factory, rows):
    path = tmp_path_factory.getbasetemp() / "cells.csv"
    with path.open("w", encoding="utf-8", newline="") as file:
        csv.writer(file).writerows([NAMES, *rows])
    found = read_table(InputFile(path), [NAMES])
    assert [row.cells for row in found] == filled([tuple(map(lines, row)) for row in rows])


@hostile.examples(60)
@given(ROWS)
def test_objects(tmp_path_factory, rows):
    path = tmp_path_factory.getbasetemp() / "cells.jsonl"
    told = [
        json.dumps(dict(zip(NAMES, row, strict=True)), ensure_ascii=bool(n % 2)) for n, row in enumerate(rows)
    ]
    path.write_text("\n".join(told), encoding="utf-8", newline="")
    assert [row.cells for row in read_table(InputFile(path), [NAMES])] == rows


@hostile.examples(60)
@given(ROWS)
def test_tab_separated(tmp_path_factory, rows):
    path = tmp_path_factory.getbasetemp() / "cells.tsv"
    plain = [
        tuple(" ".join(cell.replace("\r", "\n").replace("\t", "\n").split("\n")) for cell in row)
        for row in rows
    ]
    path.write_text("\n".join(map("\t".join, [NAMES, *plain])), encoding="utf-8", newline="")
    assert [row.cells for row in read_rows(InputFile(path), NAMES)] == filled(plain)


@hostile.examples(60)
@given(ROWS)
@example([(";=1+1", "a;-b\n+c"), ("=", "\uff1d1")])
def test_tables_of_our_own_hold_no_formula_whatever_parts_their_cells(tmp_path_factory, rows):
    path = tmp_path_factory.getbasetemp() / "own.csv"
    write_csv(pd.DataFrame(rows, columns=NAMES, dtype=object), path)
    with path.open(encoding="utf-8", newline="") as file:
        told = list(csv.reader(file))[1:]
    for mine, row in zip(told, rows, strict=True):
        assert [cell.replace("'", "") for cell in mine] == [lines(cell).replace("'", "") for cell in row]
    for delimiter, quoting in ((",", csv.QUOTE_MINIMAL), (";", csv.QUOTE_MINIMAL), (";", csv.QUOTE_NONE)):
        with path.open(encoding="utf-8", newline="") as file:
            shown = csv.reader(file, delimiter=delimiter, quoting=quoting)
            assert not [cell for row in shown for cell in row if cell.startswith(SIGNS)]
    read = read_csv(path, NAMES, NAMES)
    assert read.to_numpy().tolist() == told
