import pandas as pd
import pytest
from click.testing import CliRunner

import headlens
from headlens.cli import main
from headlens.cli.options import ModelOptions
from headlens.report.canvas import DPI
from support import real, toys

WORKS = "Endings that work: .png .svg .pdf for heatmaps, .html for an interactive page, .csv for a table."


@pytest.fixture
def view(monkeypatch, tmp_path):
    """Run the command in an empty folder, with minilm loaded once for all tests."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(ModelOptions, "load", lambda self, model: toys.minilm())

    def run(*arguments, text=None):
        return CliRunner().invoke(main, ["view", "minilm", *arguments], input=text)

    return run


def test_one_head_as_a_picture(view, tmp_path):
    result = view("The dog chased its tail.", "--heads", "2.8", "--out", "dog.png")
    assert (result.exit_code, result.output) == (0, "Wrote dog.png: 1 head over 8 tokens.\n")
    assert (tmp_path / "dog.png").read_bytes().startswith(b"\x89PNG")


def test_table_of_words_from_stdin(view, tmp_path):
    result = view(
        "-", "--pair", "It slept.", "--words", "--drop-special", "--out", "a.csv", text="The dog ran.\n"
    )
    assert (result.exit_code, result.output) == (0, "Wrote a.csv: 72 heads over 7 words.\n")
    table = pd.read_csv(tmp_path / "a.csv")
    assert len(table) == 72 * 7 * 7
    assert list(table["key_token"][:7]) == ["The", "dog", "ran", ".", "It", "slept", "."]


def test_loading_for_real(tmp_path):
    real.need_minilm()
    out = str(tmp_path / "new" / "a.svg")
    result = CliRunner().invoke(main, ["view", "minilm", "Dogs run.", "--heads", "0.*", "--out", out])
    assert (result.exit_code, result.stdout) == (0, f"Wrote {out}: 12 heads over 5 tokens.\n")


def test_a_missing_glyph_is_one_line_on_stderr(view, monkeypatch):
    monkeypatch.setattr(
        "headlens.report.canvas._characters", lambda path: frozenset(map(ord, "abcdefghijklm"))
    )
    result = view("you", "--heads", "0.0,0.1", "--out", "a.png")
    assert (result.exit_code, result.stdout) == (0, "Wrote a.png: 2 heads over 3 tokens.\n")
    assert " characters are in no installed font and will be drawn as boxes (" in result.stderr
    assert result.stderr.startswith("Warning: ")
    assert result.stderr.count("\n") == 1


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("", "--out", "a.png"), "The text is empty. Give at least one word."),
        (
            ("a b c d", "--max-length", "5", "--out", "a.png"),
            "The text has 6 tokens, but --max-length allows 5. Shorten it or allow more; headlens never "
            "cuts a text silently.",
        ),
        (
            ("dog " * 600, "--out", "a.png"),
            "The text has 602 tokens, but BertModel takes at most 512. Shorten it, or look at it in parts; "
            "headlens never cuts a text silently.",
        ),
        (
            ("x", "--target", "y", "--out", "a.png"),
            "A target is for encoder-decoder models, but BertModel has no decoder that looks at an "
            "encoder. Leave --target out; a second text to read is given with --pair TEXT.",
        ),
    ],
)
def test_errors_are_one_line(view, tmp_path, arguments, message):
    result = view(*arguments)
    assert (result.exit_code, result.stdout) == (1, "")
    assert result.stderr == f"Error: {message}\n"
    assert not list(tmp_path.iterdir())


def test_no_such_head(view):
    result = view("x", "--heads", "9.9", "--out", "a.png")
    assert result.exit_code == 1
    assert result.stderr.startswith("Error: There is no head 9.9 in this model.")


def test_the_ending_is_looked_at_before_the_model(monkeypatch):
    monkeypatch.setattr(headlens, "load", lambda *_, **__: pytest.fail("the model was loaded"))
    result = CliRunner().invoke(main, ["view", "minilm", "x", "--out", "a.jpg"])
    assert result.exit_code == 1
    assert result.stderr == (
        "Error: The ending chooses the format; expected one that headlens writes, found the ending .jpg. "
        f"{WORKS}\n"
    )


def test_out_is_needed():
    result = CliRunner().invoke(main, ["view", "minilm", "x"])
    assert result.exit_code == 2
    assert "Missing option '--out'" in result.stderr


def test_help_shows_examples():
    result = CliRunner().invoke(main, ["view", "-h"])
    assert result.exit_code == 0
    assert 'headlens view minilm "The dog chased its tail."' in " ".join(result.output.split())


def test_a_picture_as_wide_as_a_paper(view, tmp_path):
    result = view("The dog ran.", "--width", "7", "--out", "a.png")
    assert (result.exit_code, result.output) == (0, "Wrote a.png: 72 heads over 6 tokens.\n")
    width = int.from_bytes((tmp_path / "a.png").read_bytes()[16:20])
    assert width <= 7 * DPI
    assert view("The dog ran.", "--width", "2", "--out", "a.png").output.startswith(
        "Error: The grid of 72 heads does not fit into 2 inches. Give a width of "
    )
    refused = view("The dog ran.", "--width", "7", "--out", "a.csv")
    assert refused.exit_code == 2
    assert "only pictures have one: --out FILE.png" in refused.output


@pytest.mark.parametrize(("typed", "text"), [("caf\udce9 is", None), ("-", b"caf\xe9 is")])
def test_a_broken_byte_is_one_warning(view, tmp_path, typed, text):
    result = view(typed, "--heads", "0.0", "--words", "--out", "a.csv", text=text)
    assert (result.exit_code, result.stdout) == (0, "Wrote a.csv: 1 head over 4 words.\n")
    assert result.stderr == (
        "Warning: 1 sign that is no character (a broken byte, say) was replaced by U+FFFD (\ufffd) in the "
        "text.\n"
    )
    page = view(typed, "--heads", "0.0", "--out", "a.html", text=text)
    assert page.exit_code == 0
    assert "caf\ufffd is" in (tmp_path / "a.html").read_text("utf-8")
