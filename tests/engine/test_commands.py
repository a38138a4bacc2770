"""What commands write with two workers on Ray, one of them killed on the way: the same bytes as without."""

from __future__ import annotations

import json
import os
import signal

import pytest
from click.testing import CliRunner

from headlens.cli import main
from headlens.engine.ray import Ray
from support.toytext import store_bert, toy_pairs, toy_text, write_pairs

pytest.importorskip("ray")


@pytest.fixture
def killed(monkeypatch):
    """Kill the worker that brings the second result."""
    results, dead, meet = [], [], Ray._meet

    def met(self, worker, anew=False):
        meet(self, worker, anew)
        results.append(worker["process"])
        if anew and results.count(worker["process"]) == 2 and not dead:
            dead.append(worker["process"])
            os.kill(dead[0], signal.SIGKILL)

    monkeypatch.setattr(Ray, "_meet", met)
    return dead


@pytest.fixture(scope="module")
def place(tmp_path_factory):
    """A small random BERT on disk, pairs and a text."""
    place = tmp_path_factory.mktemp("there")
    store_bert(place / "model")
    write_pairs(place / "pairs.tsv", toy_pairs())
    lines = [toy_text(4 + seed % 9, seed) + " ." for seed in range(120)]
    (place / "text.txt").write_text("\n\n".join(lines))
    return place


def same_with_workers(place, tables, command, *options):
    """Run a command with and without Ray, and compare its tables byte by byte."""
    typed = [command, str(place / "model"), *options, "--quiet"]
    for name, more in (("here", []), ("ray", ["--engine", "ray", "--workers", "2"])):
        done = CliRunner().invoke(main, [*typed, *more, "--out", str(place / command / name)])
        assert done.exit_code == 0, done.output
    for table in tables:
        here, there = ((place / command / name / table).read_bytes() for name in ("here", "ray"))
        assert here == there
        assert here.count(b"\n") > 8
    return json.loads((place / command / "ray" / "run.json").read_text())


def test_classify(cluster, place, killed):
    options = (
        "--corpus",
        str(place / "text.txt"),
        "--batch-size",
        "4",
        "--tags",
        "positional,broad,induction",
    )
    run = same_with_workers(place, ["scores.csv", "tags.csv"], "classify", *options)
    assert killed
    assert run["engine"]["name"] == "ray"
    assert run["engine"]["workers"] == 2
    assert run["options"]["workers"] == 2


def test_ablate(cluster, place, killed):
    options = ("--benchmark", f"similarity:{place / 'pairs.tsv'}", "--mode", "mean", "--order", "shapley")
    tables = ["ablation.csv", "importance.csv"]
    run = same_with_workers(place, tables, "ablate", *options, "--permutations", "2")
    assert killed
    assert run["engine"]["workers"] == 2
    assert run["prefix_reuse"]["reused"] == run["prefix_reuse"]["passes"] > 0
    units = {
        name: sorted(x.name for x in (place / "ablate" / name / "units").iterdir())
        for name in ("here", "ray")
    }
    assert units["here"] == units["ray"]


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--workers", "2"], "Error: --workers is for --engine ray.\n"),
        (["--ray-address", "auto"], "Error: --ray-address is for --engine ray.\n"),
        (["--engine", "ray", "--workers", "2", "--gpus-per-worker", "1"],
         "Error: 2 workers with 1 GPUs each were asked for; the Ray cluster has 0 GPUs, which is room for 0. "
         "Type fewer --workers, or other --gpus-per-worker; 0 runs them on CPUs.\n"),
    ],
)  # fmt: skip
def test_what_does_not_go_together(cluster, place, tmp_path, options, message):
    typed = ["ablate", str(place / "model"), "--benchmark", f"similarity:{place / 'pairs.tsv'}"]
    done = CliRunner().invoke(main, [*typed, *options, "--out", str(tmp_path / "out"), "--quiet"])
    assert done.exit_code in (1, 2)
    assert done.output.endswith(message)
