import lxml.html
import pandas as pd
import pytest
from click.testing import CliRunner

from headlens.ablation.result import BEST
from headlens.cli import main
from support import finishedruns
from support.toytext import store_bert, toy_pairs, write_pairs


@pytest.fixture
def runs(tmp_path):
    return (
        finishedruns.classify_run(tmp_path / "c"),
        finishedruns.ablate_run(tmp_path / "a"),
        finishedruns.compare_run(tmp_path / "d"),
    )


def report(*arguments):
    return CliRunner().invoke(main, ["report", *map(str, arguments)])


def test_several_runs_become_one_page(runs, tmp_path):
    out = tmp_path / "all.html"
    done = report(*runs, "--out", out)
    assert (done.exit_code, done.output) == (0, f"Wrote {out}: 3 runs.\n")
    page = lxml.html.parse(out)
    assert page.xpath("//section/h2[contains(@id, 'title')]/text()") == [
        "What the heads of toy look at (c)",
        "What toy loses without its heads: each (a)",
        "What changed from one to two (d)",
    ]


def test_one_run(runs, tmp_path):
    done = report(runs[1], "--out", tmp_path / "new" / "one.HTML")
    assert (done.exit_code, done.output) == (0, f"Wrote {tmp_path / 'new' / 'one.HTML'}: 1 run.\n")


@pytest.mark.parametrize(
    ("arguments", "code", "message"),
    [
        (["--out", "x.html"], 2, "Error: Missing argument 'RUN...'."),
        (["{run}"], 2, "Error: Missing option '--out'."),
        (
            ["{run}", "--out", "x.pdf"],
            2,
            "Error: Invalid value for --out: expected a file that ends in .html, found x.pdf",
        ),
        (
            ["{run}", "--out", "x"],
            2,
            "Error: Invalid value for --out: expected a file that ends in .html, found x",
        ),
        (
            ["{run}", "nowhere", "--out", "x.html"],
            1,
            "Error: Expected the directory of a finished run of headlens classify, ablate, compare, run, "
            "similar or contributions; there is no directory nowhere. Give what you gave a headlens "
            "classify, ablate, compare, run, similar or contributions as --out.",
        ),
    ],
)
def test_errors_say_what_to_type(runs, tmp_path, monkeypatch, arguments, code, message):
    monkeypatch.chdir(tmp_path)
    done = report(*(text.format(run=runs[0]) for text in arguments))
    assert done.exit_code == code
    assert done.stderr.splitlines()[-1] == message
    assert not (tmp_path / "x.html").exists()


def test_help_shows_how():
    done = report("-h")
    assert done.exit_code == 0
    assert "headlens report runs/minilm --out report.html" in done.output


def test_a_real_sweep_is_told_from_its_directory(tmp_path):
    store_bert(tmp_path / "model")
    pairs = write_pairs(tmp_path / "p.tsv", toy_pairs())
    out = tmp_path / "run"
    arguments = [
        "ablate",
        tmp_path / "model",
        "--benchmark",
        pairs,
        "--sweep",
        "only",
        "--out",
        out,
        "--quiet",
    ]
    done = CliRunner().invoke(main, list(map(str, arguments)))
    assert done.exit_code == 0, done.output
    assert "best_of_layers.csv" in done.stdout.splitlines()[-1]
    assert "report.html" in done.stdout.splitlines()[-1]
    best = pd.read_csv(out / "best_of_layers.csv", dtype={"kept": str})
    assert list(best) == BEST
    assert report(out, "--out", tmp_path / "again.html").exit_code == 0
    assert (tmp_path / "again.html").read_bytes() == (out / "report.html").read_bytes()
    page = lxml.html.parse(out / "report.html")
    title = 'h3[text()="The best head of each layer"]'
    rows = page.xpath(f'//{title}/following-sibling::div[@class="table"][1]//tbody/tr')
    assert [row[1].text_content() for row in rows] == best["kept"].tolist()
    assert [row[2].text_content() for row in rows] == [f"{delta:+.4f}" for delta in best["delta"]]


def test_a_comparison_does_not_write_over_a_run(runs):
    before = (runs[0] / "run.json").read_bytes()
    done = CliRunner().invoke(main, ["compare", str(runs[0]), str(runs[0]), "--out", str(runs[0])])
    assert done.exit_code == 1
    assert done.stderr == f"Error: {runs[0]} holds what headlens classify wrote. Choose another --out.\n"
    assert (runs[0] / "run.json").read_bytes() == before
