"""Any TOML is an experiment or refused, and no experiment writes outside its directory."""

import shlex
from itertools import pairwise
from pathlib import Path

import pytest
import tomli_w
from click.testing import CliRunner
from hypothesis import given
from hypothesis import strategies as st

from headlens.cli import main
from headlens.cli.experiment_file import OWN, TOP, options_of, read_experiment, section_commands
from headlens.cli.experiment_published import KEYS
from headlens.cli.experiment_run import cells, steps
from headlens.errors import InputError
from support import hostile

SECTIONS = section_commands(main)
WORDS = st.one_of(hostile.words(), st.sampled_from(["", "minilm", "classify", "a", "a/b", *OWN]))
PLAIN = st.one_of(WORDS, st.booleans(), st.integers(), st.floats(), st.dates())
VALUES = st.recursive(
    PLAIN,
    lambda inner: st.one_of(st.lists(inner, max_size=3), st.dictionaries(WORDS, inner, max_size=2)),
    max_leaves=4,
)


def keys(command):
    known = [option.removeprefix("--") for option in options_of(SECTIONS[command])]
    return st.sampled_from([*known, "name", "text", "out", "corpus"])


def section(command):
    return st.dictionaries(keys(command), st.one_of(WORDS, VALUES), max_size=3)


@st.composite
def documents(draw):
    """Files that are nearly right, so that most of them get past the first check."""
    told = {"model": draw(st.one_of(MODELS, VALUES))} if draw(st.integers(0, 9)) else {}
    for command in draw(st.lists(st.sampled_from(list(SECTIONS)), min_size=1, max_size=3)):
        one = draw(section(command))
        if SECTIONS[command].writes == "file":
            one = {"text": draw(WORDS), "out": draw(WORDS), **one}
        told[command] = draw(st.sampled_from([one, [one], [one, {**one, "name": draw(WORDS)}]]))
    if draw(st.booleans()):
        told[draw(st.sampled_from([*TOP, *SECTIONS, "x"]))] = draw(VALUES)
    if draw(st.integers(0, 3)) == 0:
        figure = {key: draw(WORDS) for key in KEYS if key not in ("where", "take")}
        told["published"] = [
            {**figure, "value": 1.5, "run": command, **draw(st.dictionaries(st.sampled_from(KEYS), VALUES))}
        ]
    return told


MODELS = st.one_of(
    st.fixed_dictionaries({"name": WORDS}, optional={"device": WORDS, "out": WORDS, "seed": VALUES}),
    st.fixed_dictionaries({"names": st.lists(WORDS, max_size=3)}),
)


@hostile.examples(150)
@given(documents())
def test_any_document(tmp_path_factory, told):
    path = tmp_path_factory.getbasetemp() / "any.toml"
    path.write_bytes(tomli_w.dumps(told).encode())
    found = hostile.result_or_refusal(read_experiment, path, main)
    if isinstance(found, InputError):
        assert "any.toml" in str(found)
        return
    out = Path("/runs/one")
    places = [cell.place for cell in cells(found, out)]
    planned = list(steps(found, out))
    assert len(set(places)) == len(places) == len(found.models) * len(found.seeds)
    assert len({step.out for step in planned}) == len(planned)
    for step in planned:
        inside = step.out.relative_to(out)
        assert ".." not in inside.parts
        assert step.out.name not in OWN
        assert str(step.out).isprintable()
        typed = [Path(place) for option, place in pairwise(step.typed) if option == "--out"]
        assert step.out in typed


HOSTILE_PLACES = ("", ".", "..", "../x", "/tmp/x", "a/../../x", ".hidden", "a\nb", "a\x00b", *OWN)


@pytest.mark.parametrize("place", HOSTILE_PLACES)
def test_no_section_writes_elsewhere(tmp_path, place):
    path = tmp_path / "x.toml"
    for told in (
        {"classify": {"name": place}},
        {"view": {"text": "a", "out": place}},
        {"view": {"text": "a", "name": "v", "out": place}},
        {"view": {"text": "a", "name": place, "out": "v.png"}},
        {"classify": {}, "model": {"name": "m", "out": place}},
    ):
        path.write_text(tomli_w.dumps({"model": {"name": "m"}, **told}), encoding="utf-8")
        with pytest.raises(InputError, match=r"x\.toml"):
            read_experiment(path, main)


def test_models_have_directories_of_their_own(tmp_path):
    path = tmp_path / "x.toml"
    for names, expected in (
        (["a/bert", "b/bert"], ["a_bert", "b_bert"]),
        (["..", "minilm"], ["model", "minilm"]),
        (["../bert", "gpt2"], ["bert", "gpt2"]),
        (["a/b", "a_b", "b"], ["0-a_b", "1-a_b", "2-b"]),
        ([".", ".."], ["0-model", "1-model"]),
    ):
        path.write_text(tomli_w.dumps({"model": {"names": names}, "classify": {}}), encoding="utf-8")
        assert [cell.place.name for cell in cells(read_experiment(path, main), Path("out"))] == expected


@pytest.mark.parametrize(
    ("told", "message"),
    [
        (
            {"corpus": {"files": "a.conllu"}},
            "[corpus] of x.toml has files = 'a.conllu'. Write a list such as",
        ),
        ({"corpus": {"file": ["a.conllu"]}}, "[corpus] of x.toml cannot have 'file'. Did you mean files?"),
        (
            {"classify": {"min-n": {"a": 1}}},
            "[classify] of x.toml has min-n = {'a': 1}. Write a text, a number",
        ),
        ({"ablate": {"overwrite": "no"}}, "[ablate] of x.toml has overwrite = 'no'. Write true or false."),
        (
            {"ablate": {"sweep": True}},
            "[ablate] of x.toml has sweep = True. Write a text, a number or a list",
        ),
        ({"view": {"text": ["a"], "out": "a.png"}}, "[view] of x.toml needs a text and an out."),
        ({"published": [{"where": 3}]}, "[[published]] of x.toml lacks what"),
    ],
)
def test_values_of_another_kind_are_refused(tmp_path, told, message):
    path = tmp_path / "x.toml"
    path.write_text(tomli_w.dumps({"model": {"name": "m"}, "classify": {}, **told}), encoding="utf-8")
    with pytest.raises(InputError) as refused:
        read_experiment(path, main)
    assert str(refused.value).startswith(message)


@pytest.mark.parametrize("text", ["[" * 5000, f"a = {'9' * 5000}", "a = {" * 5000])
def test_toml_that_is_too_much(tmp_path, text):
    path = tmp_path / "x.toml"
    path.write_text(f"x = {text}", encoding="utf-8")
    with pytest.raises(InputError, match=r"x.toml is no TOML"):
        read_experiment(path, main)


def test_printed_commands_mean_to_a_shell_what_they_mean_here(tmp_path):
    text = "$(touch owned); 'a' \"b\" `c` \\ \u00e4"
    for word in (text, "-x"):
        path = tmp_path / "x.toml"
        path.write_text(tomli_w.dumps({"model": {"name": "m"}, "view": {"text": word, "out": "v.png"}}))
        done = CliRunner().invoke(main, ["run", str(path), "--dry-run", "--out", str(tmp_path / "o o")])
        assert done.exit_code == 0, done.output
        typed = shlex.split(done.stdout)
        assert word in typed
        assert typed[0] == "headlens"
        assert tuple(typed[1:]) == next(steps(read_experiment(path, main), tmp_path / "o o")).typed
