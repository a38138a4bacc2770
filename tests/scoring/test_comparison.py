import json

import numpy as np
import pandas as pd
import pytest

from headlens.errors import RunError
from headlens.scoring.classify import Classification
from headlens.scoring.compare import BY_MEASURE, BY_TAG, HEADS, compare, kappa
from support import scored


def flags(text):
    return np.array([char == "1" for char in text])


@pytest.mark.parametrize(
    ("first", "second", "expected"),
    [
        ("1100", "1100", 1.0),
        ("1100", "1010", 0.0),  # agree on half; chance: 1/2
        ("1100", "0011", -1.0),
        ("1110", "1100", 0.5),  # agree on 3/4; chance 3/8 + 1/8
        ("1111", "0000", 0.0),  # never agree, and chance never would
        ("1111", "1110", 0.0),
    ],
)
def test_kappa_by_hand(first, second, expected):
    assert kappa(flags(first), flags(second)) == pytest.approx(expected)
    assert kappa(flags(second), flags(first)) == pytest.approx(expected)


@pytest.mark.parametrize("same", ["1111", "0000", ""])
def test_kappa_is_not_defined_where_only_one_thing_is_ever_said(same):
    assert np.isnan(kappa(flags(same), flags(same)))


def test_kappa_as_scikit_learn():
    metrics = pytest.importorskip("sklearn.metrics")
    generator = np.random.default_rng(0)
    for share in (0.05, 0.3, 0.9):
        first, second = generator.random((2, 200)) < share
        assert kappa(first, second) == pytest.approx(metrics.cohen_kappa_score(first, second))


def scores(heads, *, shift=0.0, tags=("delimiter", "syntactic")):
    measures = {"delimiter": "special", "syntactic": "obj:dependent->head", "coreference": "antecedent"}
    parts = [
        scored.score_rows(
            heads, tag, measures[tag], lambda layer, head: (layer + shift * head) / 10 + head / 100
        )
        for tag in tags
    ]
    return pd.concat(parts, ignore_index=True)


FIRST = {("encoder", 0, 0): ["delimiter"], ("encoder", 0, 1): ["syntactic", "delimiter"]}
SECOND = {
    ("encoder", 0, 1): ["delimiter"],
    ("encoder", 1, 1): ["delimiter"],
    ("encoder", 1, 0): ["coreference"],
}


@pytest.fixture
def runs(tmp_path):
    one, two = scored.tag_rows(2, 2, tags=FIRST), scored.tag_rows(2, 2, tags=SECOND)
    second = scores(two, shift=1, tags=("delimiter", "syntactic", "coreference"))
    return (
        Classification.read(scored.write_run(tmp_path / "one", scores(one), one)),
        Classification.read(scored.write_run(tmp_path / "two", second, two)),
    )


def test_who_gained_and_lost_what(runs):
    found = compare(*runs)
    assert list(found.heads) == HEADS
    assert found.heads.values.tolist() == [
        ["encoder", 0, 0, "delimiter", "", "", "delimiter"],
        ["encoder", 0, 1, "syntactic;delimiter", "delimiter", "", "syntactic"],
        ["encoder", 1, 0, "", "coreference", "", ""],  # the first run did not look for it
        ["encoder", 1, 1, "", "delimiter", "delimiter", ""],
    ]


def test_agreement_by_tag(runs):
    table = compare(*runs).by_tag
    assert list(table) == BY_TAG
    known = table.set_index("tag")
    assert known.loc["delimiter"].tolist() == [2, 2, 1, 1, 1, 0.0]
    assert known.loc["syntactic"].tolist() == [1, 0, 0, 0, 1, 0.0]
    # all: 8 judgements, 3 and 2 yes, 1 in common; agree on 5/8; chance 3/8 * 2/8 + 5/8 * 6/8 = 36/64
    assert known.loc["all"].tolist() == [3, 2, 1, 1, 2, pytest.approx((40 - 36) / (64 - 36))]
    assert list(known.index) == ["delimiter", "syntactic", "coreference", "all"]
    alone = known.loc["coreference"]
    assert alone["second"] == 1
    assert alone.drop("second").isna().all()


def test_correlation_by_measure(runs):
    table = compare(*runs).by_measure
    assert list(table) == BY_MEASURE
    assert table["measure"].tolist() == ["special", "obj:dependent->head"]  # those that both runs took
    first, second = [0, 0.01, 0.1, 0.11], [0, 0.11, 0.1, 0.21]
    row = table.iloc[0]
    assert (row["heads"], row["mean_first"]) == (4, pytest.approx(0.055))
    assert row["mean_second"] == pytest.approx(0.105)
    assert row["pearson"] == pytest.approx(np.corrcoef(first, second)[0, 1])
    assert row["spearman"] == pytest.approx(0.8)  # 1 - 6 * 2 / (4 * 15)


def test_correlations_of_too_little_are_not_measured(tmp_path):
    heads = scored.tag_rows(1, 4)
    same = scored.score_rows(heads, "delimiter", "special", lambda layer, head: 0.5)
    few = scored.score_rows(
        heads, "delimiter", "punctuation", lambda layer, head: head if head < 2 else np.nan
    )
    run = Classification.read(scored.write_run(tmp_path, pd.concat([same, few]), heads))
    table = compare(run, run).by_measure.set_index("measure")
    assert table["heads"].tolist() == [4, 2]
    assert table[["pearson", "spearman"]].isna().all(axis=None)


def test_a_run_is_equal_to_itself(runs):
    found = compare(runs[0], runs[0])
    assert found.by_tag["kappa"].tolist() == [1, 1, 1]
    assert (found.heads["gained"] + found.heads["lost"] == "").all()
    assert found.by_measure[["pearson", "spearman"]].to_numpy() == pytest.approx(1)


def test_the_order_of_the_rows_does_not_matter(runs, tmp_path):
    shuffled = scored.write_run(
        tmp_path / "three", runs[1].scores.sample(frac=1, random_state=0), runs[1].tags.iloc[::-1]
    )
    found, again = compare(*runs), compare(runs[0], Classification.read(shuffled))
    pd.testing.assert_frame_equal(found.heads, again.heads)
    pd.testing.assert_frame_equal(found.by_measure, again.by_measure)


def test_different_shapes_are_refused(runs, tmp_path):
    heads = scored.tag_rows(3, 2, ("encoder", "cross"))
    other = Classification.read(
        scored.write_run(tmp_path / "other", scores(heads), heads, model={"name": "a/b"})
    )
    with pytest.raises(RunError) as refused:
        compare(runs[0], other)
    assert str(refused.value) == (
        f"Expected two models with the same layers and heads; {tmp_path / 'one'} (toy) has encoder layers "
        f"0-1 with heads 0-1, {tmp_path / 'other'} (b) has encoder layers 0-2 with heads 0-1 and cross "
        "layers 0-2 with heads 0-1. Compare runs of one model, or of models of one shape."
    )


@pytest.mark.parametrize("name", ["scores.csv", "tags.csv", "run.json"])
def test_a_file_that_is_not_there(runs, name):
    path = runs[0].path
    (path / name).unlink()
    with pytest.raises(RunError) as refused:
        Classification.read(path)
    assert str(refused.value) == (
        f"Expected a finished run of headlens classify; {path} has no run.json. "
        "Give what you gave a headlens classify as --out."
        if name == "run.json"
        else f"Expected {name} in {path}; it is not there. Make the run again."
    )


def spoil(path, name, text):
    (path / name).write_text(text)


@pytest.mark.parametrize(
    ("name", "text", "problem"),
    [
        ("run.json", "{", "run.json cannot be read: Expecting property name enclosed in double quotes"),
        ("tags.csv", "", "tags.csv cannot be read: No columns to parse from file."),
        ("tags.csv", "stack,layer,head,tags,evidence\n", "tags.csv holds no heads."),
        ("tags.csv", "stack,layer,head,tags\nencoder,0,0,\n", "tags.csv has no column evidence."),
        (
            "tags.csv",
            "stack,layer,head,tags,evidence\ne,x,0,,\n",
            "tags.csv cannot be read: expected a whole number from 0 in the column layer, row 1 has 'x'.",
        ),
        (
            "tags.csv",
            "stack,layer,head,tags,evidence\ne,0,0,,\ne,0,0,,\n",
            "tags.csv has several rows for the same head.",
        ),
    ],
)
def test_a_broken_file(runs, name, text, problem):
    path = runs[0].path
    spoil(path, name, text)
    with pytest.raises(RunError) as refused:
        Classification.read(path)
    assert str(refused.value).startswith(f"{path}/{problem}")
    assert str(refused.value).endswith(" Make the run again.")


def test_a_run_of_another_command_and_no_run_at_all(runs, tmp_path):
    path = runs[0].path
    spoil(path, "run.json", json.dumps({"command": "ablate"}))
    with pytest.raises(RunError) as refused:
        Classification.read(path)
    assert str(refused.value) == (
        f"Expected a finished run of headlens classify; {path} holds one of headlens ablate. "
        "Give what you gave a headlens classify as --out."
    )
    with pytest.raises(RunError) as refused:
        Classification.read(tmp_path / "nowhere")
    assert str(refused.value) == (
        "Expected the directory of a finished run of headlens classify; there is no directory "
        f"{tmp_path / 'nowhere'}. Give what you gave a headlens classify as --out."
    )
