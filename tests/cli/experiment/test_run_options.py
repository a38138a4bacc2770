"""What `headlens run` can be told besides its file, and files that other commands write of themselves."""

import json
import shutil

import lxml.html
import pandas as pd
import pytest
from click.testing import CliRunner

from headlens.cli import main
from support import runpages
from support.plantedrun import FILE, run, write


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return write(tmp_path_factory.mktemp("options"))


def test_a_report_of_some_runs_on_another_model(folder, tmp_path):
    """The page of [report] has the runs that it names, and --model stands in for the file's model."""
    shutil.copytree(folder / "model", tmp_path / "other")
    text = FILE.replace("seeds = [0, 1]", "").replace('name = "model"', 'name = "nowhere"\nrevision = "x"')
    text += '[report]\nout = "page.html"\nruns = ["ablate"]\n'
    file = tmp_path / "mine.toml"
    file.write_text(text.replace("value = 2.0", 'value = 2.0\nbound = "above"'))
    for name in ("text.conllu", "lines.txt"):
        shutil.copy(folder / name, tmp_path)
    result = run(file, "--model", tmp_path / "other", "--quiet", "--out", tmp_path / "out")
    assert result.exit_code == 0, result.output
    assert f"Wrote {tmp_path / 'out' / 'page.html'}, " in result.stdout
    said = [line.split() for line in result.stdout.splitlines()]
    assert f"- above 2 what was not measured ({tmp_path / 'other'}; nobody)".split() in said
    assert not (tmp_path / "out" / "report.html").exists()
    whole = lxml.html.fromstring((tmp_path / "out" / "page.html").read_text())
    titles = [title.text_content() for title in whole.xpath("//section[starts-with(@id, 'run-')]/h2")]
    assert [title.rpartition("(")[2] for title in titles] == ["out)", "ablate)"]
    assert runpages.cells(whole, "Measured and published")[1][3:7] == ["", "above", "2", ""]
    table = pd.read_csv(tmp_path / "out" / "published.csv", keep_default_na=False)
    assert table["model"].tolist() == [str(tmp_path / "other")] * 2
    assert table["bound"].tolist() == ["", "above"]
    mine = pd.read_csv(tmp_path / "out/classify/scores.csv").set_index(["layer", "head", "measure"])
    assert mine.loc[(0, 0, "argmax@-1"), "score"] == 1


def test_another_model_has_a_place_of_its_own(folder):
    typed = run(folder / "x.toml", "--dry-run", "--model", "a/small", "--model", "minilm").stdout
    assert typed.count("runs/x-small-minilm/small/seed-0/") == 4  # similar reads what classify wrote
    assert typed.count("runs/x-small-minilm/minilm/seed-1/") == 4


def test_save_as_writes_a_file_that_does_the_same(folder, tmp_path):
    file = tmp_path / "mine.toml"
    typed = [
        "classify",
        str(folder / "model"),
        "--corpus",
        str(folder / "text.conllu"),
        "--tags",
        "delimiter",
    ]
    typed += ["--seed", "3", "--device", "cpu", "--quiet"]
    result = CliRunner().invoke(main, [*typed, "--out", str(tmp_path / "a" / "mine"), "--save-as", str(file)])
    assert result.exit_code == 0, result.output
    assert "save_as" not in json.loads((tmp_path / "a" / "mine" / "run.json").read_text())["options"]
    assert run(file, "--out", tmp_path / "b", "--quiet").exit_code == 0
    first, second = (tmp_path / place / "mine" / "scores.csv" for place in "ab")
    assert first.read_bytes() == second.read_bytes()
    text = file.read_text()
    assert "seeds = [" in text
    assert 'device = "cpu"' in text
    assert "quiet" not in text


def test_save_as_of_a_picture(folder, tmp_path):
    file, out = tmp_path / "mine.toml", tmp_path / "a.csv"
    typed = ["view", str(folder / "model"), 'dep0 "top0" .', "--heads", "0.*", "--words", "--out", str(out)]
    result = CliRunner().invoke(main, [*typed, "--save-as", str(file)])
    assert result.exit_code == 0, result.output
    assert run(file, "--out", tmp_path / "b").exit_code == 0
    assert (tmp_path / "b" / "a.csv").read_bytes() == out.read_bytes()


def test_save_as_writes_places_as_they_are_seen_from_the_file(folder, tmp_path, monkeypatch):
    """The same run from anywhere, and never another file that has the same name beside it."""
    monkeypatch.chdir(folder)
    place = tmp_path / "there"
    (place / "text.conllu").mkdir(parents=True)
    typed = ["classify", "model", "--corpus", "text.conllu", "--tags", "delimiter", "--quiet"]
    file = place / "mine.toml"
    result = CliRunner().invoke(main, [*typed, "--out", str(tmp_path / "a"), "--save-as", str(file)])
    assert result.exit_code == 0, result.output
    monkeypatch.chdir(tmp_path)
    assert run(file, "--out", tmp_path / "b", "--quiet").exit_code == 0
    first, second = (tmp_path / name / "scores.csv" for name in ("a", "b/a"))
    assert first.read_bytes() == second.read_bytes()


def test_a_text_that_begins_with_a_dash(folder, tmp_path):
    file = tmp_path / "dash.toml"
    file.write_text(f'[model]\nname = "{folder / "model"}"\n[view]\ntext = "-x dep0"\nout = "a.csv"\n')
    assert run(file, "--out", tmp_path / "a", "--quiet").exit_code == 0
    assert run(file, "--out", tmp_path / "b").exit_code == 0
    assert (tmp_path / "a" / "a.csv").read_bytes() == (tmp_path / "b" / "a.csv").read_bytes()
