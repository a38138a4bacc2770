"""CSV bytes, formulas, atomic writing, and the grid of `HeadScores`."""

from __future__ import annotations

import errno
import os
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from headlens.errors import InputError, RunError
from headlens.util import files as tables
from headlens.util.files import HeadScores, write_bytes, write_csv, write_text


def written(frame: pd.DataFrame, tmp_path: Path, columns=None) -> bytes:
    write_csv(frame, tmp_path / "t.csv", columns)
    return (tmp_path / "t.csv").read_bytes()


def test_exact_bytes(tmp_path):
    frame = pd.DataFrame(
        {
            "text": ["plain", 'a,"b"', "größe\nx", None],
            "number": [1 / 3, -0.5, np.nan, 1e-300],
            "n": [1, -2, 3, 4],
            "tagged": [True, False, True, False],
        },
        index=[9, 8, 7, 6],
    )
    assert (
        written(frame, tmp_path)
        == (
            "text,number,n,tagged\n"
            "plain,0.333333333,1,True\n"
            '"a,""b""",-0.5,-2,False\n'
            '"größe\nx",,3,True\n'
            ",1e-300,4,False\n"
        ).encode()
    )
    assert written(frame, tmp_path) == written(frame, tmp_path)


def test_columns_are_chosen_and_ordered(tmp_path):
    frame = pd.DataFrame({"b": [1.5], "a": ["x"], "c": [0]})
    assert written(frame, tmp_path, ["a", "b", "missing"]) == b"a,b,missing\nx,1.5,\n"
    assert list(frame.columns) == ["b", "a", "c"]


def test_columns_of_the_interface():
    joined = ",".join
    assert joined(tables.SCORES) == (
        "stack,layer,head,tag,measure,score,baseline,effect,ci_low,ci_high,p_value,q_value,n,tagged"
    )
    assert joined(tables.TAGS) == "stack,layer,head,tags,evidence"
    assert joined(tables.ABLATION) == (
        "condition,sweep,mode,removed,n_removed,metric,value,baseline,delta,ci_low,ci_high,p_value,q_value,n"
        ",no_significant_loss,control_of,kept,tag"
    )
    assert joined(tables.IMPORTANCE) == "stack,layer,head,method,importance,rank"


def test_an_empty_table_has_its_header(tmp_path):
    assert (
        written(HeadScores(columns=tables.TAGS), tmp_path, tables.TAGS) == b"stack,layer,head,tags,evidence\n"
    )


@pytest.mark.parametrize("sign", ["=", "+", "-", "@", "\t", "\r", "\n", "\uff1d"])
@pytest.mark.parametrize("kind", ["object", "str", "category"])
def test_formulas_are_defused_in_text(tmp_path, sign, kind):
    frame = pd.DataFrame({"token": pd.Series([f"{sign}1+1", f"a{sign}", None], dtype=kind), "n": [-1, 2, 3]})
    content = written(frame, tmp_path).decode()
    assert "'" + f"{sign}1+1".replace("\r", "\n") in content
    assert content.count("'") == 1
    assert pd.read_csv(tmp_path / "t.csv")["n"].tolist() == [-1, 2, 3]


@pytest.mark.parametrize("blanks", [" ", "   ", "\xa0", " \xa0"])
def test_blanks_hide_no_formula(tmp_path, blanks):
    content = written(
        pd.DataFrame({"token": [f"{blanks}=1+1", f"{blanks}x", f"a{blanks}-b"]}), tmp_path
    ).decode()
    assert content == f"token\n'{blanks}=1+1\n{blanks}x\na{blanks}-b\n"


def test_a_return_begins_no_row_of_its_own(tmp_path):
    frame = pd.DataFrame({"t": ["a\r=1+1", "b\r\nc"], "n": [1, 2]})
    assert written(frame, tmp_path) == b't,n\n"a\n\'=1+1",1\n"b\nc",2\n'


def test_formulas_are_defused_in_headers_and_mixed_columns(tmp_path):
    frame = pd.DataFrame({"=A1": [-1.5, -2.5], "mixed": [-1, "-1"]})
    assert written(frame, tmp_path) == b"'=A1,mixed\n-1.5,-1\n-2.5,'-1\n"
    assert list(frame.columns) == ["=A1", "mixed"]
    assert frame["mixed"].tolist() == [-1, "-1"]


def test_lone_surrogates_are_written_as_escapes(tmp_path):
    assert (
        written(pd.DataFrame({"t": ["a\udc80", "😀"]}, dtype=object), tmp_path)
        == "t\na\\udc80\n😀\n".encode()
    )
    write_text("\ud800", tmp_path / "x.txt")
    assert (tmp_path / "x.txt").read_bytes() == b"\\ud800"


def test_a_failed_write_leaves_the_old_file_and_no_other(tmp_path, monkeypatch):
    path = tmp_path / "deep" / "out.csv"
    write_text("old", path)

    def full(*_):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(Path, "replace", full)
    with pytest.raises(RunError) as caught:
        write_bytes(b"new", path)
    assert str(caught.value) == (
        f"{path} cannot be written: No space left on device. Choose another place with --out, or make room."
    )
    assert [file.name for file in path.parent.iterdir()] == ["out.csv"]
    assert path.read_text() == "old"


def test_an_interrupted_write_leaves_nothing(tmp_path, monkeypatch):
    def stop(*_):
        raise KeyboardInterrupt

    monkeypatch.setattr(Path, "replace", stop)
    with pytest.raises(KeyboardInterrupt):
        write_bytes(b"new", tmp_path / "out.csv")
    assert list(tmp_path.iterdir()) == []


def test_a_place_that_cannot_hold_the_file(tmp_path):
    (tmp_path / "file").write_text("")
    path = tmp_path / "file" / "out.csv"
    with pytest.raises(RunError) as caught:
        write_bytes(b"", path)
    assert str(caught.value) == (
        f"{path} cannot be written: File exists. Choose another place with --out, or make room."
    )
    folder = tmp_path / "folder"
    folder.mkdir()
    with pytest.raises(RunError) as caught:
        write_bytes(b"", folder)
    assert str(caught.value) == (
        f"{folder} cannot be written: Is a directory. Choose another place with --out, or make room."
    )
    assert sorted(file.name for file in tmp_path.iterdir()) == ["file", "folder"]


@pytest.mark.skipif(os.geteuid() == 0, reason="root may write everywhere")
def test_a_directory_without_permission(tmp_path):
    tmp_path.chmod(0o555)
    with pytest.raises(RunError) as caught:
        write_bytes(b"", tmp_path / "out.csv")
    assert str(caught.value) == (
        f"{tmp_path / 'out.csv'} cannot be written: Permission denied. "
        "Choose another place with --out, or make room."
    )


def test_files_have_the_usual_permissions(tmp_path):
    mask = os.umask(0o027)
    try:
        write_bytes(b"", tmp_path / "out.csv")
    finally:
        os.umask(mask)
    assert (tmp_path / "out.csv").stat().st_mode & 0o777 == 0o640


SCORES = HeadScores(
    [
        ("encoder", 0, 1, "special", 0.25, 0.1),
        ("encoder", 2, 0, "special", 0.5, 0.2),
        ("encoder", 0, 0, "argmax@-1", 1.0, 0.3),
        ("cross", 0, 0, "argmax@-1", 0.75, 0.4),
    ],
    columns=["stack", "layer", "head", "measure", "score", "effect"],
)


def test_grid():
    nan = np.nan
    np.testing.assert_array_equal(SCORES.grid("special"), [[nan, 0.25], [nan, nan], [0.5, nan]])
    np.testing.assert_array_equal(SCORES.grid("special", "effect"), [[nan, 0.1], [nan, nan], [0.2, nan]])
    np.testing.assert_array_equal(SCORES.grid("argmax@-1", stack="cross"), [[0.75]])
    assert isinstance(SCORES[SCORES["layer"] == 0], HeadScores)


@pytest.mark.parametrize(
    ("measure", "stack", "message"),
    [
        ("argmax@-1", None, "The measure 'argmax@-1' was not taken on stack None. There is encoder, cross."),
        ("special", "cross", "The measure 'special' was not taken on stack 'cross'. There is encoder."),
        (
            "nsubj",
            None,
            "The measure 'nsubj' was not taken on stack None. "
            "There is none: the measures are special, argmax@-1.",
        ),
    ],
)
def test_grid_messages(measure, stack, message):
    with pytest.raises(InputError) as caught:
        SCORES.grid(measure, stack=stack)
    assert str(caught.value) == message


@pytest.mark.parametrize("code", ["ENOSPC", "EDQUOT", "EROFS", "EACCES", "EIO", "EFBIG", "ESTALE"])
@pytest.mark.parametrize(
    "step", ["tempfile.mkstemp", "os.fdopen", "pathlib.Path.chmod", "pathlib.Path.replace"]
)
def test_a_write_that_fails_leaves_what_was_there(tmp_path, monkeypatch, step, code):
    number = getattr(errno, code)

    def fail(*_, **__):
        raise OSError(number, os.strerror(number))

    (tmp_path / "x.csv").write_text("old")
    monkeypatch.setattr(step, fail)
    with pytest.raises(RunError) as refused:
        write_text("new", tmp_path / "x.csv")
    assert str(refused.value) == (
        f"{tmp_path / 'x.csv'} cannot be written: {os.strerror(number)}. "
        "Choose another place with --out, or make room."
    )
    assert {path.name: path.read_text() for path in tmp_path.iterdir()} == {"x.csv": "old"}


def test_the_longest_name_of_a_file_can_be_written(tmp_path):
    write_text("x", tmp_path / f"{'x' * 251}.csv")
    assert [len(path.name) for path in tmp_path.iterdir()] == [255]
