from __future__ import annotations

import json
from functools import wraps

import lxml.html
import pandas as pd
import pytest
from click.testing import CliRunner
from transformers import BertModel

from headlens.cli import main
from headlens.util.files import ABLATION, IMPORTANCE
from support.runpages import said
from support.toytext import store_bert, toy_pairs, write_pairs

FILES = ["ablation.csv", "examples.json", "figures", "importance.csv", "report.html", "run.json", "units"]


@pytest.fixture(scope="module")
def model(tmp_path_factory):
    """A small random BERT without language-model head, on disk."""
    place = tmp_path_factory.mktemp("model")
    store_bert(place)
    return str(place)


@pytest.fixture
def spec(tmp_path):
    return write_pairs(tmp_path / "p.tsv", toy_pairs())


def ablate(*arguments):
    return CliRunner().invoke(main, ["ablate", *map(str, arguments)])


def test_what_a_run_leaves(model, spec, tmp_path):
    out = tmp_path / "run"
    done = ablate(model, "--benchmark", spec, "--out", out, "--quiet")
    assert done.exit_code == 0, done.output
    assert done.stderr == ""
    assert sorted(path.name for path in out.iterdir()) == FILES
    table = pd.read_csv(out / "ablation.csv", dtype={"condition": str})
    assert tuple(table.columns) == tuple(ABLATION)
    assert table["condition"].tolist() == [
        f"head {i}.{j}" for i in range(2) for j in range(4) for _ in range(2)
    ]
    importance = pd.read_csv(out / "importance.csv")
    assert tuple(importance.columns) == tuple(IMPORTANCE)
    assert sorted(importance["rank"]) == list(range(1, 9))
    run = json.loads((out / "run.json").read_text())
    assert run["command"] == "ablate"
    assert run["benchmark"]["examples"] == 24
    assert run["benchmark"]["path"] == spec.removeprefix("similarity:")
    assert run["bundled_sample"] is False
    assert run["options"]["mode"] == "zero"
    assert (out / "figures" / "heads.png").read_bytes().startswith(b"\x89PNG")


def test_smaller_batches_are_told_of_in_one_line(model, spec, tmp_path, monkeypatch):
    own, tried = BertModel.forward, []

    @wraps(own)
    def little_memory(self, input_ids=None, **others):
        tried.append(len(input_ids))
        if len(input_ids) > 4:
            raise RuntimeError("DefaultCPUAllocator: can't allocate memory")
        return own(self, input_ids=input_ids, **others)

    whole = ablate(model, "--benchmark", spec, "--out", tmp_path / "whole", "--heads", "0.1", "--quiet")
    monkeypatch.setattr(BertModel, "forward", little_memory)
    done = ablate(model, "--benchmark", spec, "--out", tmp_path / "run", "--heads", "0.1", "--quiet")
    assert whole.exit_code == done.exit_code == 0, done.output
    assert max(tried) > 4
    assert done.stderr == "Warning: Memory ran out; going on with smaller batches.\n"
    tables = [pd.read_csv(tmp_path / name / "ablation.csv") for name in ("whole", "run")]
    pd.testing.assert_frame_equal(*tables, rtol=1e-5, atol=1e-6)


def test_what_a_run_says(model, spec, tmp_path):
    out = tmp_path / "run"
    lines = ablate(model, "--benchmark", spec, "--out", out, "--quiet").stdout.splitlines()
    importance = pd.read_csv(out / "importance.csv").sort_values("rank")
    table = pd.read_csv(out / "ablation.csv", dtype={"condition": str})
    rows = table[table["metric"] == "spearman"].set_index("condition")
    assert lines[0].startswith(f"With all heads: spearman {rows['baseline'].iloc[0]:.4f}, pearson ")
    assert lines[0].endswith(
        "on similarity:p.tsv (24 examples). Higher spearman is better. A head that is taken out puts out "
        "zeros."
    )
    names = [f"head {layer}.{head}" for layer, head in importance[["layer", "head"]].to_numpy()[:5]]
    assert [line[:14].strip() for line in lines[3:8]] == names
    top = rows.loc[names[0]]
    assert lines[3].split()[2:4] == [f"{top['value']:.4f}", f"{top['delta']:+.4f}"]
    effect = int((rows["q_value"] < 0.05).sum())
    worse = int(((rows["q_value"] < 0.05) & (rows["delta"] < 0)).sum())
    assert lines[9].startswith(f"Taken out alone, {worse or 'none'} of 8 heads matter")
    assert f", and {effect - worse or 'none'} harm" in lines[9]
    assert (top["delta"] < 0) == lines[10].startswith(f"The largest loss is that without {names[0]}: ")
    rest = f"{8 - effect} {'other ' * bool(effect)}head{'s' * (effect != 7)}"
    assert lines[-3].startswith(f"Without {rest}, each alone, nothing significant changes. ")
    assert lines[-2].startswith("Effects are claimed where q < 0.05. With 24 examples")
    assert (
        lines[-1]
        == f"Written to {out}: report.html, ablation.csv, importance.csv, figures/heads.png, run.json"
    )
    assert said(lxml.html.parse(out / "report.html")) == [lines[0], *lines[9:-2]]


def test_the_sample_is_named_and_the_same_command_goes_on(model, tmp_path):
    out = tmp_path / "run"
    done = ablate(model, "--heads", "0.0-1", "--out", out)
    assert done.exit_code == 0, done.output
    assert "No --benchmark given: measuring on the bundled sample, similarity:pairs.tsv." in done.stderr
    assert "ablate: 100%" in done.stderr
    first = (out / "ablation.csv").read_bytes()
    assert json.loads((out / "run.json").read_text())["bundled_sample"] is True
    again = ablate(model, "--heads", "0.0-1", "--out", out, "--quiet")
    assert again.exit_code == 0, again.output
    assert "2 of 2 ablations were measured before; kept." in again.stderr
    assert json.loads((out / "run.json").read_text())["conditions_reused"] == 2
    assert (out / "ablation.csv").read_bytes() == first


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (
            ["--sweep", "some"],
            "There is no sweep 'some'. Choose one of: each, cumulative, only, layer, tags, set.",
        ),
        (
            ["--mode", "some"],
            "There is no ablation mode 'some'. Choose one of: zero, mean, resample, uniform.",
        ),
        (["--benchmark", "some:x"], "There is no benchmark 'some'. The kinds are "),
        (["--heads", "7.0"], "There is no head 7.0 in this model."),
        (["--columns", "a,b"], "--columns: expected 3 names, or 3 numbers from 0"),
        (["--max-length", "100"], "Inputs of 100 tokens are asked for, but BertModel takes at most 60."),
    ],
)
def test_errors_are_one_line(model, spec, tmp_path, arguments, message):
    done = ablate(model, "--benchmark", spec, "--out", tmp_path / "run", "--quiet", *arguments)
    assert done.exit_code == 1
    assert done.stderr.startswith(f"Error: {message}")
    assert done.stderr.count("\n") == 1
    assert not (tmp_path / "run" / "run.json").exists()


def test_another_run_is_kept_unless_told_otherwise(model, spec, tmp_path):
    out = tmp_path / "run"
    given = [model, "--benchmark", spec, "--out", out, "--quiet"]
    assert ablate(*given, "--heads", "0.0").exit_code == 0
    done = ablate(*given, "--heads", "0.1")
    assert done.exit_code == 1
    assert done.stderr == (
        f'Error: {out} holds another run: its heads is "0.0", and now it is "0.1". Choose another --out, or '
        "type --overwrite to replace it.\n"
    )
    assert ablate(*given, "--heads", "0.1", "--overwrite").exit_code == 0


def test_language_without_a_head_for_it(model, tmp_path):
    done = ablate(model, "--benchmark", "language:x.txt", "--out", tmp_path / "run", "--quiet")
    assert done.exit_code == 1
    assert done.stderr.startswith(
        "Error: The benchmark language needs a causal or masked language model, but this is a BertModel."
    )
