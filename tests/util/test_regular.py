"""Files that users name: regular ones only, opened in one place."""

import hashlib
import json
import os
from pathlib import Path

import pytest

from headlens.util.files import (
    IrregularFileError,
    check_regular,
    file_sha256,
    from_home,
    is_directory,
    is_there,
    load_json,
    open_regular,
    parse_json,
)
from support import hostile


def test_what_it_is_is_told(tmp_path):
    found = {}
    for path in hostile.no_files(tmp_path, "x"):
        with hostile.within(5), pytest.raises(OSError) as refused:  # noqa: PT011
            open_regular(path)
        found[path.name.removesuffix("-x")] = refused.value
    kinds = {name: error.found for name, error in found.items() if isinstance(error, IrregularFileError)}
    assert kinds == {
        "pipe": "a pipe",
        "socket": "a socket",
        "zero": "a device",
        "random": "a device",
        "device": "a device",
    }
    assert found["pipe"].strerror == "it is a pipe, no file"
    assert found["pipe"].remedy == "Write what comes through it to a file, and name that."
    assert all(isinstance(found[name], FileNotFoundError) for name in ("nothing", "absent"))
    with pytest.raises(IsADirectoryError):
        check_regular(tmp_path)
    with pytest.raises(FileNotFoundError):
        check_regular(tmp_path / "a\0b")


def test_a_pipe_of_a_shell_is_refused_and_its_writer_is_not_waited_for():
    reading, writing = os.pipe()
    try:
        with hostile.within(5), pytest.raises(IrregularFileError):
            open_regular(Path(f"/dev/fd/{reading}"))
    finally:
        os.close(reading)
        os.close(writing)


def test_files_and_links_to_them_are_opened(tmp_path):
    (tmp_path / "a").write_bytes(b"aaa")
    (tmp_path / "b").symlink_to("a")
    with open_regular(tmp_path / "b") as file:
        assert file.read() == b"aaa"
    paths = [tmp_path / "b", tmp_path / "a"]
    assert file_sha256(paths) == hashlib.sha256(b"aaaaaa").hexdigest()
    assert file_sha256([]) == hashlib.sha256().hexdigest()


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("[" * 100_000, "it is nested too deeply"),
        ('{"a":' * 100_000, "it is nested too deeply"),
        ("9" * 5000, "it has a number of too many digits"),
        ("{", "Expecting property name enclosed in double quotes: line 1 column 2 (char 1)"),
        ("", "Expecting value: line 1 column 1 (char 0)"),
    ],
)
def test_json_that_is_none(tmp_path, text, why):
    with pytest.raises(ValueError) as refused:  # noqa: PT011
        parse_json(text)
    assert str(refused.value) == why
    (tmp_path / "x.json").write_text(text)
    with pytest.raises(ValueError):  # noqa: PT011
        load_json(tmp_path / "x.json")


def test_json(tmp_path):
    told = {"a": [1, 2.5, None, "\u00e4\U0001f600"]}
    (tmp_path / "x.json").write_text(json.dumps(told))
    assert load_json(tmp_path / "x.json") == told
    (tmp_path / "x.json").write_bytes(b'"\xff"')
    with pytest.raises(UnicodeDecodeError):
        load_json(tmp_path / "x.json")


def test_names_that_no_file_system_takes_are_not_there(tmp_path):
    (tmp_path / "loop").symlink_to("loop")
    for path in (tmp_path / ("a" * 300), tmp_path / "a\0b", tmp_path / "loop", tmp_path / "absent"):
        assert not is_there(path)
        assert not is_directory(path)
    assert is_directory(tmp_path)
    assert not is_there(tmp_path)


def test_home(monkeypatch, tmp_path):
    monkeypatch.setenv("HOME", str(tmp_path))
    assert from_home("~/x.csv") == tmp_path / "x.csv"
    assert str(from_home("~nobody-of-this-name.csv")) == "~nobody-of-this-name.csv"
