import lxml.html
import pytest
from click.testing import CliRunner

import finishedruns
from headlens.cli import main


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
            "Error: Expected the directory of a finished run of headlens classify, ablate or compare; "
            "there is no "
            "directory nowhere. Give what you gave a headlens classify, ablate or compare as --out.",
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
