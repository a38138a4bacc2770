"""What runs say about heads, for the viewer."""

import pandas as pd
import pytest
from click.testing import CliRunner

import madeup
from headlens.cli import main
from headlens.errors import RunError
from headlens.heads import Head
from headlens.report.marks import read_marks
from headlens.tables import IMPORTANCE, write_csv

HEADS = [Head("encoder", layer, head) for layer in range(2) for head in range(3)]


def tagged(path, layers=2, heads=3):
    tags = madeup.tag_rows(layers, heads, tags={("encoder", 1, 2): ("syntactic", "broad")})
    return madeup.write_run(path, madeup.everything(tags), tags)


def weighed(path, rows):
    path.mkdir()
    write_csv(pd.DataFrame(rows, columns=IMPORTANCE), path / "importance.csv", IMPORTANCE)
    return path


def test_tags_strongest_first_and_none_where_nobody_looked(tmp_path):
    marks = read_marks([tagged(tmp_path / "a")], HEADS)
    assert marks.tags[Head("encoder", 1, 2)] == ("syntactic", "broad")
    assert marks.tags[Head("encoder", 0, 0)] == ()
    assert (marks.importance, marks.method) == (None, "")
    assert read_marks([], HEADS).tags is None


def test_importance_of_the_first_method_also_of_some_heads_alone(tmp_path):
    rows = [
        ("encoder", 0, 1, "taylor", -0.5, 2),
        ("encoder", 1, 0, "taylor", 2.5, 1),
        ("encoder", 0, 1, "each", 9.0, 1),
    ]
    marks = read_marks([tagged(tmp_path / "a"), weighed(tmp_path / "b", rows)], HEADS)
    assert marks.importance == {Head("encoder", 0, 1): -0.5, Head("encoder", 1, 0): 2.5}
    assert marks.method == "taylor"
    assert marks.tags is not None


@pytest.mark.parametrize(
    ("shape", "problem"),
    [((2, 4), "this model has no head encoder.0.3"), ((1, 3), "it has no head encoder.1.0")],
)
def test_a_run_of_a_larger_or_a_smaller_model(tmp_path, shape, problem):
    with pytest.raises(RunError) as refused:
        read_marks([tagged(tmp_path / "a", *shape)], HEADS)
    assert str(refused.value) == (
        f"{tmp_path / 'a'} is about another model: {problem}. Give a run of the same model."
    )


def test_no_run_and_a_broken_table(tmp_path):
    with pytest.raises(RunError) as refused:
        read_marks([tmp_path], HEADS)
    assert str(refused.value) == (
        f"Expected the --out of a headlens classify or ablate; {tmp_path} has no tags.csv and no "
        f"importance.csv. Type first: headlens classify MODEL --out {tmp_path}"
    )
    (tmp_path / "tags.csv").write_text("stack,layer\n")
    with pytest.raises(RunError) as refused:
        read_marks([tmp_path], HEADS)
    assert str(refused.value) == f"{tmp_path / 'tags.csv'} has no column head. Make the run again."


def test_tags_are_for_pages(tmp_path):
    done = CliRunner().invoke(main, ["view", "minilm", "x", "--tags", str(tmp_path), "--out", "a.png"])
    assert done.exit_code == 2
    assert done.stderr.endswith(
        "Error: Invalid value for --tags: tags and importance are shown on a page: --out FILE.html\n"
    )
