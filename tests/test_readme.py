"""The programs of the README run as they stand."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

import headlens
from headlens.benchmarks.registry import KINDS
from headlens.errors import InputError, RunError
from headlens.lens import load
from headlens.scoring.scorers import SCORERS
from support import toys
from support.families import build
from support.real import need_minilm
from support.toytext import toy_tokenizer

README = Path(__file__).parents[1] / "README.md"


def program(mark: str) -> str:
    blocks = re.findall(r"```python\n(.*?)```", README.read_text("utf-8"), flags=re.DOTALL)
    (found,) = [block for block in blocks if mark in block]
    return found


def test_a_tag_of_ones_own():
    need_minilm()
    space: dict = {}
    try:
        exec(program("class LastToken"), space)
        scores = headlens.classify(headlens.load("minilm"), tags=["last-token"]).scores
    finally:
        SCORERS.pop("last-token", None)
    assert set(scores["measure"]) == {"last-token"}
    assert scores["score"].between(0, 1).all()


def changed_files_are_measured_anew(lens, folder):
    """A run directory goes on with the same lines only; as many others are another benchmark."""
    asked = {"benchmark": "last-word:lines.txt", "heads": "0.0", "out": folder / "run"}
    old = headlens.sweep(lens, **asked)
    assert headlens.sweep(lens, **asked).run["conditions_reused"] == 1
    lines = (folder / "lines.txt").read_text("utf-8")
    (folder / "lines.txt").write_text(lines.replace("moon", "door"), "utf-8")
    with pytest.raises(RunError):
        headlens.sweep(lens, **asked)
    new = headlens.sweep(lens, **asked, overwrite=True)
    assert new.run["conditions_reused"] == 0
    assert (new.table["baseline"] != old.table["baseline"]).all()


@pytest.mark.slow
def test_a_benchmark_of_ones_own(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    colours = ["red", "blue", "grey", "black", "white", "brown"]
    lines = [f"The {colour} {animal} barked at the moon." for colour in colours for animal in ("dog", "fox")]
    (tmp_path / "lines.txt").write_text("\n".join(lines), "utf-8")
    lens = toys.smollm2()  # a .gguf takes long to read: once for all tests
    monkeypatch.setattr(headlens, "load", {"model.gguf": lens}.__getitem__, raising=False)
    text = program("class LastWord").replace('heads="0.*"', 'heads="0.0-1"')
    space: dict = {}
    try:
        exec(text, space)
        changed_files_are_measured_anew(lens, tmp_path)
        with pytest.raises(InputError, match="runs heads of the stack decoder, and this model has encoder"):
            headlens.sweep(load(build("bert"), toy_tokenizer()), "last-word:lines.txt")
    finally:
        KINDS.pop("last-word", None)
    table = space["result"].table
    assert table["condition"].tolist() == ["head 0.0", "head 0.1"]
    assert table["n"].tolist() == [12, 12]
    assert table["baseline"].between(0, 5).all()


@pytest.mark.parametrize("mark", ["class LastToken", "class LastWord", 'load("minilm")  # or'])
def test_programs_are_formatted(mark):
    assert max(map(len, program(mark).splitlines())) <= 110
