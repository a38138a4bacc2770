"""Nothing rests on the clock of the wall, which can be set back, nor on the times of files."""

from __future__ import annotations

import os
import time

import pytest

import headlens
from headlens.ablation.sweep import sweep
from headlens.runs import result as runs
from headlens.util.files import locked
from support.toytext import store_bert, toy_pairs, write_pairs


@pytest.fixture
def backwards(monkeypatch):
    """Every look at the clock finds it an hour earlier."""
    times = iter(range(10**9, 0, -3600))
    monkeypatch.setattr(time, "time", lambda: float(next(times)))
    monkeypatch.setattr(time, "time_ns", lambda: next(times) * 10**9)


def test_wall_time_is_not_negative(backwards):
    clock = runs.Clock.start()
    assert 0 <= clock.seconds < 60


def test_a_sweep_and_its_going_on(tmp_path, backwards):
    store_bert(tmp_path / "model")
    lens, spec = headlens.load(str(tmp_path / "model")), f"similarity:{tmp_path / 'p.tsv'}"
    write_pairs(tmp_path / "p.tsv", toy_pairs())
    out = tmp_path / "run"
    first = sweep(lens, spec, heads="0.*", out=out, progress=True)
    for number, path in enumerate(sorted((out / "units").iterdir())):
        os.utime(path, (0, number))  # the key last of all, and all of them long ago
    os.utime(out / "units" / "key.json", (2**32, 2**32))
    again = sweep(lens, spec, heads="0.*", out=out, progress=True)
    assert again.run["conditions_reused"] == 4
    assert again.table.equals(first.table)


def test_a_lock_of_the_future_keeps_nobody_out(tmp_path):
    with locked(tmp_path / "run") as out:
        os.utime(out / ".headlens.lock", (2**32, 2**32))
        (out / "x").write_text("")
    (out / ".headlens.lock").write_text("")
    os.utime(out / ".headlens.lock", (2**32, 2**32))
    with locked(out):
        pass
    assert [path.name for path in out.iterdir()] == ["x"]
