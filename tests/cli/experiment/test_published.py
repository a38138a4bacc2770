"""Cells of result tables that published figures are held against."""

import json
import math
import re

import pytest

from headlens.cli.experiment_published import read_published
from headlens.errors import InputError
from headlens.report.page.experiment import as_published

TABLE = """stack,layer,head,measure,score,tagged
encoder,0,0,obj,0.5,True
encoder,0,1,obj,0.75,False
encoder,1,0,obj,,False
encoder,1,0,det,0.25,True
"""


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        ({"where": {"measure": "obj"}, "take": "max"}, 0.75),
        ({"where": {"measure": "obj"}, "take": "min"}, 0.5),
        ({"where": {"measure": "obj"}, "take": "mean"}, 0.625),
        ({"where": {"layer": 0, "head": 1, "measure": "obj"}}, 0.75),
        ({"where": {"layer": 1, "head": 0, "measure": "obj"}}, math.nan),  # not measured
        ({"where": {"measure": "nsubj"}, "take": "max"}, math.nan),
        ({"where": {"measure": "nsubj"}, "take": "count"}, 0),
        ({"where": {"tagged": True}, "take": "count"}, 2),
        ({"where": {"measure": ["obj", "det"], "layer": 1}, "take": "max"}, 0.25),
        ({"where": {"measure": ["obj", "det"]}, "take": "count"}, 4),
        ({"where": {"measure": []}, "take": "count"}, 0),
        ({"column": "tagged", "take": "mean"}, 0.5),
    ],
)
def test_one_number_of_a_table(tmp_path, options, expected):
    (tmp_path / "classify").mkdir()
    (tmp_path / "classify" / "scores.csv").write_text(TABLE)
    told = {
        "what": "x",
        "value": 1,
        "source": "y",
        "run": "classify",
        "table": "scores.csv",
        "column": "score",
    }
    found = read_published(told | options, ["classify"], "x.toml").measured(tmp_path)
    assert found == pytest.approx(expected, nan_ok=True)


OFFSETS = """layer,head,measure,score,baseline,n
0,0,mass@-1,0.5,0.25,90
0,0,mass@0,0.25,0.25,100
0,1,mass@-1,0.125,0.25,90
0,1,mass@0,0.25,0.25,100
1,0,mass@-1,,0.25,90
1,0,mass@0,0.75,0.25,100
1,1,mass@-1,,,0
"""
BAND = {"where": {"measure": ["mass@-1", "mass@0"]}, "column": "score"}
HEADS = {"by": ["layer", "head"]}


def test_rows_become_one_each_as_heavy_as_its_n(tmp_path):
    """Head 0.0 has (45 + 25) / 47.5, head 0.1 (11.25 + 25) / 47.5, head 1.0 what was measured: 75 / 25."""
    (tmp_path / "classify").mkdir()
    (tmp_path / "classify" / "scores.csv").write_text(OFFSETS)
    told = {"what": "x", "value": 1, "source": "y", "run": "classify", "table": "scores.csv"}

    def found(**options):
        return read_published(told | BAND | options, ["classify"], "x.toml").measured(tmp_path)

    ratios = [70 / 47.5, 36.25 / 47.5, 3.0]
    assert found(over="baseline", take="max", **HEADS) == pytest.approx(3)
    assert found(over="baseline", take="min", **HEADS) == pytest.approx(ratios[1])
    assert found(over="baseline", take="mean", **HEADS) == pytest.approx(sum(ratios) / 3)
    assert found(over="baseline", take="share", above=1, **HEADS) == pytest.approx(2 / 3)
    assert found(over="baseline", take="share", above=3, **HEADS) == 0  # 3 is not above 3
    assert found(take="min", **HEADS) == pytest.approx(36.25 / 190)  # a mean, without what it is divided by
    assert found(over="baseline", take="max", by=["layer"]) == pytest.approx(3)
    assert found(over="baseline", take="min", by=["layer"]) == pytest.approx(106.25 / 95)
    assert found(over="baseline", take="max") == 3  # row by row
    assert found(over="baseline", take="share", above=1) == pytest.approx(2 / 5)  # of those measured
    assert math.isnan(found(over="baseline", take="share", above=1, where={"layer": 7}))
    assert math.isnan(found(over="n", where={"layer": 1, "head": 1}))  # nothing is divided by 0


def test_a_number_over_the_same_of_another_run(tmp_path):
    for run, score in (("weights", 0.5), ("norms", 0.125), ("nothing", 0)):
        (tmp_path / run).mkdir()
        (tmp_path / run / "scores.csv").write_text(f"measure,score\nspecial,{score}\nspecial,{score}\n")
    told = {
        "what": "x",
        "value": 1,
        "bound": "below",
        "source": "y",
        "run": "norms",
        "table": "scores.csv",
        "where": {"measure": "special"},
        "column": "score",
        "take": "mean",
    }
    runs = ["weights", "norms", "nothing"]
    figure = read_published(told | {"relative_to": "weights"}, runs, "x.toml")
    assert figure.measured(tmp_path) == 0.25
    assert figure.found_in == ("norms/scores.csv: mean of score where measure special, over that of weights")
    assert math.isnan(read_published(told | {"relative_to": "nothing"}, runs, "x.toml").measured(tmp_path))
    assert as_published(figure.bound, figure.value) == "below 1"
    assert as_published("", 0.57) == "0.57"


def test_where_a_joined_number_stands():
    told = {
        "what": "x",
        "value": 1,
        "source": "y",
        "run": "classify",
        "table": "scores.csv",
        "column": "score",
    }
    told |= {"over": "baseline", "take": "share", "above": 1.5, "where": {"layer": [0, 1]}} | HEADS
    assert read_published(told, ["classify"], "x.toml").found_in == (
        "classify/scores.csv: share of score / baseline by layer and head above 1.5 where layer [0, 1]"
    )


def test_a_fact_of_a_record(tmp_path):
    (tmp_path / "ablate").mkdir()
    (tmp_path / "ablate" / "run.json").write_text(json.dumps({"baseline": {"spearman": 0.5}, "name": "x"}))
    told = {"what": "x", "value": 1, "source": "y", "run": "ablate", "table": "run.json"}
    for column, expected in (("baseline.spearman", 0.5), ("baseline.pearson", math.nan), ("name", math.nan)):
        figure = read_published(told | {"column": column}, ["ablate"], "x.toml")
        assert figure.measured(tmp_path) == pytest.approx(expected, nan_ok=True)
    assert figure.found_in == "ablate/run.json: only of name"


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"table": "score.csv"}, "'x': the run classify wrote no score.csv. There is: scores.csv, run.json."),
        ({"where": {"tag": "broad"}}, "scores.csv has no column 'tag'. There is: stack, layer"),
        ({"by": ["head"]}, "scores.csv has no column 'n'. There is: stack, layer"),  # what rows weigh
        (
            {"column": "scores"},
            "scores.csv in [[published]] of x.toml cannot have 'scores'. Did you mean",
        ),
        ({"over": "baselines"}, "cannot have 'baselines'. Did you mean baseline?"),
        ({"by": ["heads"]}, "cannot have 'heads'. Did you mean head?"),
        (
            {"where": {"measure": "obj"}},
            "'x': 3 rows of scores.csv match, where take = \"only\" means one. Say more under where, or "
            "take = one of only, max, min, mean, count, share.",
        ),
        (
            {"column": "measure", "take": "max"},
            "'x': measure of scores.csv holds no numbers. There is: stack",
        ),
    ],
)
def test_what_is_not_there_is_named_with_what_is(tmp_path, options, message):
    (tmp_path / "classify").mkdir()
    (tmp_path / "classify" / "scores.csv").write_text(TABLE)
    told = {
        "what": "x",
        "value": 1,
        "source": "y",
        "run": "classify",
        "table": "scores.csv",
        "column": "score",
    }
    with pytest.raises(InputError, match=re.escape(message)):
        read_published(told | options, ["classify"], "x.toml").measured(tmp_path)
