"""The measurements of what headlens costs, in a tiny form: they run, and compare what gives the same."""

from __future__ import annotations

import importlib
import math
import sys
from pathlib import Path

import pandas as pd
import pytest
from click.testing import CliRunner

from support import real

PARTS = ("capture", "scoring", "classify", "view", "ablation", "screening", "similar", "long", "memory")


@pytest.fixture
def performance(monkeypatch):
    """The program, without the tools that may be installed beside it."""
    monkeypatch.syspath_prepend(str(Path(__file__).parents[1] / "experiments"))
    module = importlib.import_module("performance")
    from measure import peers

    monkeypatch.setattr(peers, "has", lambda tool: False)
    yield module
    for name in list(sys.modules):
        if name.partition(".")[0] in ("performance", "measure"):
            del sys.modules[name]


@pytest.mark.parametrize("part", PARTS)
@pytest.mark.slow
def test_every_part_runs(part, performance, tmp_path):
    assert tuple(performance.PARTS) == PARTS
    rows = performance.PARTS[part](performance.Setting(tmp_path, real.need_minilm(), rounds=1, small=True))
    table = pd.DataFrame(rows)
    assert len(table)
    assert not table.duplicated(["part", "what", "of"]).any()
    rank = table["of"] == "Spearman"
    assert all(math.isfinite(value) and value >= 0 for value in table.loc[~rank, "value"])
    differences = table.loc[table["what"].str.startswith("largest difference"), "value"]
    assert (differences < 1e-6).all()  # loops and sweeps that are compared give the same
    assert len(differences) == {"ablation": 2, "similar": 1}.get(part, 0)


def test_the_table_and_the_figure(performance, tmp_path):
    out = tmp_path / "made" / "table.csv"
    arguments = ["--model", real.need_minilm(), "--small", "--rounds", "1", "--part", "ablation"]
    done = CliRunner().invoke(performance.main, [*arguments, "--out", str(out)])
    assert done.exit_code == 0, done.output
    table = pd.read_csv(out)
    assert list(table.columns) == ["part", "what", "value", "of"]
    drawn = out.with_suffix(".svg").read_text(encoding="utf-8")
    assert drawn.count("a sweep / the plain loop") == 2
    assert "a sweep without reuse / the plain loop" in drawn
    assert "largest difference" not in drawn  # a number of nats is no ratio


def test_a_tool_that_is_not_installed_is_left_out_and_said(performance, monkeypatch, capsys):
    from measure import peers

    monkeypatch.undo()
    monkeypatch.setattr(peers.importlib.util, "find_spec", lambda name: None)
    assert not peers.has("bertviz")
    assert capsys.readouterr().err == "BertViz is not installed: its rows are left out.\n"


def test_the_table_that_is_kept_is_of_these_parts(performance):
    kept = pd.read_csv(Path(__file__).parents[1] / "reports" / "performance.csv")
    kinds = set(kept["part"].str.partition(":")[0])
    assert kinds == {*PARTS, "start"}
