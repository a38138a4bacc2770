"""Whatever the files of a run directory hold, it is read or refused, and what is wrong is named."""

import json
import random
import shutil

import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st

from headlens.ablation.measure import Units
from headlens.cli.experiment_published import TAKES, read_published
from headlens.errors import HeadlensError, RunError
from headlens.model.heads import Head
from headlens.report.artist import report_page
from headlens.runs.read import read_marks
from headlens.scoring.classify import Classification
from headlens.scoring.compare import compare
from headlens.util.files import CONTROLS
from support import finishedruns, hostile, similarruns

HEADS = [Head("encoder", layer, head) for layer in range(2) for head in range(2)]
CELLS = (
    *(
        "",
        "nan",
        "inf",
        "-inf",
        "1e999",
        "x",
        "-1",
        "0",
        "1.5",
        "9" * 25,
        "True",
        "\u0663",
        "1_0",
        "None",
        "NA",
    ),
    *("<b>", "=1", "encoder", "a;b", ";", '"', '"\n"', "\ufeff", "\0"),
)
VALUES = (
    *(
        None,
        True,
        False,
        0,
        -1,
        1.5,
        float("nan"),
        10**400,
        "",
        "x",
        "<b>",
        [],
        {},
        [1],
        {"a": 1},
        [[]],
        [None],
    ),
    *("\ud800", "\0", 1e308),
)


@pytest.fixture(scope="module")
def runs(tmp_path_factory):
    folder = tmp_path_factory.mktemp("runs")
    controls = [("tag x", "spearman", 0.4, 0.5, 0.4, 0.6, 0.1, 20, 1)]
    made = {
        "classify": finishedruns.classify_run(folder / "classify"),
        "ablate": finishedruns.ablate_run(
            folder / "ablate", controls=pd.DataFrame(controls, columns=CONTROLS)
        ),
        "compare": finishedruns.compare_run(folder / "compare"),
        "similar": similarruns.similar_run(folder / "similar"),
    }
    for path in made.values():
        assert report_page([path])
    return made


def changed_json(told, chance):
    """Another value somewhere, or one less."""
    holder, key, inside = None, None, told
    while isinstance(inside, dict | list) and inside and (holder is None or chance.random() < 0.7):
        holder, key = inside, chance.choice(list(inside) if isinstance(inside, dict) else range(len(inside)))
        inside = holder[key]
    if chance.random() < 0.2:
        del holder[key]
    else:
        holder[key] = chance.choice(VALUES)
    return json.dumps(told, ensure_ascii=chance.random() < 0.5)


def changed_csv(text, chance):
    lines = text.split("\n")
    for _ in range(chance.choice((1, 1, 1, 3))):
        place = chance.randrange(len(lines))
        row = lines[place].split(",")
        column = chance.randrange(len(row))
        row[column : column + chance.choice((0, 1, 1, 1))] = [chance.choice(CELLS)][: chance.randrange(6)]
        lines[place : place + 1] = chance.choice(([",".join(row)], [",".join(row)], [",".join(row)] * 2))
    return "\n".join(lines)


@st.composite
def changes(draw):
    """How a file is changed: its bytes, its cells or its values."""
    chance = random.Random(draw(st.integers(0, 2**32)))

    def change(path):
        raw = path.read_bytes()
        if path.suffix == ".json" and chance.random() < 0.8:
            return changed_json(json.loads(raw), chance).encode("utf-8", "surrogatepass")
        if path.suffix == ".csv" and chance.random() < 0.8:
            return changed_csv(raw.decode(), chance).encode()
        return draw(hostile.damaged(raw))

    return chance, change


@hostile.examples(60)
@given(changes())
def test_any_run(runs, tmp_path_factory, drawn):
    chance, change = drawn
    kind = chance.choice(list(runs))
    path = tmp_path_factory.getbasetemp() / "any-run"
    shutil.rmtree(path, ignore_errors=True)
    shutil.copytree(runs[kind], path)
    files = sorted(file for file in path.rglob("*") if file.suffix in (".csv", ".json", ".svg"))
    file = chance.choice(files)
    file.write_bytes(change(file))
    calls = [lambda: report_page([path]), lambda: read_marks([path], HEADS)]
    if kind == "classify":
        calls.append(lambda: compare(Classification.read(path), Classification.read(runs["classify"])))
    for call in calls:
        found = hostile.result_or_refusal(call)
        assert not isinstance(found, HeadlensError) or isinstance(found, RunError)


def test_a_cell_that_is_no_truth_makes_not_all_of_them_true(runs, tmp_path):
    path = shutil.copytree(runs["classify"], tmp_path / "run")
    text = (path / "scores.csv").read_text()
    (path / "scores.csv").write_text(text.replace("False\n", "Flase\n", 1))
    with pytest.raises(RunError, match=r"scores.csv has rows whose tagged is neither True nor False\."):
        Classification.read(path)


@pytest.mark.parametrize("name", ["run.json", "scores.csv", "tags.csv", "figures/tags.svg", "examples.json"])
def test_what_is_no_file_is_refused_at_once(runs, tmp_path, name):
    for number, odd in enumerate(hostile.no_files(tmp_path, "x")[:7]):
        path = shutil.copytree(runs["classify"], tmp_path / str(number))
        (path / name).unlink(missing_ok=True)
        (path / name).symlink_to(odd)
        found = hostile.result_or_refusal(report_page, [path])
        assert isinstance(found, RunError) or name == "examples.json"


@pytest.mark.parametrize(
    "inside",
    [
        "<g>" * 5000 + "</g>" * 5000,
        "<text>&a;</text>",
        "<text>" + "&lol9;" * 10 + "</text>",
        '<a href="javascript:alert(1)"><text onclick="evil()">t</text></a><script>evil()</script>',
    ],
)
def test_any_figure(runs, tmp_path, inside):
    path = shutil.copytree(runs["classify"], tmp_path / "run")
    laughs = "".join(f'<!ENTITY lol{n} "{f"&lol{n - 1};" * 10 if n else "lol"}">' for n in range(10))
    kinds = f'<!DOCTYPE svg [<!ENTITY a SYSTEM "file:///etc/passwd">{laughs}]>'
    drawing = f'{kinds}<svg xmlns="http://www.w3.org/2000/svg" width="9" height="9">{inside}</svg>'
    (path / "figures" / "tags.svg").write_text(drawing)
    found = hostile.result_or_refusal(report_page, [path])
    if not isinstance(found, RunError):
        assert not [word for word in ("root:x", "alert(1)", "evil()", "lollol") if word in found]


@hostile.examples(60)
@given(
    st.text(st.sampled_from('a,1"\n.x-'), max_size=60),
    st.sampled_from(["a", "1", "x"]),
    st.sampled_from(list(TAKES)),
    st.sampled_from(["a", 1, 1.5, True, ["a", 1], []]),
    st.sampled_from(["t.csv", "t.json"]),
)
def test_published_figures_of_any_table(tmp_path_factory, text, column, take, wanted, table):
    place = tmp_path_factory.getbasetemp()
    (place / "r").mkdir(exist_ok=True)
    (place / "r" / table).write_text(f"a,1,x\n{text}" if table == "t.csv" else f'{{"a": {text}}}')
    told = {
        "what": "w",
        "value": 1,
        "source": "s",
        "run": "r",
        "table": table,
        "column": column,
        "take": take,
    }
    more = {"where": {"a": wanted}} if table == "t.csv" else {}
    more |= {"above": 0.5} if take == "share" else {}
    figure = read_published({**told, **more}, ["r"], "x.toml")
    found = hostile.result_or_refusal(figure.measured, place)
    assert isinstance(found, float | HeadlensError)


@pytest.mark.parametrize(
    "content", [b"", b"PK\3\4", b"\x93NUMPY\1\0", b"[1]", b"null", b"{}", b'{"a": 1}', b"[" * 9999]
)
def test_units_that_are_damaged_are_measured_again(tmp_path, content):
    (tmp_path / "units").mkdir()
    (tmp_path / "units" / "key.json").write_bytes(content)
    with pytest.raises(RunError, match="holds another run"):
        Units(tmp_path, {"a": 2})
    units = Units(tmp_path, {"a": 2}, overwrite=True)
    for name in ("x.npy", "x.json"):
        (tmp_path / "units" / name).write_bytes(content)
    assert units.load("x", 3) is None
    assert units.load_facts("x") in (None, [1], {}, {"a": 1})
