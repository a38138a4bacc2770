"""Killed at any moment, the same command goes on and ends with the same bytes."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time

import pytest

import headlens
from headlens.ablation.sweep import sweep
from headlens.errors import RunError
from support.toytext import store_bert, toy_pairs, write_pairs

RUNS = {  # with how many files on disk each run is killed: while importance is estimated, and later
    "each": (["--mode", "mean", "--order", "gradient,shapley", "--permutations", "2"], (4, 24)),
    "cumulative": (
        ["--sweep", "cumulative", "--mode", "resample", "--order", "each", "--draws", "6", "--step", "25%"],
        (4, 16),
    ),
}
FILES = ("ablation.csv", "importance.csv")


@pytest.fixture(scope="module")
def place(tmp_path_factory):
    place = tmp_path_factory.mktemp("resume")
    store_bert(place / "model")
    write_pairs(place / "p.tsv", toy_pairs())
    return place


SERVER = """
import json, os, sys
import headlens.cli.ablate, headlens.report.viewer, headlens.report.ablation_figures
import headlens.report.artist
import headlens.ablation.sweep, transformers.models.bert.modeling_bert
from headlens.cli import main

for line in sys.stdin:
    typed, told = json.loads(line)
    child = os.fork()
    if not child:
        for stream in (1, 2):
            os.dup2(os.open(told, os.O_WRONLY | os.O_CREAT | os.O_APPEND), stream)
        main(typed)
    print(child, flush=True)
    print(os.waitpid(child, 0)[1], flush=True)
"""


@pytest.fixture(scope="module")
def start(tmp_path_factory):
    """Starts a command in a process of its own; what takes long to import is there already."""
    server = subprocess.Popen(
        [sys.executable, "-c", SERVER], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
        env={**os.environ, "OMP_NUM_THREADS": "1"},
    )  # fmt: skip
    said = tmp_path_factory.mktemp("said") / "said"

    def start(place, out, kind, meanwhile=lambda process: None):
        """What it said, and how it ended: 0, or less the number of the signal."""
        spec = f"similarity:{place / 'p.tsv'}"
        typed = ["ablate", str(place / "model"), "--benchmark", spec, "--quiet", *RUNS[kind][0]]
        said.write_text("")
        server.stdin.write(json.dumps([[*typed, "--out", str(out)], str(said)]) + "\n")
        server.stdin.flush()
        meanwhile(int(server.stdout.readline()))
        ended = os.waitstatus_to_exitcode(int(server.stdout.readline()))
        return said.read_text(), ended

    yield start
    server.kill()
    server.communicate()


def files(out):
    return {name: (out / name).read_bytes() for name in FILES}


@pytest.mark.parametrize("kind", RUNS)
@pytest.mark.slow
def test_killed_runs_go_on(place, start, tmp_path, kind):
    whole, out = tmp_path / "whole", tmp_path / "killed"
    assert start(place, whole, kind)[1] == 0
    kills = 0
    for target in RUNS[kind][1]:

        def kill(process, target=target):
            until = time.monotonic() + 60
            while len(list(out.glob("units/[!.]*"))) <= target and time.monotonic() < until:
                time.sleep(0.002)
            os.kill(process, signal.SIGKILL)

        _, ended = start(place, out, kind, kill)
        kills += ended == -signal.SIGKILL
        assert not list(out.glob("*.csv")) or ended == 0
    said, ended = start(place, out, kind)
    assert ended == 0, said
    assert kills == 2
    assert "measured before; kept." in said
    assert files(out) == files(whole)
    assert not list(out.rglob(".headlens*"))
    run = json.loads((out / "run.json").read_text())
    assert run["conditions_reused"] >= 1


def test_other_options_are_refused_by_name(place, tmp_path):
    lens, out = headlens.load(str(place / "model")), tmp_path / "run"
    spec = f"similarity:{place / 'p.tsv'}"
    settings = {"heads": "0.*", "order": ("gradient",), "out": out}
    sweep(lens, spec, **settings)
    for options, difference in (
        ({"mode": "uniform"}, 'its mode is "zero", and now it is "uniform"'),
        ({"order": ("taylor",)}, "its order is gradient, and now it is taylor"),
        ({"sweep": "layer"}, 'its sweep is "each", and now it is "layer"'),
        ({"screen": 2}, "its screen is not given, and now it is 2"),
        ({"step": 0.2}, "its step is 0.1, and now it is 0.2"),
    ):
        with pytest.raises(RunError) as caught:
            sweep(lens, spec, **{**settings, **options})
        assert str(caught.value) == (
            f"{out} holds another run: {difference}. Choose another --out, or type --overwrite to replace it."
        )
    again = sweep(lens, spec, **{**settings, "order": ("taylor",), "overwrite": True})
    assert again.importance["method"].unique().tolist() == ["each", "taylor"]
    assert not (out / "units" / "importance gradient.json").exists()


def test_a_full_disk_is_one_error_and_what_is_done_stays(place, tmp_path, monkeypatch):
    lens, out = headlens.load(str(place / "model")), tmp_path / "run"
    spec = f"similarity:{place / 'p.tsv'}"
    whole = sweep(lens, spec)
    written = []

    def full(handle, *arguments, **options):
        written.append(1)
        if len(written) > 7:  # after who has the lock, the key, and five units
            os.close(handle)
            raise OSError(28, "No space left on device")
        return plain(handle, *arguments, **options)

    plain = os.fdopen
    monkeypatch.setattr("headlens.util.files.os.fdopen", full)
    with pytest.raises(RunError, match="cannot be written: No space left on device") as caught:
        sweep(lens, spec, out=out)
    assert "Choose another place with --out, or make room." in str(caught.value)
    monkeypatch.setattr("headlens.util.files.os.fdopen", plain)
    assert len(list((out / "units").glob("*.npy"))) == 5
    result = sweep(lens, spec, out=out)
    assert result.run["conditions_reused"] == 4
    assert result.table.equals(whole.table)
