from __future__ import annotations

import csv
import json
from pathlib import Path

import pytest

from headlens.benchmarks.files import read_json_lines, read_table
from headlens.benchmarks.registry import open_benchmark
from headlens.corpus.corpus import InputFile
from headlens.errors import InputError
from headlens.util.files import file_sha256
from support import notnumbers, refusals
from support.inputfiles import changed_while_read

CHOICES = (("text", "label"), ("text_a", "text_b", "label"))
QUOTING = " Put cells that hold commas or line ends in double quotes, and double the quotes inside."
ODD = ['a, "b"\nc', "d", 'e"f', "ü, \u2028 w", "1,2\n\n3"]


def read(path, columns=()):
    rows = read_table(InputFile(path), CHOICES, columns, numeric=("label",))
    return [(row.place, row.cells) for row in rows]


def refused(path, columns=()) -> str:
    return refusals.refused(InputError, read, path, columns)


def test_cells_come_back_from_every_format(tmp_path):
    """What the csv and json modules write is read again, at the line where it begins."""
    rows = [(text, str(i)) for i, text in enumerate(ODD)]
    with (tmp_path / "t.csv").open("w", newline="", encoding="utf-8") as file:
        csv.writer(file).writerows([("text", "label"), *rows])
    starts = [2, 4, 5, 6, 7]
    assert read(tmp_path / "t.csv") == [
        (f"{tmp_path / 't.csv'}, line {start}", row) for start, row in zip(starts, rows, strict=True)
    ]
    lines = [
        json.dumps({"label": int(label), "x": None, "text": text}, ensure_ascii=False) for text, label in rows
    ]
    (tmp_path / "t.jsonl").write_text("\n\n".join(lines), encoding="utf-8")
    assert read(tmp_path / "t.jsonl") == [
        (f"{tmp_path / 't.jsonl'}, line {1 + 2 * i}", row) for i, row in enumerate(rows)
    ]
    (tmp_path / "t.tsv").write_text('text\tlabel\n"a, b\t1\n')
    assert read(tmp_path / "t.tsv") == [(f"{tmp_path / 't.tsv'}, line 2", ('"a, b', "1"))]


def test_columns_are_found_or_chosen(tmp_path):
    path = tmp_path / "t.CSV"
    path.write_bytes(b"\xef\xbb\xbflabel, text_b ,text_a\r\nx,b,a\r\n,,\r\n\r\ny,d,c\r\n")
    assert read(path) == [(f"{path}, line 2", ("a", "b", "x")), (f"{path}, line 5", ("c", "d", "y"))]
    assert [cells for _, cells in read(path, ("text_b", "label"))] == [("b", "x"), ("d", "y")]
    assert [cells for _, cells in read(path, ("2", "0"))][1:] == [("a", "x"), ("c", "y")]
    assert refused(path, ("text", "label")) == (
        f"{path}: expected the columns text, label in its header, found 'label', 'text_b', 'text_a'. Name "
        "the columns with --columns, or number them for a file without header: --columns 0,1"
    )
    assert refused(path, ("2", "3")) == (
        f"{path}, line 1: expected a column number 3, found 3 comma-separated columns. Correct the line, or "
        "choose others with --columns."
    )
    for columns in (("label",), ("0", "label")):
        assert refused(path, columns) == (
            "--columns: expected 2 or 3 names, or 2 or 3 numbers from 0, for text, label or text_a, text_b, "
            f"label; found {','.join(columns)!r}. Type for example --columns text,label."
        )
    path.write_text("a,b\nc,d\n")
    assert refused(path) == (
        f"{path}: expected the columns text, label or text_a, text_b, label in its header, found 'a', 'b'. "
        "Name the columns with --columns, or number them for a file without header: --columns 0,1"
    )
    assert refused(tmp_path / "t.txt") == (
        f"{tmp_path / 't.txt'}: expected a file named .csv, .tsv or .jsonl, found .txt. Rename it after what "
        "it holds."
    )


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (
            "text,label\nno, never,x\n",
            "line 2: expected 2 comma-separated cells as in the first line, found 3." + QUOTING,
        ),
        (
            'text,label\n"a\nb",x\n"open,y\n\n',
            "line 4: expected comma-separated cells: unexpected end of data." + QUOTING,
        ),
        (
            'text,label\n"a"b,x\n',
            "line 2: expected comma-separated cells: ',' expected after '\"'." + QUOTING,
        ),
    ],
)
def test_bad_quotes_are_told_with_their_line(tmp_path, content, message):
    path = tmp_path / "t.csv"
    path.write_text(content)
    assert refused(path) == f"{path}, {message}"


CHOOSE = " Correct the line, or choose others with --columns."


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ('{"a": 1', "expected a JSON object, found no JSON: Expecting ',' delimiter at character 8."),
        ('{"text": "w", "label": 1, "text": "v"}', "expected one field 'text', found 2. Correct the line."),
        ("[1, 2]", "expected a JSON object, found [1, 2]."),
        ('{"text": "w"}', "expected a field label, found text." + CHOOSE),
        ("{}", "expected a field text, found none." + CHOOSE),
        ('{"text": 3, "label": "x"}', "expected a text in the field text, found 3." + CHOOSE),
        (
            '{"text": "w", "label": true}',
            "expected a text or a whole number in the field label, found true." + CHOOSE,
        ),
        (
            '{"text": "w", "label": 1.0}',
            "expected a text or a whole number in the field label, found 1.0." + CHOOSE,
        ),
        (
            '{"text": "\\ud800", "label": 1}',
            "the field text holds half of a surrogate pair, which is no character. Correct the line.",
        ),
    ],
)
def test_bad_json_is_told_with_its_line(tmp_path, line, message):
    path = tmp_path / "t.jsonl"
    path.write_text('{"text": "w", "label": "x"}\n\n' + line)
    end = " Write one object a line." if "JSON" in message else ""
    assert refused(path) == f"{path}, line 3: {message}{end}"


@pytest.mark.parametrize(("name", "mark"), [("t.csv", ","), ("t.tsv", "\t")])
def test_a_column_that_is_there_twice_is_refused(tmp_path, name, mark):
    """Only where it is wanted: two columns of remarks harm nobody."""
    path = tmp_path / name
    lines = ["", mark.join(["text", " label", "note", "label", "note"]), mark.join("vwxyz")]
    path.write_text("\n".join(lines))
    remedy = "Rename the others, or choose others with --columns."
    assert refused(path) == f"{path}, line 2: expected one column label, found 2. {remedy}"
    assert read(path, ("0", "3")) == [
        (f"{path}, line 2", ("text", "label")),
        (f"{path}, line 3", ("v", "y")),
    ]
    path.write_text("\n".join([lines[1].replace("label", "more", 1), lines[2]]))
    assert read(path) == [(f"{path}, line 2", ("v", "y"))]


def test_json_fields_are_chosen_by_name(tmp_path):
    path = tmp_path / "t.jsonl"
    path.write_text('{"a": "w5", "b": " w6 "}\n')
    assert [row.cells for row in read_json_lines(InputFile(path), [("good", "bad")], ("b", "a"))] == [
        (" w6 ", "w5")
    ]
    with pytest.raises(InputError) as caught:
        read_json_lines(InputFile(path), [("good", "bad")], ("a",))
    assert str(caught.value) == (
        "--columns: expected 2 names, or 2 numbers from 0, for good, bad; found 'a'. Type for example "
        "--columns good,bad."
    )
    path.write_text("\n")
    assert read_json_lines(InputFile(path), [("good", "bad")]) == []


@pytest.mark.parametrize(
    "kind", ["language", "pairs", "classification", "probe", "similarity", "translation"]
)
def test_the_hash_is_that_of_what_was_read(tmp_path, monkeypatch, kind):
    """However often a file is changed meanwhile, nobody looks at it a second time."""
    spec, lens = notnumbers.spec_for(kind, tmp_path), notnumbers.lens_for(kind)
    right = [file_sha256([Path(name)]) for name in spec.partition(":")[2].split(",")]
    changed_while_read(monkeypatch)
    facts = open_benchmark(spec, lens).facts
    assert [facts[name] for name in ("train_sha256", "sha256") if name in facts] == right
