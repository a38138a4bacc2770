"""The record of a run, and the directory that it goes to."""

from __future__ import annotations

import hashlib
import json
import sys
from dataclasses import dataclass
from pathlib import Path

import click
import numpy as np
import pytest
import torch
import transformers

import headlens
from headlens.errors import RunError
from headlens.lens import Lens
from headlens.model.load import Source
from headlens.runs import result as runs
from headlens.util.files import HOLDER, LOCK
from support.families import build


@dataclass(frozen=True)
class Settings:
    margin: float
    path: Path


def made(facts=(), source=None) -> dict:
    options = {"heads": ("2.8", "3.1"), "settings": Settings(0.1, Path("a/b")), "limit": None}
    lens = Lens(build("bert"), source=source, missing=["cls.bias"])
    return runs.record("classify", lens, options, dict(facts), runs.Clock.start())


def test_keys_and_values(monkeypatch):
    monkeypatch.setattr(sys, "argv", ["/bin/headlens", "classify", "my model", "--out", "x"])
    with click.Context(click.Command("headlens")):
        run = made({"corpus": {"path": "x.conllu", "sha256": "00"}, "seeds": [0]})
    assert made()["arguments"] == ""  # from Python nobody typed anything
    assert list(run) == [
        *("headlens", "command", "arguments", "model", "options", "corpus", "seeds"),
        *("versions", "wall_seconds", "peak_memory_mb"),
    ]
    assert run["headlens"] == headlens.__version__
    assert run["arguments"] == "headlens classify 'my model' --out x"
    assert run["model"] == {
        "name": "BertForMaskedLM",
        "revision": None,
        "weights_sha256": {},
        "missing_weights": ["cls.bias"],
        "architecture": "BertForMaskedLM",
        "parameters": sum(p.numel() for p in build("bert").parameters()),
        "heads": 8,
        "captured_by": "attention interface",
        "dtype": "float32",
        "device": "cpu",
        "tokenizer": None,
        "remote_code": False,
    }
    assert run["options"] == {
        "heads": ["2.8", "3.1"],
        "settings": {"margin": 0.1, "path": "a/b"},
        "limit": None,
    }
    assert run["versions"]["python"] == ".".join(map(str, sys.version_info[:3]))
    assert run["versions"]["torch"] == torch.__version__
    assert run["versions"]["transformers"] == transformers.__version__
    assert run["versions"]["numpy"] == np.__version__
    assert 0 <= run["wall_seconds"] < 60
    assert 50 < run["peak_memory_mb"] < 10**6


def test_where_the_model_came_from(tmp_path):
    (tmp_path / "model.safetensors").write_bytes(b"weights")
    options = {"revision": "abc", "trust_remote_code": True}
    model = made(source=Source("me/mine", "me/mine", options, (tmp_path / "model.safetensors",)))["model"]
    assert model["name"] == "me/mine"
    assert model["revision"] == "abc"
    assert model["remote_code"] is True
    assert model["weights_sha256"] == {"model.safetensors": hashlib.sha256(b"weights").hexdigest()}


def test_everything_becomes_plain_json(tmp_path):
    facts = {
        "numbers": np.array([1.5])[0],
        "count": np.int64(3),
        "flag": np.bool_(True),
        "nothing": [float("nan"), np.float32("inf")],
        "set": {"b", "a"},
        "keys": {1: torch.float32},
        "text": "größe \udc80",
    }
    runs.save(tmp_path, made(facts))
    content = (tmp_path / "run.json").read_bytes()
    assert content.endswith(b"}\n")
    read = json.loads(content, parse_constant=pytest.fail)
    assert {name: read[name] for name in facts} == {
        "numbers": 1.5,
        "count": 3,
        "flag": True,
        "nothing": [None, None],
        "set": ["a", "b"],
        "keys": {"1": "torch.float32"},
        "text": "größe \udc80",
    }


def test_prepare(tmp_path):
    out = tmp_path / "a" / "b"
    with runs.prepare(out, "classify") as found:
        assert found == out
        assert sorted(path.name for path in out.iterdir()) == [HOLDER, LOCK]
        (out / "scores.csv").write_text("")
    assert [path.name for path in out.iterdir()] == ["scores.csv"]
    (tmp_path / "a" / "keep.txt").write_text("mine")
    with runs.prepare(tmp_path / "a", "classify"):
        pass
    assert (tmp_path / "a" / "keep.txt").read_text() == "mine"


def test_a_directory_in_which_nothing_was_written_goes_again(tmp_path):
    (tmp_path / "mine").mkdir()
    for name in ("new", "mine"):
        with runs.prepare(tmp_path / name, "classify"):
            pass
    assert [path.name for path in tmp_path.iterdir()] == ["mine"]


def test_prepare_refuses_a_file(tmp_path):
    (tmp_path / "file").write_text("")
    for out, why in ((tmp_path / "file", "File exists"), (tmp_path / "file" / "in", "Not a directory")):
        with pytest.raises(RunError) as caught, runs.prepare(out, "classify"):
            pass
        assert str(caught.value) == f"The directory {out} cannot be made: {why}. Choose another --out."


def test_prepare_refuses_what_another_command_wrote(tmp_path):
    (tmp_path / "run.json").write_text('{"command": "ablate"}')
    with pytest.raises(RunError) as caught, runs.prepare(tmp_path, "classify"):
        pass
    assert str(caught.value) == f"{tmp_path} holds what headlens ablate wrote. Choose another --out."
    assert [path.name for path in tmp_path.iterdir()] == ["run.json"]


def test_prepare_refuses_a_place_that_cannot_be_written(tmp_path, monkeypatch):
    def refuse(*_, **__):
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr("tempfile.mkstemp", refuse)
    with pytest.raises(RunError) as caught, runs.prepare(tmp_path, "classify"):
        pass
    assert str(caught.value) == (
        f"{tmp_path / HOLDER} cannot be written: Permission denied. "
        "Choose another place with --out, or make room."
    )
    assert list(tmp_path.iterdir()) == []
