"""Datasets in experiment files: folders are seen from the file, and a change in them is noticed."""

import json

import pytest
import tomli_w
from click.testing import CliRunner

from headlens.cli import main
from headlens.cli.experiment_file import read_experiment
from headlens.cli.experiment_run import steps
from support import hubsets, planted


@pytest.fixture
def folder(tmp_path):
    planted.bert({0: planted.previous_token()}).save_pretrained(tmp_path / "model")
    planted.tokenizer().save_pretrained(tmp_path / "model")
    rows = hubsets.treebank_rows(planted.corpus_text(n_documents=2))
    for split in ("train", "test"):
        hubsets.write_jsonl(rows, tmp_path / "set" / f"{split}.jsonl")
    told = {
        "model": {"name": "model"},
        "corpus": {"files": ["hub:set::train"]},
        "classify": {"tags": ["positional"], "max-sentences": 9},
        "similar": {"text": ["hub:set", "hub:owner/name:en"], "columns": "tokens"},
    }
    (tmp_path / "x.toml").write_text(tomli_w.dumps(told))
    return tmp_path


def test_a_folder_is_seen_from_the_file(folder):
    classify, similar = (
        step.typed for step in steps(read_experiment(folder / "x.toml", main), folder / "out")
    )
    assert classify[2:4] == ("--corpus", f"hub:{folder / 'set'}::train")
    assert similar[2:6] == ("--text", f"hub:{folder / 'set'}", "--text", "hub:owner/name:en")


def test_what_changed_is_run_again(folder):
    told = (
        (folder / "x.toml")
        .read_text()
        .replace(', "hub:owner/name:en"', "")
        .replace('"hub:owner/name:en"', "")
    )
    (folder / "x.toml").write_text(told.replace("[similar]", "[ignored]").split("[ignored]")[0])
    command = ["run", str(folder / "x.toml"), "--out", str(folder / "out"), "--quiet"]
    done = CliRunner().invoke(main, command)
    assert done.exit_code == 0, done.output
    run = json.loads((folder / "out" / "classify" / "run.json").read_text())
    assert run["corpus"]["files"] == ["hub:set::train"]
    assert run["corpus"]["sentences"] == 9
    assert run["options"]["max_sentences"] == 9
    assert "Finished before" in CliRunner().invoke(main, command).output
    hubsets.write_jsonl(
        hubsets.treebank_rows(planted.corpus_text(1, n_documents=2)), folder / "set" / "train.jsonl"
    )
    done = CliRunner().invoke(main, command)
    assert "Finished before" not in done.output
    changed = json.loads((folder / "out" / "classify" / "run.json").read_text())
    assert changed["corpus"]["sha256"] != run["corpus"]["sha256"]


def test_it_is_written_as_it_was_typed(folder):
    command = [
        "classify",
        folder / "model",
        "--corpus",
        f"hub:{folder / 'set'}::test",
        "--tags",
        "positional",
    ]
    command += [
        "--max-sentences",
        "3",
        "--out",
        folder / "out",
        "--save-as",
        folder / "saved.toml",
        "--quiet",
    ]
    done = CliRunner().invoke(main, list(map(str, command)))
    assert done.exit_code == 0, done.output
    (step,) = steps(read_experiment(folder / "saved.toml", main), folder / "again")
    assert step.typed[2:8] == (
        "--corpus", f"hub:{folder / 'set'}::test", "--max-sentences", "3", "--tags", "positional",
    )  # fmt: skip
