"""Results as objects: saved, opened, drawn and reported in one way."""

from __future__ import annotations

import dataclasses

import pandas as pd
import pytest
from matplotlib.figure import Figure

import headlens
from headlens.errors import InputError, RunError
from headlens.report.artist import KINDS, Kind
from headlens.report.page.experiment import COLUMNS, ExperimentResult
from headlens.residual.contributions import contributions
from headlens.runs.result import record_without_model
from headlens.similarity.similar import similar
from support import pictures, real, toys


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


def an_experiment(lens):
    rows = [("minilm", 0, "a share", share, "at least", 0.5, share - 0.5, "Toy 2020", "x.csv: only of y")
            for share in (0.1 + 0.2, float("nan"))]  # fmt: skip
    facts = {"title": "An experiment", "models": ["minilm"], "seeds": [0], "steps": []}
    return ExperimentResult(pd.DataFrame(rows, columns=COLUMNS), record_without_model("run", facts))


MAKERS = {
    "similar": lambda lens: similar(lens, "text.txt"),
    "contributions": lambda lens: contributions(lens, toys.SOURCE),
    "contributions of some heads": lambda lens: contributions(lens, toys.SOURCE, heads="1.1,0.*"),
    "an experiment": an_experiment,
}


@pytest.mark.parametrize("kind", MAKERS)
def test_every_kind_from_python_alone(kind, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "text.txt").write_text(f"{toys.SOURCE}\n\n{toys.SOURCE}\n")
    found = MAKERS[kind](toys.family("gpt2"))
    out = found.save(tmp_path / "run")
    again = headlens.open(out)
    assert again == found
    assert repr(again) == repr(found)
    copy = again.save(tmp_path / "copy")
    files = {file.relative_to(out) for file in out.rglob("*") if file.is_file()}
    assert files == {file.relative_to(copy) for file in copy.rglob("*") if file.is_file()}
    for name in ("run.json", *again.tables):
        assert (copy / name).read_bytes() == (out / name).read_bytes()
    assert again.report("page.html").read_text().startswith("<!doctype html>")
    assert again._repr_html_().startswith("<h3>")
    if (out / "figures").exists():
        for figure in (out / "figures").glob("*.svg"):
            assert isinstance(again.plot(figure.stem), Figure)
    else:
        with pytest.raises(InputError, match="This result has no figure"):
            again.plot()


def test_contributions_that_were_opened_are_drawn_and_written_as_before(tmp_path):
    found = contributions(toys.family("gpt2"), toys.SOURCE)
    again = headlens.open(found.save(tmp_path / "run"))
    assert (again.heads, again.token, again.position, again.notes) == (
        found.heads,
        found.token,
        found.position,
        found.notes,
    )
    for name, more in (("a.csv", {}), ("b.csv", {"per_token": True})):
        assert (
            found.save(tmp_path / name, **more).read_bytes()
            == again.save(tmp_path / f"again-{name}", **more).read_bytes()
        )
    for measure, per_token in (("logit", False), ("cosine", True)):
        assert pictures.said(again.heatmap(measure, per_token)) == pictures.said(
            found.heatmap(measure, per_token)
        )
    with pytest.raises(InputError, match="belongs to one position"):
        again.heatmap("logit", per_token=True)


def test_a_head_that_is_no_number_is_refused(tmp_path):
    out = contributions(toys.family("gpt2"), toys.SOURCE).save(tmp_path / "run")
    table = out / "contributions.csv"
    table.write_text(table.read_text().replace("decoder,0,1,", "decoder,0,x,", 1))
    (out / "run.json").write_text('{"command": "contributions"}')  # no checksums
    with pytest.raises(RunError, match="has rows whose head is no whole number"):
        headlens.open(out)


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
    assert repr(found).startswith("Classification('minilm', scores=")
    assert repr(found).endswith(", tags=72)")
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


def test_a_result_without_figures(found):
    class Bare(type(found)):
        command = "bare"

    with pytest.MonkeyPatch.context() as patch:
        patch.setitem(KINDS, "bare", Kind(Bare, lambda _: iter(()), KINDS["classify"].section))
        with pytest.raises(InputError, match="This result has no figure"):
            Bare(found.scores, found.tags, found.run).plot()


def test_what_is_not_whole_is_not_written(found, tmp_path):
    """Tables can be replaced; nothing is written of a result that could not be read again."""
    some, fewer = found.tags[found.tags["layer"] == 2], found.scores.drop(columns="q_value")
    for odd, problem in (
        (dataclasses.replace(found, tags=some), "scores.csv is not whole: it lacks rows of some heads"),
        (dataclasses.replace(found, tags=some.iloc[:0]), "tags.csv holds no heads"),
        (dataclasses.replace(found, scores=fewer), "scores.csv has no column q_value"),
        (dataclasses.replace(found, run={}), "its record is none of headlens classify"),
    ):
        for act, place in ((odd.save, "run"), (odd.report, "page.html")):
            with pytest.raises(InputError) as refused:
                act(tmp_path / place)
            assert str(refused.value) == f"This Classification is not whole: {problem}. Put its tables right."
        assert not list(tmp_path.iterdir())
