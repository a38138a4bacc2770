"""The command `headlens prune`."""

import json
import re

import pytest
from click.testing import CliRunner

from headlens.cli import main
from support import real, toys


@pytest.fixture(scope="module")
def model(tmp_path_factory):
    place = tmp_path_factory.mktemp("models") / "llama"
    lens = toys.family("llama")
    lens.model.save_pretrained(place)
    lens.tokenizer.save_pretrained(place)
    return str(place)


def prune(*arguments):
    return CliRunner().invoke(main, ["prune", *map(str, arguments)])


def test_costs_are_told_apart(model, tmp_path):
    masked = prune(model, "--heads", "0.1,1.2-3", "--form", "masked", "--out", tmp_path / "masked")
    assert masked.exit_code == 0, masked.output
    lines = masked.stdout.splitlines()
    assert lines[0].split() == ["before", "after", "after", "/", "before"]
    assert lines[1].split() == ["heads", "that", "work", "8", "5", "0.625"]
    assert re.fullmatch(r"parameters +([\d,]+) +\1 +1\.000", lines[2])
    assert re.fullmatch(r"weights on disk, bytes( +[\d,]+){2} +1\.000", lines[3])
    assert re.fullmatch(r"attention multiply-adds, 64 tokens +([\d,]+) +\1 +1\.000", lines[4])
    assert re.fullmatch(r"tokens per second, measured on cpu( +[\d,]+){2} +[\d.]+", lines[5])
    assert "Removed 3 of 8 heads: 0.1,1.2-3." in lines
    assert "is neither smaller nor faster" in masked.stdout
    cut = prune(model, "--heads", "*.2-3", "--out", tmp_path / "cut")
    assert cut.exit_code == 0, cut.output
    assert cut.stdout.splitlines()[1].split()[-3:] == ["8", "4", "0.500"]
    assert cut.stdout.splitlines()[4].endswith(" 0.500")
    assert "plain `transformers` loads it" in cut.stdout


def test_the_run_is_on_record(model, tmp_path):
    out = tmp_path / "x"
    assert prune(model, "--heads", "*.2-3", "--out", out).exit_code == 0
    run = json.loads((out / "run.json").read_text())
    assert (run["command"], run["form"], run["silent"]) == ("prune", "cut", 0)
    assert run["removed"] == ["decoder.0.2", "decoder.0.3", "decoder.1.2", "decoder.1.3"]
    assert run["before"]["heads"] - run["after"]["heads"] == 4
    assert run["largest_difference"] < 1e-5
    again = prune(model, "--heads", "0.1", "--form", "masked", "--out", out)  # may be made anew
    assert again.exit_code == 0


def test_silent_heads_are_told(model, tmp_path):
    result = prune(model, "--heads", "0.0-1,1.0-2", "--form", "compact", "--out", tmp_path / "x")
    assert result.exit_code == 0, result.output
    assert "1 of them could not be cut and is silent: its rows of W_O are 0." in result.stdout


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ([], "either --heads SEL, or --from RUN with --keep SHARE"),
        (["--heads", "0.1", "--from", "x", "--keep", "0.5"], "either --heads SEL, or --from RUN"),
        (["--from", "x"], "--from RUN and --keep SHARE go together"),
        (["--heads", "0.1", "--keep", "0.5"], "--from RUN and --keep SHARE go together"),
    ],
)
def test_which_heads_go_is_said_once(arguments, message, tmp_path):
    result = prune("minilm", *arguments, "--out", tmp_path / "x")
    assert result.exit_code == 2
    assert message in " ".join(result.output.split())
    assert not (tmp_path / "x").exists()


def test_errors_are_one_line_and_leave_nothing(model, tmp_path):
    result = prune(model, "--heads", "9.1", "--out", tmp_path / "x")
    assert result.exit_code == 1
    assert result.output.startswith("Error: There is no head 9.1 in this model.")
    result = prune(model, "--heads", "0.1", "--form", "cut", "--out", tmp_path / "x")
    assert result.exit_code == 1
    assert "Remove whole groups, or type --form masked." in result.output
    assert not (tmp_path / "x").exists()


def test_minilm_from_a_run(tmp_path):
    real.need_minilm()
    run = tmp_path / "run"
    run.mkdir()
    rows = [f"encoder,{n // 12},{n % 12},each,{n},{72 - n}" for n in range(72)]
    (run / "importance.csv").write_text("\n".join(["stack,layer,head,method,importance,rank", *rows]) + "\n")
    out = tmp_path / "small"
    result = prune("minilm", "--from", run, "--keep", 0.75, "--form", "compact", "--out", out)
    assert result.exit_code == 0, result.output
    assert "Removed 18 of 72 heads: 0.0-11,1.0-5." in result.stdout
    described = CliRunner().invoke(main, ["describe", str(out)])
    assert described.exit_code == 0, described.output
    assert "55 heads" in described.stdout  # 17 are gone, one stays silent since layer 0 cannot be empty
    viewed = CliRunner().invoke(main, ["view", str(out), "The dog.", "--out", str(tmp_path / "a.csv")])
    assert viewed.exit_code == 0, viewed.output
