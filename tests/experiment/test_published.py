"""Cells of result tables that published figures are held against."""

import json
import math
import re

import pytest

from headlens.errors import InputError
from headlens.experiment.published import read_published

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
        ({"where": {"measure": "obj"}}, math.nan),  # several rows where one is meant
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
        ({"column": "scores"}, "scores.csv has no column 'scores'. There is: stack, layer"),
        ({"where": {"tag": "broad"}}, "scores.csv has no column 'tag'. There is: stack, layer"),
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
