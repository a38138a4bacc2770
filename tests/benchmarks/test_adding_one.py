"""A benchmark of one's own: one class and one line in `KINDS`."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import pytest
import torch
from click.testing import CliRunner

import headlens
from headlens.benchmarks.base import BenchmarkKind
from headlens.benchmarks.metrics import Ratio
from headlens.benchmarks.registry import KINDS, open_benchmark
from headlens.cli import main
from headlens.corpus.corpus import InputFile
from headlens.errors import InputError
from support.families import build
from support.toytext import store_bert, toy_text, toy_tokenizer


@dataclass(frozen=True, eq=False)
class Lengths(BenchmarkKind):
    """How long the first state of each line is: no sense, but a number for each example."""

    name: str
    ids: list[list[int]]
    facts: Mapping[str, Any]
    stacks: tuple[str, ...] = ("encoder",)
    metrics = (Ratio("length", "length of a state", False, 0, 1),)
    kind: ClassVar[str] = "lengths"
    form: ClassVar[str] = "lengths:FILE.own"
    columns: ClassVar[tuple[tuple[str, ...], ...]] = (("line", "other"), ("row",))
    needs: ClassVar[str] = "mine"

    @classmethod
    def open(cls, target, lens, options):
        file = InputFile(Path(target))
        ids = [lens.tokenizer(line)["input_ids"] for line in file.text.split("\n")]
        facts = {"kind": cls.kind, "path": str(file), "examples": len(ids), "sha256": file.sha256}
        return cls(f"{cls.kind}:{file.path.name}", ids, facts)

    def measure(self, lens):
        found = np.ones((len(self.ids), 2))
        with torch.inference_mode():
            for number, ids in enumerate(self.ids):
                states = lens.run({"input_ids": torch.tensor([ids])}).last_hidden_state
                found[number, 0] = states[0, 0].norm()
        return found

    def take(self, examples):
        return replace(
            self, ids=[self.ids[n] for n in examples], facts={**self.facts, "examples": len(examples)}
        )


@pytest.fixture(autouse=True)
def _listed(monkeypatch):
    monkeypatch.setitem(KINDS, Lengths.kind, Lengths)


@pytest.fixture
def spec(tmp_path):
    (tmp_path / "x.own").write_text("\n".join(toy_text(5, seed) for seed in range(12)), encoding="utf-8")
    return f"lengths:{tmp_path / 'x.own'}"


def test_it_is_opened_and_swept(spec):
    lens = headlens.load(build("bert"), toy_tokenizer())
    benchmark = open_benchmark(spec, lens)
    table = headlens.sweep(lens, benchmark, heads="0.0-1").table
    assert (table["metric"].unique().tolist(), table["n"].unique().tolist()) == (["length"], [12])
    with pytest.raises(InputError, match=r"The kinds are classification, .*, translation, lengths; "):
        open_benchmark("nothing:x", lens)


def test_the_command_line_knows_it_and_so_does_its_page(spec, tmp_path):
    store_bert(tmp_path / "model")
    out = tmp_path / "run"
    typed = ["ablate", tmp_path / "model", "--benchmark", spec, "--heads", "0.0-1", "--out", out, "--quiet"]
    done = CliRunner().invoke(main, [*map(str, typed)])
    assert done.exit_code == 0, done.output
    record = json.loads((out / "run.json").read_text("utf-8"))["benchmark"]
    content = (tmp_path / "x.own").read_bytes()
    assert (record["kind"], record["sha256"]) == ("lengths", hashlib.sha256(content).hexdigest())
    assert "lengths:x.own" in (out / "report.html").read_text("utf-8")
    told = " ".join(CliRunner().invoke(main, ["ablate", "-h"]).stdout.split())
    assert (
        "similarity:FILE.tsv, translation:FILE.tsv (extra translation), lengths:FILE.own (extra mine)."
        in told
    )
    assert "text_a,text_b,score of similarity; source,reference of translation; line,other or row of" in told
