"""`headlens run`: the commands of a file, once each, the same bytes twice, and what was published beside."""

import json
import os

import lxml.html
import pandas as pd
import pytest

from support import runpages
from support.plantedrun import FILE, run, write


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return write(tmp_path_factory.mktemp("experiment"))


@pytest.fixture(scope="module")
def done(folder):
    result = run(folder / "x.toml", "--out", folder / "out", "--quiet")
    assert result.exit_code == 0, result.output
    return result


def tables(place):
    return {str(path.relative_to(place)): path.read_bytes() for path in sorted(place.rglob("*.csv"))}


def test_measured_and_published_side_by_side(folder, done):
    table = pd.read_csv(folder / "out" / "published.csv")
    assert table["seed"].tolist() == [0, 0, 1, 1]
    assert table["measured"].tolist()[::2] == [1.0, 1.0]
    assert table["measured"].isna().tolist() == [False, True] * 2
    assert table["difference"].tolist()[0] == 0
    page = runpages.page_of(folder / "out")
    text = " ".join(page.text_content().split())
    assert "Planted heads" in text
    assert "6 commands on 1 model with 2 seeds." in text
    assert "the planted head: 1 measured, 1 published (by hand; model)." in text
    assert "2 published figures could not be measured here" in text
    assert "A made-up model." in text
    assert runpages.cells(page, "Measured and published")[0][3:6] == ["1", "1", "+0.0000"]
    whole = lxml.html.fromstring((folder / "out" / "report.html").read_text())
    titles = [title.text_content() for title in whole.xpath("//h2")][:5]
    assert titles[0] == "Planted heads (out)"
    assert [title.rpartition("(")[2] for title in titles[1:]] == [
        "classify)",
        "similar)",
        "ablate)",
        "classify)",
    ]
    told = json.loads((folder / "out" / "run.json").read_text())
    assert (told["command"], len(told["steps"])) == ("run", 6)


@pytest.mark.slow
def test_twice_the_same_bytes(folder, done):
    again = run(folder / "x.toml", "--out", folder / "again", "--quiet")
    assert again.exit_code == 0, again.output
    first, second = tables(folder / "out"), tables(folder / "again")
    assert first == second
    assert len(first) == 2 * (2 + 2 + 2) + 1


def test_what_is_finished_is_not_run_again(folder, done):
    before = {path: path.stat().st_mtime_ns for path in (folder / "out").rglob("scores.csv")}
    again = run(folder / "x.toml", "--out", folder / "out", "--quiet")
    assert again.stdout.count("Finished before; nothing has changed since.") == 6
    assert before == {path: path.stat().st_mtime_ns for path in (folder / "out").rglob("scores.csv")}


@pytest.mark.slow
def test_an_interrupted_run_goes_on(folder, done, monkeypatch):
    from headlens.ablation.measure import Units

    kept, count = Units.save, []

    def save(self, name, values):
        count.append(name)
        if len(count) == 4:
            raise KeyboardInterrupt
        kept(self, name, values)

    monkeypatch.setattr(Units, "save", save)
    stopped = run(folder / "x.toml", "--out", folder / "stopped", "--quiet")
    assert stopped.exit_code != 0
    monkeypatch.setattr(Units, "save", kept)
    result = run(folder / "x.toml", "--out", folder / "stopped", "--quiet")
    assert result.exit_code == 0, result.output
    assert result.stdout.count("Finished before") == 2
    assert tables(folder / "out") == tables(folder / "stopped")
    assert json.loads((folder / "stopped/seed-0/ablate/run.json").read_text())["conditions_reused"] == 2


@pytest.mark.slow
def test_a_changed_section_runs_again_with_all_that_reads_it(folder, done):
    changed, text = folder / "changed.toml", FILE.replace("seeds = [0, 1]", "")
    changed.write_text(text.replace('["delimiter", "positional"]', '["delimiter"]'))
    result = run(changed, "--out", folder / "out2", "--quiet")
    assert result.exit_code == 0, result.output
    changed.write_text(text.replace('heads = "0.*"', 'heads = "0.0-1"'))
    result = run(changed, "--out", folder / "out2", "--quiet")
    assert result.exit_code == 0, result.output
    assert result.stdout.count("Finished before") == 0
    assert len(pd.read_csv(folder / "out2/ablate/ablation.csv")["condition"].unique()) == 2


def test_a_changed_section_that_was_interrupted_goes_on(folder, done, monkeypatch):
    from headlens.ablation.measure import Units

    file, out = folder / "halted.toml", folder / "halted"
    text = FILE.replace("seeds = [0, 1]", "").replace('[similar]\ntags = "classify"', "")
    file.write_text(text.replace('heads = "0.*"', 'heads = "1.*"'))
    assert run(file, "--out", out, "--quiet").exit_code == 0
    file.write_text(text)
    kept, count = Units.save, []

    def save(self, name, values):
        count.append(name)
        if len(count) == 4:
            raise KeyboardInterrupt
        kept(self, name, values)

    monkeypatch.setattr(Units, "save", save)
    assert run(file, "--out", out, "--quiet").exit_code != 0
    monkeypatch.setattr(Units, "save", kept)
    assert run(file, "--out", out, "--quiet").exit_code == 0
    assert json.loads((out / "ablate" / "run.json").read_text())["conditions_reused"] == 2
    assert tables(out / "ablate") == tables(folder / "out" / "seed-0" / "ablate")


def test_dry_run_prints_the_commands(folder, tmp_path):
    result = run(folder / "x.toml", "--dry-run", "--out", tmp_path / "nothing")
    assert result.exit_code == 0
    assert len(result.stdout.splitlines()) == 6
    assert result.stdout.startswith(f"headlens classify {folder / 'model'} --corpus {folder / 'text.conllu'}")
    assert not (tmp_path / "nothing").exists()


def test_bad_values_are_refused_before_anything_runs(folder, tmp_path):
    bad = folder / "bad.toml"
    bad.write_text(FILE.replace('heads = "0.*"', 'draws = "many"'))
    result = run(bad, "--out", tmp_path / "nothing")
    assert result.exit_code == 1
    assert result.output.startswith("Error: [ablate] of bad.toml: Invalid value for '--draws'")
    assert not (tmp_path / "nothing").exists()


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ('heads = "0.*"', 'device = "gpu"', "[ablate] of bad.toml: This machine has no device 'gpu'."),
        ('["delimiter", "positional"]', "5", "[classify] of bad.toml: There is no tag '5'."),
        ("[classify]", '[classify]\nmargin = ["x=1"]', "[classify] of bad.toml: There is no margin 'x'."),
        (
            'tags = "classify"',
            'tags = "clasify"',
            "[similar] of bad.toml: there is no file or directory 'clasify', and no section of that name.",
        ),
    ],
)
def test_what_can_be_known_is_told_before_anything_runs(folder, tmp_path, old, new, message):
    bad = folder / "bad.toml"
    assert old in FILE
    bad.write_text(FILE.replace(old, new))
    result = run(bad, "--out", tmp_path / "nothing")
    assert result.exit_code == 1
    assert result.output.startswith(f"Error: {message}")
    assert not (tmp_path / "nothing").exists()


@pytest.fixture
def small(folder):
    """One section of one model, in a file of its own that tests may change."""
    text = FILE.replace("seeds = [0, 1]", "").replace('[similar]\ntags = "classify"', "")
    file = folder / "small.toml"
    file.write_text(text)
    return file, text


def test_a_changed_section_that_was_killed_before_it_began_goes_on(folder, small, tmp_path, monkeypatch):
    """What it replaces is still there when it is typed again."""
    file, text = small
    file.write_text(text.replace('heads = "0.*"', 'heads = "1.*"'))
    assert run(file, "--out", tmp_path / "o", "--quiet").exit_code == 0
    file.write_text(text)

    def killed(*_, **__):
        raise KeyboardInterrupt

    for _ in range(2):
        with monkeypatch.context() as patch:
            patch.setattr("headlens.model.load.load_tokenizer", killed)
            assert run(file, "--out", tmp_path / "o", "--quiet").exit_code == 130
    again = run(file, "--out", tmp_path / "o", "--quiet")
    assert again.exit_code == 0, again.output
    names = pd.read_csv(tmp_path / "o" / "ablate" / "ablation.csv")["condition"]
    assert set(names.str[:7]) == {"head 0."}


def test_damaged_results_are_made_again_and_touched_ones_are_not(folder, small, tmp_path, monkeypatch):
    file, _ = small
    out = tmp_path / "o"
    assert run(file, "--out", out, "--quiet").exit_code == 0
    before = tables(out)
    monkeypatch.setattr("time.time", lambda: 0.0)  # the clock was set back
    for number, path in enumerate([file, *out.rglob("*")]):
        os.utime(path, (0, number * 10**9))
    again = run(file, "--out", out, "--quiet")
    assert again.stdout.count("Finished before; nothing has changed since.") == 2
    for name in ("classify/scores.csv", "ablate/run.json"):
        changed = bytearray((out / name).read_bytes())
        changed[len(changed) // 2] ^= 1
        (out / name).write_bytes(changed)
    again = run(file, "--out", out, "--quiet")
    assert again.exit_code == 0, again.output
    assert again.stdout.count("Finished before") == 0
    assert tables(out) == before
