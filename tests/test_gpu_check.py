"""The check of a GPU in its small form on the CPU: it runs, writes its table, and fails where it must."""

import sys
from pathlib import Path

import pandas as pd
import pytest
from click.testing import CliRunner

from support import real

EXPERIMENTS = Path(__file__).parents[1] / "experiments"


@pytest.fixture
def gpu_check(monkeypatch):
    real.need_minilm()
    monkeypatch.syspath_prepend(str(EXPERIMENTS))
    import gpu_check

    yield gpu_check
    for name in list(sys.modules):
        if name.partition(".")[0] in ("gpu_check", "parity", "measure"):
            del sys.modules[name]


@pytest.mark.slow
def test_the_small_form(gpu_check, tmp_path):
    out = tmp_path / "gpu.csv"
    done = CliRunner().invoke(gpu_check.main, ["--device", "cpu", "--small", "--out", str(out)])
    assert done.exit_code == 0, done.output
    table = pd.read_csv(out)
    assert list(table) == ["part", "what", "value", "of"]
    assert {part.split(":")[0] for part in table["part"]} == {"device", "parity", "capture", "ablation"}
    bounded = table[table["of"].str.startswith("at most", na=False)]
    assert len(bounded) == 2 * 2 * 5 + 2
    float32 = bounded[bounded["part"].str.endswith("float32")]
    assert (float32["value"] == 0).all()  # the CPU against itself
    half = bounded[bounded["part"].str.endswith("bfloat16") & bounded["what"].str.startswith("off the CPU")]
    assert (half["value"] > 0).all()


def test_a_check_that_fails(gpu_check, tmp_path, monkeypatch):
    found = [gpu_check.check("parity: x", "off the CPU: states", value, 0.05) for value in (0.05, 0.0601)]
    monkeypatch.setattr(gpu_check, "run", lambda device, sizes: found)
    done = CliRunner().invoke(gpu_check.main, ["--device", "cpu", "--out", str(tmp_path / "x.csv")])
    assert done.exit_code == 1
    assert done.stderr == "Failed: parity: x: off the CPU: states is 0.0601, expected at most 0.05.\n"
    assert not gpu_check.check("parity: x", "a number", float("nan"), 1)[1]


def test_a_device_that_is_not_there(gpu_check, tmp_path):
    done = CliRunner().invoke(
        gpu_check.main, ["--device", "cuda:77", "--small", "--out", str(tmp_path / "x.csv")]
    )
    assert done.exit_code == 1
    assert done.stderr == "Error: This machine has no device 'cuda:77'. Type --device cpu, or leave it out.\n"
