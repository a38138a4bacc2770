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
from families import build
from headlens.ablation.sweep import sweep
from headlens.errors import RunError
from toytext import toy_pairs, toy_tokenizer, write_pairs

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
    build("bert").bert.save_pretrained(place / "model")
    toy_tokenizer().save_pretrained(place / "model")
    write_pairs(place / "p.tsv", toy_pairs())
    return place


def command(place, out, kind):
    spec = f"similarity:{place / 'p.tsv'}"
    base = [sys.executable, "-m", "headlens", "ablate", str(place / "model"), "--benchmark", spec, "--quiet"]
    return [*base, *RUNS[kind][0], "--out", str(out)]


def files(out):
    return {name: (out / name).read_bytes() for name in FILES}


@pytest.mark.parametrize("kind", RUNS)
def test_killed_runs_go_on(place, tmp_path, kind):
    whole, out = tmp_path / "whole", tmp_path / "killed"
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    subprocess.run(command(place, whole, kind), check=True, env=environment, capture_output=True)
    kills = 0
    for target in RUNS[kind][1]:
        running = subprocess.Popen(
            command(place, out, kind), env=environment, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
        )
        while running.poll() is None:
            if len(list(out.glob("units/[!.]*"))) > target:
                running.send_signal(signal.SIGKILL)
                running.wait()
                kills += 1
            time.sleep(0.002)
        assert not list(out.glob("*.csv")) or running.returncode == 0
    done = subprocess.run(
        command(place, out, kind), check=True, env=environment, capture_output=True, text=True
    )
    assert kills >= 1
    assert "measured before; kept." in done.stderr
    assert files(out) == files(whole)
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
        if len(written) > 6:
            os.close(handle)
            raise OSError(28, "No space left on device")
        return plain(handle, *arguments, **options)

    plain = os.fdopen
    monkeypatch.setattr("headlens.tables.os.fdopen", full)
    with pytest.raises(RunError, match="cannot be written: No space left on device") as caught:
        sweep(lens, spec, out=out)
    assert "Choose another place with --out, or make room." in str(caught.value)
    monkeypatch.setattr("headlens.tables.os.fdopen", plain)
    assert len(list((out / "units").glob("*.npy"))) == 5
    result = sweep(lens, spec, out=out)
    assert result.run["conditions_reused"] == 4
    assert result.table.equals(whole.table)
