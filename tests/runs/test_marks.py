"""What runs say about heads, for the viewer."""

import pandas as pd
import pytest
from click.testing import CliRunner

from headlens.cli import main
from headlens.cli.options import ModelOptions
from headlens.errors import RunError
from headlens.model.heads import Head
from headlens.runs.read import read_marks
from headlens.util.files import IMPORTANCE, write_csv
from support import scored, toys

HEADS = [Head("encoder", layer, head) for layer in range(2) for head in range(3)]


def tagged(path, layers=2, heads=3):
    tags = scored.tag_rows(layers, heads, tags={("encoder", 1, 2): ("syntactic", "broad")})
    return scored.write_run(path, scored.everything(tags), tags)


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


class Place:
    """Where a model was loaded from; counts how often its weights are hashed."""

    def __init__(self, name, hashes, **options):
        self.name, self.hashes, self.options = name, hashes, options
        self.files, self.hashed = tuple(hashes), 0

    def sha256(self):
        self.hashed += 1
        return self.hashes


def lens_from(place):
    lens = toys.family("bert")
    lens.source = place
    return lens


def of_model(path, lens, **model):
    """A run on the heads of a lens, made with a model of that name, revision and hashes."""
    layers, heads = (1 + max(getattr(one, name) for one in lens.anatomy.heads) for name in ("layer", "head"))
    tags = scored.tag_rows(layers, heads)
    told = {"architecture": lens.anatomy.architecture, "weights_sha256": {}, "revision": None, **model}
    return scored.write_run(path, scored.everything(tags), tags, model=told)


def test_a_run_of_another_model_of_the_same_shape_by_its_weights(tmp_path):
    lens = lens_from(Place("./mine", {"m.safetensors": "aa"}))
    run = of_model(tmp_path / "a", lens, name="theirs", weights_sha256={"m.safetensors": "bb"})
    with pytest.raises(RunError) as refused:
        read_marks([run], lens)
    assert str(refused.value) == (
        f"{run} is about another model: it was made with theirs, with other weights than ./mine as it is "
        "now. Type first: headlens classify ./mine --out DIR, and give that run."
    )
    again = of_model(tmp_path / "b", lens, name="./mine", weights_sha256={"m.safetensors": "bb"})
    with pytest.raises(RunError, match=r"made with \./mine, with other weights than \./mine as it is now"):
        read_marks([again], lens)  # trained further in its place


def test_weights_are_hashed_once_and_decide_whatever_the_names(tmp_path):
    lens = lens_from(Place("mine", {"m.safetensors": "aa"}))
    run = of_model(tmp_path / "a", lens, name="theirs", weights_sha256={"m.safetensors": "aa"})
    assert read_marks([run, run], lens).tags is not None
    assert lens.source.hashed == 1


def test_without_hashes_names_and_revisions_decide_and_nothing_is_hashed(tmp_path):
    lens = lens_from(Place("org/mine", {"m.safetensors": "aa"}, revision="one"))
    same = of_model(tmp_path / "a", lens, name="org/mine", revision="one")
    assert read_marks([same], lens).tags is not None
    for name, model in (("b", {"name": "org/theirs"}), ("c", {"name": "org/mine", "revision": "two"})):
        run = of_model(tmp_path / name, lens, **model)
        with pytest.raises(RunError) as refused:
            read_marks([run], lens)
        assert str(refused.value).startswith(
            f"{run} is about another model: it was made with {model['name']}, not with org/mine as it is now."
        )
    assert lens.source.hashed == 0


def test_two_names_of_one_folder(tmp_path, monkeypatch):
    (tmp_path / "m").mkdir()
    monkeypatch.chdir(tmp_path)
    lens = lens_from(Place(str(tmp_path / "m"), {}))
    assert read_marks([of_model(tmp_path / "a", lens, name="./m")], lens).tags is not None


def test_a_model_from_memory_is_warned_about(tmp_path):
    lens = lens_from(None)
    run = of_model(tmp_path / "a", lens, name="theirs")
    with pytest.warns(UserWarning, match=r"about theirs \(a BertForMaskedLM\); whether that is the model at"):
        assert read_marks([run], lens).tags is not None
    (run / "run.json").unlink()
    with pytest.warns(UserWarning, match=r"does not say which model it is about: be sure it is this one\."):
        read_marks([run], lens)


def test_the_command_refuses_a_run_of_another_model(tmp_path, monkeypatch):
    lens = lens_from(Place("mine", {"m.safetensors": "aa"}))
    run = of_model(tmp_path / "a", lens, name="theirs", weights_sha256={"m.safetensors": "bb"})
    monkeypatch.setattr(ModelOptions, "load", lambda self, model: lens)
    out = tmp_path / "page.html"
    done = CliRunner().invoke(main, ["view", "mine", "the dog", "--tags", str(run), "--out", str(out)])
    assert done.exit_code == 1
    assert done.stderr.startswith(f"Error: {run} is about another model: it was made with theirs, ")
    assert not out.exists()
