"""Results as objects: saved, opened, drawn and reported in one way."""

from __future__ import annotations

import dataclasses

import pytest
from matplotlib.figure import Figure

import headlens
from headlens.errors import InputError, RunError
from support import real


@pytest.fixture(scope="module")
def found():
    real.need_minilm()
    return headlens.classify("minilm", tags=["positional", "delimiter"])


def test_from_python_alone(found, tmp_path):
    out = found.save(tmp_path / "run")
    again = headlens.open(out)
    assert again == found
    assert again is not found
    assert type(again.scores) is type(found.scores)
    assert isinstance(again.plot(), Figure)
    assert again.report(tmp_path / "page.html").read_text() != ""
    again.save(tmp_path / "copy")
    assert {file.name for file in (tmp_path / "copy").iterdir()} == {file.name for file in out.iterdir()}
    for name in ("scores.csv", "tags.csv", "examples.json"):
        assert (tmp_path / "copy" / name).read_bytes() == (out / name).read_bytes()


def test_what_is_different_is_not_equal(found):
    assert found == dataclasses.replace(found)
    other = found.tags.copy()
    other.loc[0, "tags"] = "semantic"
    assert dataclasses.replace(found, tags=other) != found
    assert found.noting(checks={}) != found
    assert found != "found"
    with pytest.raises(dataclasses.FrozenInstanceError):
        found.tags = other


def test_it_shows_itself(found):
    assert repr(found) == "Classification('minilm', scores=1872, tags=72)" or repr(found).startswith(
        "Classification('minilm', scores="
    )
    shown = found._repr_html_()
    assert "72 heads" in shown
    assert "data:image/png;base64," in shown


def test_figures_by_name(found):
    assert isinstance(found.plot("offsets"), Figure)
    with pytest.raises(InputError, match="There is no figure 'nothing' of this result"):
        found.plot("nothing")


def test_what_was_changed_on_disk_is_refused(found, tmp_path):
    out = found.save(tmp_path / "run")
    table = out / "tags.csv"
    table.write_text(table.read_text().replace("positional", "semantic", 1))
    with pytest.raises(RunError, match="checksum"):
        headlens.open(out)
