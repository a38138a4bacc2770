"""``headlens view``: the attention of one input, as heatmaps or as a table."""

from __future__ import annotations

import io
import sys
from pathlib import Path
from typing import Any

import click

from headlens.cli.options import Command, ModelOptions, model_options, say, spoken_warnings, text_options


@click.command(
    cls=Command,
    writes="file",
    epilog='Examples:  headlens view minilm "The dog chased its tail." --heads 2.8 --out dog.png  |  '
    'headlens view minilm "A man sleeps." --pair "He is awake." --words --out pair.svg  |  '
    'headlens view ./my-translator "Good day" --target "Guten Tag" --heads "cross.*.*" --out cross.pdf  |  '
    'headlens view minilm "The dog barks." --tags runs/minilm --out dog.html  |  '
    "headlens view model.gguf - --out all.csv < text.txt",
)
@click.argument("model")
@text_options
@click.option("--words", is_flag=True, help="Merge pieces: the sum to a word, the mean from it.")
@click.option("--drop-special", is_flag=True, help="Leave out special tokens; rows are not renormalised.")
@click.option(
    "--lens",
    "measure",
    type=click.Choice(["weights", "norms"]),
    default="weights",
    show_default=True,
    help="norms: weights times the length of what a key hands over (Kobayashi et al. 2020).",
)
@click.option(
    "--tags",
    "runs",
    multiple=True,
    type=click.Path(path_type=Path),
    metavar="RUN",
    help="For .html: a run of classify (tags) or ablate (importance) to show along; may be repeated.",
)
@click.option(
    "--width",
    type=click.FloatRange(2, 60),
    metavar="INCHES",
    help="For .png .svg .pdf: at most so wide, 3.4 or 7 for one or two columns of a paper; a grid then "
    "names no tokens.  [default: as wide as the labels need]",
)
@click.option(
    "--out",
    required=True,
    metavar="FILE",
    help="The ending chooses: .png .svg .pdf heatmaps, .html interactive page, .csv table.",
)
@model_options
def command(
    model: str,
    text: str,
    pair: str | None,
    target: str | None,
    heads: str | None,
    words: bool,
    drop_special: bool,
    measure: str,
    runs: tuple[Path, ...],
    width: float | None,
    out: str,
    options: ModelOptions,
) -> None:
    """Show what the attention heads of MODEL look at in TEXT.

    One head is drawn with its tokens, several as a grid with a row for each layer; a page shows either, with
    lines between tokens, and needs no network. TEXT is - to read it from standard input. A text that is
    longer than the model takes is refused, never cut.
    """
    from headlens.report.viewer import view_ending

    ending = view_ending(out)  # before the model is loaded: that takes a while
    if runs and ending != ".html":
        raise click.BadParameter(
            "tags and importance are shown on a page: --out FILE.html", param_hint="--tags"
        )
    if width is not None and ending in (".html", ".csv"):
        raise click.BadParameter("only pictures have one: --out FILE.png", param_hint="--width")
    if text == "-":
        text = _typed()
    lens = options.load(model)
    from headlens.runs.read import read_marks
    from headlens.view.maps import attention_maps

    with spoken_warnings():
        maps = attention_maps(lens, text, pair, target, heads=heads, max_length=options.max_length)
        if ending == ".html":
            marks = read_marks(runs, lens)
            maps.to_html(out, marks, **_start(words, drop_special, measure))
        else:
            maps = maps.to_norms() if measure == "norms" else maps
            maps = maps.to_words() if words else maps
            maps = maps.drop_special() if drop_special else maps
            maps.save(out, width=width)
    count, unit = len(maps.heads), "words" if maps.by_words else "tokens"
    say(f"Wrote {Path(out)}: {count} head{'s' * (count != 1)} over {len(maps.tokens)} {unit}.")


def _typed() -> str:
    """Read standard input; a byte that is no text of its encoding becomes a sign that stands for it."""
    if isinstance(sys.stdin, io.TextIOWrapper):
        sys.stdin.reconfigure(errors="surrogateescape")
    return sys.stdin.read()


def _start(words: bool, drop_special: bool, measure: str) -> dict[str, Any]:
    """What a page shows first; it holds the rest as well."""
    said = {"unit": "words"} if words else {}
    return (
        said
        | ({"special": False} if drop_special else {})
        | ({"lens": "norms"} if measure == "norms" else {})
    )
