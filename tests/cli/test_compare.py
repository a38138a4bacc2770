import matplotlib
import pandas as pd
import pytest
from click.testing import CliRunner
from matplotlib.colors import to_hex

from headlens.cli import COMMANDS, main
from headlens.report.tag_figures import changes_figure
from headlens.scoring.classify import Classification
from headlens.scoring.compare import BY_MEASURE, BY_TAG, HEADS, compare
from support import scored

FIRST = {("encoder", 0, 0): ["delimiter"], ("encoder", 0, 1): ["syntactic", "delimiter"]}
SECOND = {("encoder", 0, 1): ["delimiter"], ("encoder", 1, 1): ["delimiter"]}


@pytest.fixture(autouse=True)
def registered(monkeypatch):
    monkeypatch.setitem(COMMANDS, "compare", "headlens.cli.compare")


@pytest.fixture
def runs(tmp_path):
    one, two = scored.tag_rows(2, 2, tags=FIRST), scored.tag_rows(2, 2, tags=SECOND)
    return (
        scored.write_run(tmp_path / "one", scores(one), one, corpus={"sha256": "a"}),
        scored.write_run(tmp_path / "two", scores(two), two, corpus={"sha256": "b"}),
    )


def scores(heads, tags=("delimiter", "syntactic", "semantic")):
    return pd.concat(
        [scored.score_rows(heads, tag, tag, lambda layer, head: (2 * layer + head) / 10) for tag in tags]
    )


def run_compare(*arguments):
    return CliRunner().invoke(main, ["compare", *map(str, arguments)])


def test_what_is_said_and_written(runs, tmp_path):
    done = run_compare(*runs, "--out", tmp_path / "out")
    assert done.exit_code == 0, done.output
    assert done.stderr == ""
    assert done.stdout.splitlines() == [
        "tag              first  second  both  gained  lost   kappa     rho",
        "delimiter            2       2     1       1     1    0.00    1.00",
        "syntactic            1       0     0       0     1    0.00    1.00",
        "semantic             0       0     0       0     0       -    1.00",
        "all                  3       2     1       1     2    0.25       -",
        "of 4 heads. rho: median Spearman correlation over heads of the tag's scores.",
        "kappa is not defined where no head or every head carries the tag in both runs: semantic.",
        "The runs differ in: corpus.",
        "Gained (+) or lost (-):",
        "  0.0           -delimiter",
        "  0.1           -syntactic",
        "  1.1           +delimiter",
        "",
        "Wrote report.html, compare_heads.csv, compare_tags.csv, compare_scores.csv, figures/changes.png, "
        f"figures/changes.svg and run.json to {tmp_path / 'out'}.",
    ]
    tables = {
        name: pd.read_csv(tmp_path / "out" / f"compare_{name}.csv") for name in ("heads", "tags", "scores")
    }
    assert [list(table) for table in tables.values()] == [HEADS, BY_TAG, BY_MEASURE]
    text = (tmp_path / "out" / "compare_tags.csv").read_text()
    assert text.splitlines()[1:4] == ["delimiter,2,2,1,1,1,0", "syntactic,1,0,0,0,1,0", "semantic,0,0,0,0,0,"]


def test_the_same_bytes_twice(runs, tmp_path):
    for name in ("out", "again"):
        assert run_compare(*runs, "--out", tmp_path / name).exit_code == 0
    written = sorted(path.relative_to(tmp_path / "out") for path in (tmp_path / "out").rglob("*.*"))
    files = [path for path in written if path.name not in ("run.json", "report.html")]  # these name --out
    assert (len(written), len(files)) == (7, 5)
    for file in files:
        assert (tmp_path / "out" / file).read_bytes() == (tmp_path / "again" / file).read_bytes()


def test_a_run_with_itself_writes_nothing_without_out(runs, tmp_path):
    before = sorted(tmp_path.rglob("*"))
    done = run_compare(runs[0], runs[0])
    assert done.exit_code == 0
    assert done.stdout.splitlines()[-2:] == [
        "The runs differ in: nothing that run.json tells.",
        "No head gained or lost a tag.",
    ]
    assert sorted(tmp_path.rglob("*")) == before


def test_long_lists_are_cut_and_tags_of_one_run_are_told(tmp_path):
    heads = {("encoder", layer, head): ["delimiter"] for layer in range(4) for head in range(4)}
    one, two = scored.tag_rows(4, 4), scored.tag_rows(4, 4, tags=heads)
    done = run_compare(
        scored.write_run(tmp_path / "one", scores(one), one),
        scored.write_run(tmp_path / "two", scores(two, ["delimiter"]), two),
    )
    lines = done.stdout.splitlines()
    assert lines[1:3] == [
        "delimiter            0      16     0      16     0    0.00    1.00",
        "syntactic            0       -     -       -     -       -       -",
    ]
    assert "Only one run looked for syntactic, semantic: not compared." in lines
    assert lines[-2:] == ["  2.3           +delimiter", "  and 4 more heads"]


def test_errors_are_one_line(runs, tmp_path):
    done = run_compare(runs[0], tmp_path / "nowhere")
    assert done.exit_code == 1
    assert done.stderr == (
        "Error: Expected the directory of a finished run of headlens classify; there is no directory "
        f"{tmp_path / 'nowhere'}. Give what you gave a headlens classify as --out.\n"
    )
    assert run_compare(runs[0]).exit_code == 2


def test_the_figure_shows_what_changed(runs):
    figure = changes_figure(compare(*map(Classification.read, runs)))
    tiles = [patch for patch in figure.axes[0].patches if patch.get_label() != "cell"]
    assert [tile.get_label() for tile in tiles] == [
        "delimiter lost", "syntactic lost", "delimiter kept", "delimiter gained"
    ]  # fmt: skip
    assert to_hex(tiles[0].get_facecolor()) == "#ffffff"
    assert to_hex(tiles[3].get_edgecolor()) == "#000000"
    texts = [text.get_text() for text in figure.axes[1].texts if len(text.get_text()) > 1]
    assert texts == [
        "delimiter: 1 kept, 1 gained, 1 lost, kappa 0.00",
        "syntactic: 0 kept, 0 gained, 1 lost, kappa 0.00",
        "semantic: 0 kept, 0 gained, 0 lost, kappa not defined",
        "only in the second run",
        "only in the first run",
    ]
    title, caption = (text.get_text().replace("\n", " ") for text in figure.texts[:2])
    assert title == ("3 of 4 heads changed their tags; tags gained: 1, lost: 2, kept: 1, kappa 0.25")
    assert caption.endswith("First run: one (toy); second: two (toy).")
    width, height = figure.canvas.get_width_height()
    figure.draw(figure.canvas.get_renderer())
    for text in figure.findobj(matplotlib.text.Text):
        box = text.get_window_extent()
        assert box.x1 <= width
        assert box.y1 <= height


def test_the_figure_of_runs_that_share_nothing(tmp_path):
    heads = scored.tag_rows(1, 2)
    runs = [
        Classification.read(scored.write_run(tmp_path / tag, scores(heads, [tag]), heads))
        for tag in ("delimiter", "semantic")
    ]
    title, caption = (text.get_text().replace("\n", " ") for text in changes_figure(compare(*runs)).texts[:2])
    assert title == "The two runs looked for different tags"
    assert caption.endswith("Only one run looked for delimiter, semantic: left out.")
