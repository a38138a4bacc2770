"""No byte of what a run left can change without being noticed."""

from __future__ import annotations

import dataclasses
import json
import os

import numpy as np
import pytest

import headlens
from headlens.ablation.measure import Units
from headlens.cli.experiment_published import read_published
from headlens.errors import HeadlensError, RunError
from headlens.report.artist import report_page
from headlens.runs import result as runs
from headlens.runs.read import read_marks, tagged_heads
from headlens.runs.result import EXAMPLES
from headlens.scoring.classify import Classification
from headlens.util.files import CHANGED, SCORES, load_record, read_checked, read_csv, remove, seal, unseal
from support.finishedruns import ablate_run, classify_run

VALUES = np.arange(6.0).reshape(3, 2)
TEXT = ("stack", "tag", "measure", "tagged")


def flipped(content, bit):
    changed = bytearray(content)
    changed[bit // 8] ^= 1 << bit % 8
    return bytes(changed)


def changed(file, old, new):
    text = file.read_text()
    assert old in text
    file.write_text(text.replace(old, new, 1))


def test_every_bit_and_every_length():
    sealed = seal(b"some content", "x")
    assert unseal(sealed, "x") == b"some content"
    assert unseal(seal(b"", ""), "") == b""
    others = [flipped(sealed, bit) for bit in range(8 * len(sealed))]
    others += [sealed[:length] for length in range(len(sealed))]
    for other in (*others, sealed + sealed, sealed + b"\n"):
        with pytest.raises(ValueError, match=CHANGED):
            unseal(other, "x")
    with pytest.raises(ValueError, match=CHANGED):
        unseal(sealed, "y")


@pytest.fixture
def units(tmp_path):
    units = Units(tmp_path / "run", {"a": 1})
    for name in ("head 0.1", "head 0.2"):
        units.save(name, VALUES)
        units.save_facts(name, {"b": [1.5]})
    return units


def kept(units, ending, name="head 0.1"):
    """Whether a unit is as it was saved; it is that or none."""
    if ending == "npy":
        values = units.load(name, 3)
        assert values is None or np.array_equal(values, VALUES)
        return values is not None
    facts = units.load_facts(name)
    assert facts in (None, {"b": [1.5]})
    return facts is not None


@pytest.mark.parametrize("ending", ["npy", "json"])
def test_a_unit_of_which_any_byte_was_changed_is_measured_again(tmp_path, units, ending):
    file = tmp_path / "run" / "units" / f"head 0.1.{ending}"
    whole = file.read_bytes()
    for place in range(len(whole)):
        file.write_bytes(flipped(whole, 8 * place + place % 8))
        assert not kept(units, ending)
    file.write_bytes(whole)
    assert kept(units, ending)


def test_numpy_reads_units_as_they_are(tmp_path, units):
    assert np.array_equal(np.load(tmp_path / "run" / "units" / "head 0.1.npy"), VALUES)


@pytest.mark.parametrize("ending", ["npy", "json"])
def test_units_of_other_heads_keys_and_shapes_are_measured_again(tmp_path, units, ending):
    folder = tmp_path / "run" / "units"
    other = Units(tmp_path / "other", {"a": 2})
    other.save("head 0.1", VALUES)
    other.save_facts("head 0.1", {"b": [1.5]})
    for source in (folder / f"head 0.2.{ending}", tmp_path / "other" / "units" / f"head 0.1.{ending}"):
        (folder / f"head 0.1.{ending}").write_bytes(source.read_bytes())
        assert not kept(units, ending)
    assert kept(units, ending, "head 0.2")
    assert units.load("head 0.2", 4) is None


@pytest.mark.parametrize("make", [os.mkdir, os.mkfifo, lambda path: path.symlink_to("head 0.2.npy")])
def test_what_is_no_file_is_measured_again(tmp_path, units, make):
    file = tmp_path / "run" / "units" / "head 0.1.npy"
    file.unlink()
    make(file)
    assert units.load("head 0.1", 3) is None
    if file.is_dir():
        with pytest.raises(RunError) as refused:
            units.save("head 0.1", VALUES)
        assert str(refused.value).startswith(f"{file} cannot be written: Is a directory.")
    else:
        units.save("head 0.1", VALUES)
        assert kept(units, "npy")
        assert kept(units, "npy", "head 0.2")


def test_a_key_that_cannot_be_read_is_named(tmp_path, units):
    key = tmp_path / "run" / "units" / "key.json"
    key.write_text("")
    with pytest.raises(RunError) as refused:
        Units(tmp_path / "run", {"a": 1})
    assert str(refused.value) == (
        f"{tmp_path / 'run'} holds another run: {key} cannot be read. "
        "Choose another --out, or type --overwrite to replace it."
    )


def saved(out, *tables):
    """A made-up run with the checksums that a real one has."""
    runs.save(out, json.loads((out / "run.json").read_text()), tables)
    return out


@pytest.fixture
def run(tmp_path):
    return saved(classify_run(tmp_path / "run"), "scores.csv", "tags.csv")


def page(run):
    return report_page([run])


CHANGES = {
    "scores.csv": ("0.7", "0.8", [Classification.read, page]),
    "tags.csv": (
        "positional",
        "delimiter",
        [Classification.read, page, lambda run: tagged_heads(None, run), lambda run: read_marks([run], [])],
    ),
    "run.json": ("99", "98", [Classification.read, page]),
}


@pytest.mark.parametrize("name", CHANGES)
def test_a_digit_that_was_changed_is_refused_by_the_name_of_the_file(run, name):
    old, new, readers = CHANGES[name]
    for reader in readers[:2]:
        reader(run)
    changed(run / name, old, new)
    for reader in readers:
        with pytest.raises(HeadlensError) as refused:
            reader(run)
        assert str(run / name) in str(refused.value)
        assert "\n" not in str(refused.value)


@pytest.mark.parametrize(("name", "column"), [("scores.csv", "score"), ("run.json", "corpus.words")])
def test_published_figures_see_it_too(run, name, column):
    told = {"what": "w", "value": 1, "source": "s", "run": "run", "take": "max"}
    told |= {"table": name, "column": column}
    if name == "run.json":
        del told["take"]
    figure = read_published(told, ["run"], "x.toml")
    assert figure.measured(run.parent) > 0
    changed(run / name, "99" if name == "run.json" else "0.7", "0.1")
    with pytest.raises(HeadlensError, match=f"{name} cannot be read: {CHANGED}"):
        figure.measured(run.parent)


def test_tables_of_two_runs_are_not_taken_for_one(run, tmp_path):
    """A run that was killed while it wrote over an earlier one."""
    other = classify_run(tmp_path / "other", tags={})
    (run / "tags.csv").write_bytes((other / "tags.csv").read_bytes())
    with pytest.raises(RunError) as refused:
        Classification.read(run)
    assert str(refused.value) == (f"{run / 'tags.csv'} cannot be read: {CHANGED}. Make the run again.")


def test_without_checksums_any_table_is_taken(tmp_path):
    run = classify_run(tmp_path / "run")
    assert "tables" not in load_record(run / "run.json")
    assert len(read_csv(run / "scores.csv", SCORES, TEXT))
    for content in ("", "[]", '{"tables": 1}', '{"tables": {"x": []}}', "[" * 9999):
        (run / "run.json").write_text(content)
        assert read_checked(run / "scores.csv").read() == (run / "scores.csv").read_bytes()
    (run / "run.json").write_text('{"tables": {"scores.csv": 1.5}}')
    with pytest.raises(ValueError, match=CHANGED):
        read_checked(run / "scores.csv")


def test_the_record_is_read_back_whatever_it_says(tmp_path):
    facts = {"number": 0.1 + 0.2, "small": 5e-324, "text": "größe \udc80 \u2028", "none": None, "n": 2**60}
    runs.save(tmp_path, facts)
    found = load_record(tmp_path / "run.json")
    assert {name: found[name] for name in facts} == facts
    assert found["tables"] == {}


def test_a_table_that_is_gone_before_the_record_is_written(tmp_path):
    with pytest.raises(RunError) as refused:
        runs.save(tmp_path, {"command": "classify"}, ["scores.csv"])
    assert str(refused.value) == (
        f"{tmp_path / 'scores.csv'} is gone: No such file or directory. Make the run again."
    )


def test_examples_of_an_earlier_run_are_not_shown(run):
    (run / EXAMPLES).write_text("{}")
    for _ in range(2):
        dataclasses.replace(headlens.open(run), examples=None).write(run)
        assert not (run / EXAMPLES).exists()


def test_what_cannot_be_removed(tmp_path):
    (tmp_path / "folder").mkdir()
    with pytest.raises(RunError, match=r"folder cannot be removed: Is a directory\. Choose another --out\."):
        remove([tmp_path / "folder"])


def test_sweeps_are_refused_too(tmp_path):
    run = saved(ablate_run(tmp_path / "run"), "ablation.csv", "importance.csv")
    assert page(run)
    changed(run / "ablation.csv", "0.5", "0.6")
    with pytest.raises(RunError, match=rf"ablation\.csv cannot be read: {CHANGED}"):
        page(run)
    changed(run / "importance.csv", "0.2", "0.3")
    with pytest.raises(RunError, match=rf"importance\.csv cannot be read: {CHANGED}"):
        read_marks([run], [])
