"""Nothing is written or removed outside a run directory: links in it are not followed, names are no paths."""

import os
import stat
from pathlib import Path

import numpy as np
import pytest
from click.testing import CliRunner
from hypothesis import given
from hypothesis import strategies as st

from headlens.ablation.measure import Units
from headlens.cli import main
from headlens.errors import RunError
from headlens.pruning.prune import staged
from headlens.report.canvas import InchFigure, save_drawn
from headlens.runs import result as runs
from headlens.util.files import HOLDER, file_name, inner_folder, write_bytes, write_text
from support import hostile
from support.toytext import store_bert, toy_pairs, write_pairs


@pytest.fixture
def elsewhere(tmp_path):
    """A folder with files that nobody may touch."""
    folder = tmp_path / "elsewhere"
    folder.mkdir()
    for name in ("mine.npy", "mine.json", "key.json", "heads.png", "scores.csv"):
        (folder / name).write_text("mine")
    yield folder
    assert {path.name: path.read_text() for path in folder.iterdir()} == dict.fromkeys(
        ("mine.npy", "mine.json", "key.json", "heads.png", "scores.csv"), "mine"
    )


def told(folder):
    return (
        f"{folder} is a link, and headlens writes inside the run directory only. Remove the link, or choose "
    )


@pytest.mark.parametrize("name", runs.FOLDERS)
def test_a_link_in_place_of_a_folder_is_refused_before_any_work(tmp_path, elsewhere, name):
    out = tmp_path / "run"
    out.mkdir()
    for target in (elsewhere, tmp_path / "nowhere"):
        (out / name).symlink_to(target)
        with pytest.raises(RunError) as refused, runs.prepare(out, "ablate"):
            pass
        assert str(refused.value) == f"{told(out / name)}another --out."
        (out / name).unlink()
    assert not (tmp_path / "nowhere").exists()
    assert inner_folder(out, name) == out / name


def test_units_and_figures_go_to_no_other_place(tmp_path, elsewhere):
    out = tmp_path / "run"
    out.mkdir()
    for name in runs.FOLDERS:
        (out / name).symlink_to(elsewhere)
    for overwrite in (False, True):
        with pytest.raises(RunError, match="is a link"):
            Units(out, {"a": 1}, overwrite)
    with pytest.raises(RunError, match="is a link"):
        save_drawn([("heads", InchFigure(1, 1, ["DejaVu Sans"]))], out)


def test_a_link_in_place_of_a_file_is_replaced(tmp_path, elsewhere):
    out = tmp_path / "run"
    out.mkdir()
    for name in ("scores.csv", "run.json"):
        (out / name).symlink_to(elsewhere / "scores.csv")
        write_text("new", out / name)
        assert not (out / name).is_symlink()
        assert (out / name).read_text() == "new"
    (out / HOLDER).symlink_to(elsewhere / "scores.csv")
    with runs.prepare(out, "ablate"):
        assert not (out / HOLDER).is_symlink()
    assert sorted(path.name for path in out.iterdir()) == ["run.json", "scores.csv"]


def test_overwriting_removes_links_and_not_what_they_lead_to(tmp_path, elsewhere):
    units = tmp_path / "run" / "units"
    units.mkdir(parents=True)
    for name in ("mine.npy", "mine.json", "key.json"):
        (units / name).symlink_to(elsewhere / name)
    Units(tmp_path / "run", {"a": 1}, overwrite=True)
    assert [path.name for path in units.iterdir()] == ["key.json"]
    assert not (units / "key.json").is_symlink()


def test_a_pruned_model_goes_to_no_other_place(tmp_path, elsewhere):
    out = tmp_path / "pruned"
    out.mkdir()
    (out / "1_Pooling").symlink_to(elsewhere)

    def prune():
        with staged(out) as place:
            (place / "1_Pooling").mkdir()
            (place / "1_Pooling" / "mine.json").write_text("new")

    with pytest.raises(RunError, match="is a link"):
        prune()
    assert sorted(path.name for path in tmp_path.iterdir()) == ["elsewhere", "pruned"]


def test_what_is_not_whole_yet_is_private_and_in_the_same_folder(tmp_path, monkeypatch):
    seen = []
    replace = Path.replace

    def watched(self, target):
        seen.append((self.parent, target))
        return replace(self, target)

    def watched_chmod(self, mode):
        seen.append(stat.S_IMODE(self.stat().st_mode))
        os.chmod(self, mode)  # noqa: PTH101

    monkeypatch.setattr(Path, "replace", watched)
    monkeypatch.setattr(Path, "chmod", watched_chmod)
    write_bytes(b"new", tmp_path / "x.csv")
    assert seen == [0o600, (tmp_path, tmp_path / "x.csv")]
    assert [path.name for path in tmp_path.iterdir()] == ["x.csv"]


@hostile.examples(100)
@given(
    st.lists(st.one_of(hostile.words(), st.text(max_size=5), st.text(min_size=90, max_size=300)), unique=True)
)
def test_any_name_is_a_file_of_its_own(tmp_path_factory, names):
    folder = tmp_path_factory.mktemp("units")
    made = [file_name(name) for name in names]
    assert len(set(made)) == len(names)
    for name in made:
        (folder / f"{name}.npy").write_bytes(b"")
    assert sorted(path.name for path in folder.iterdir()) == sorted(f"{name}.npy" for name in made)


def test_plain_names_stay():
    names = [
        "head 4.10",
        "only head cross.0.1",
        "control 3 of least important 7 of 72",
        "tag duplicate-token",
    ]
    assert [file_name(name) for name in names] == names
    assert file_name("../../x").startswith("_x.")


def test_units_of_hostile_names_stay_inside(tmp_path):
    units = Units(tmp_path / "run", {"a": 1})
    for name in ("tag ../../x", "tag /tmp/x", "tag \0", "..", "", "tag " + "x" * 300):
        units.save(name, np.ones((2, 1)))
        units.save_facts(name, {"b": 1})
        assert units.load(name, 2).tolist() == [[1.0], [1.0]]
        assert units.load_facts(name) == {"b": 1}
    assert [path.name for path in tmp_path.iterdir()] == ["run"]
    assert [path.name for path in (tmp_path / "run").iterdir()] == ["units"]


def test_a_sweep_goes_on_after_hostile_tags(tmp_path):
    """Twice the same command: what was measured under any name is found again."""
    store_bert(tmp_path / "model")
    spec = write_pairs(tmp_path / "p.tsv", toy_pairs())
    (tmp_path / "c").mkdir()
    lines = ["stack,layer,head,tags,evidence"]
    lines += [f"encoder,{n // 4},{n % 4},{'../../x' if n % 2 else '<b>'},x" for n in range(8)]
    (tmp_path / "c" / "tags.csv").write_text("\n".join(lines) + "\n")
    typed = ["ablate", tmp_path / "model", "--benchmark", spec, "--sweep", "tags", "--from", tmp_path / "c"]
    typed += ["--draws", 2, "--out", tmp_path / "run", "--quiet"]
    before = set(tmp_path.iterdir()) | {tmp_path / "run"}
    first = CliRunner().invoke(main, list(map(str, typed)))
    assert first.exit_code == 0, first.output
    table = (tmp_path / "run" / "ablation.csv").read_bytes()
    units = {path: path.stat().st_mtime_ns for path in (tmp_path / "run" / "units").iterdir()}
    again = CliRunner().invoke(main, list(map(str, typed)))
    assert "ablations were measured before; kept." in again.stderr
    assert {path: path.stat().st_mtime_ns for path in (tmp_path / "run" / "units").iterdir()} == units
    assert (tmp_path / "run" / "ablation.csv").read_bytes() == table
    assert set(tmp_path.iterdir()) == before
