import pandas as pd
import pytest
from click.testing import CliRunner

import headlens
from headlens.cli import main
from headlens.cli.options import ModelOptions
from headlens.residual.contributions import CONTRIBUTIONS
from support import toys

NO_HEAD = "BertModel has no language head, so heads have no effect on a logit: logit is empty.\n"


@pytest.fixture
def contributions(monkeypatch, tmp_path):
    """Run the command in an empty folder, with minilm loaded once for all tests, or a small GPT-2."""
    monkeypatch.chdir(tmp_path)
    # minilm is loaded here, so that its progress bar is in no result
    models = {
        "gpt2": toys.family("gpt2"),
        "minilm": toys.minilm(),
    }
    monkeypatch.setattr(ModelOptions, "load", lambda self, model: models[model])

    def run(*arguments, text=None):
        return CliRunner().invoke(main, ["contributions", *arguments], input=text)

    return run


def test_a_table_of_a_real_model(contributions, tmp_path):
    result = contributions("minilm", "The dog chased its tail.", "--out", "dog.csv")
    assert result.exit_code == 0
    assert result.stdout == (
        "Most is written by 5.11 (3.9), 5.7 (3.4) and 4.10 (3.1): mean length over tokens.\n"
        "Largest shares of the residual stream: 5.11 (0.087), 4.10 (0.084) and 5.7 (0.084); means over "
        "tokens.\n"
        "All of a layer's attention is 0.12 (layer 1) to 0.34 (layer 5) of the stream.\n"
        f"{NO_HEAD}Wrote dog.csv: 72 heads over 8 tokens.\n"
    )
    table = pd.read_csv(tmp_path / "dog.csv")
    assert list(table) == CONTRIBUTIONS
    assert len(table) == 6 * (12 + 1)
    assert table.groupby("layer")["branch_share"].sum().to_numpy() == pytest.approx([1] * 6, abs=1e-5)
    assert table[["position", "token", "logit"]].isna().all(axis=None)
    assert (tmp_path / "dog.csv").read_text().splitlines()[13].startswith("encoder,0,,,,,")


def test_token_by_token_from_stdin(contributions, tmp_path):
    result = contributions("gpt2", "-", "--per-token", "--heads", "1.*", "--out", "a.csv", text=toys.SOURCE)
    assert result.exit_code == 0
    table = pd.read_csv(tmp_path / "a.csv")
    assert len(table) == (4 + 1) * 6
    assert list(table["token"][:5]) == toys.SOURCE.split()
    assert table["logit"].notna().sum() == 5
    assert result.stdout.endswith("Wrote a.csv: 4 heads over 6 tokens.\n")


def test_a_picture_of_effects_on_a_logit(contributions, tmp_path):
    result = contributions(
        "gpt2", toys.SOURCE, "--token", "tail", "--position", "3", "--measure", "logit", "--out", "a.svg"
    )
    assert result.exit_code == 0
    assert "Logit of 'tail' at position 3: " in result.stdout
    assert "\nFor it: " in result.stdout
    assert "\nAgainst it: " in result.stdout
    assert "the logit of 'tail' most" in " ".join((tmp_path / "a.svg").read_text().split())


@pytest.mark.parametrize("out", ["a.png", "a.pdf"])
@pytest.mark.parametrize("more", [(), ("--per-token",), ("--measure", "stream_share")])
def test_other_pictures(contributions, tmp_path, out, more):
    result = contributions("minilm", "Dogs run.", *more, "--out", out)
    assert (result.exit_code, result.stderr) == (0, "")
    assert (tmp_path / out).read_bytes()[:4] in (b"\x89PNG", b"%PDF")


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("gpt2", "", "--out", "a.csv"), "The text is empty. Give at least one word."),
        (
            ("gpt2", "the dog", "--token", "the dog", "--out", "a.csv"),
            "--token must be one token, but 'the dog' is 2: the | dog. Give one of them, or another word; a "
            "blank before a word counts.",
        ),
        (
            ("gpt2", "the dog", "--position", "7", "--out", "a.csv"),
            "There is no position 7: the text has 3 tokens. Positions count from 0: give one from 0 to 2.",
        ),
        (
            ("minilm", "Dogs run.", "--measure", "logit", "--out", "a.png"),
            f"There is no logit to draw. {NO_HEAD.strip()} Or take another measure.",
        ),
        (
            ("minilm", "Dogs run.", "--out", "a.html"),
            "The ending chooses the format; expected one that headlens writes, found the ending .html. "
            "Endings that work: .png .svg .pdf for a heatmap, .csv for a table.",
        ),
    ],
)
def test_errors_are_one_line(contributions, tmp_path, arguments, message):
    result = contributions(*arguments)
    assert (result.exit_code, result.stdout) == (1, "")
    assert result.stderr == f"Error: {message}\n"
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("--measure", "cosine", "--out", "a.csv"), "a table has all measures; leave it out"),
        (("--measure", "logit", "--per-token", "--out", "a.png"), "leave --per-token out"),
        ((), "Missing option '--out'"),
    ],
)
def test_wrong_usage(monkeypatch, arguments, message):
    monkeypatch.setattr(headlens, "load", lambda *_, **__: pytest.fail("the model was loaded"))
    result = CliRunner().invoke(main, ["contributions", "minilm", "x", *arguments])
    assert result.exit_code == 2
    assert message in result.stderr


def test_help_shows_examples():
    result = CliRunner().invoke(main, ["contributions", "-h"])
    assert result.exit_code == 0
    assert 'headlens contributions minilm "The dog chased its tail."' in " ".join(result.output.split())


@pytest.mark.slow
def test_the_capital_of_france():
    """A real model predicts Paris, and the head that looks it up is the one for it."""
    lens = toys.smollm2()
    found = headlens.contributions(lens, "The capital of France is")
    assert (found.token, found.position) == ("Paris", 4)
    table = found.table
    top = table.loc[table["logit"].idxmax()]
    assert (top["layer"], top["head"]) == (23, 4)
    assert table.groupby("layer")["branch_share"].sum().to_numpy() == pytest.approx([1] * 30, abs=1e-5)
    assert table["stream_share"].notna().all()
    assert found.notes == ()
