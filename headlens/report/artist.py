"""What draws results and writes their pages, as `headlens.util.drawing.Artist` says."""

from __future__ import annotations

import base64
from collections.abc import Iterator
from pathlib import Path

from markupsafe import Markup, escape
from matplotlib.figure import Figure

from headlens.corpus.corpus import Corpus
from headlens.report import viewer
from headlens.report.canvas import figure_bytes, save_drawn
from headlens.report.contribution_figures import draw as map_contributions
from headlens.report.contribution_figures import save as save_contributions
from headlens.report.heatmaps import draw as map_attention
from headlens.report.page.write import KINDS, open_run, write_report
from headlens.report.viewer import attention_page, in_frame
from headlens.report.viewer import save_maps as save_attention
from headlens.report.words import RunPlace
from headlens.runs.read import marks_of
from headlens.runs.result import EXAMPLES, Result
from headlens.util.files import write_text

open = open_run
__all__ = [
    "attention_page",
    "figures",
    "html",
    "in_frame",
    "map_attention",
    "map_contributions",
    "open",
    "png",
    "save_attention",
    "save_contributions",
    "save_examples",
    "save_figures",
    "write_report",
]


def figures(result: Result) -> Iterator[tuple[str, Figure]]:
    """Draw every figure that a result has the numbers for, the most telling one first, with their names."""
    yield from KINDS[result.command].figures(result)


def save_figures(result: Result, out: Path) -> None:
    """Write them into a run directory, and remove those of an earlier run."""
    save_drawn(figures(result), out)


def save_examples(result: Result, out: Path) -> None:
    """Write the attention on a few inputs into a run directory, where there are any."""
    shown = result.examples
    if shown is None:
        return
    if shown.text:
        write_text(shown.text, out / EXAMPLES)
        return
    look = viewer.of_corpus if isinstance(shown.source, Corpus) else viewer.of_benchmark
    viewer.save_examples(out, viewer.attempt(look, shown.lens, shown.source), marks_of(result.tables))


def png(figure: Figure) -> bytes:
    """Show a figure in a notebook."""
    return figure_bytes(figure, ".png", dpi=100)


def html(result: Result) -> str:
    """Show a result in a notebook: what was found in sentences, and the most telling figure."""
    section = KINDS[result.command].section(result, RunPlace(0, True))
    said = [Markup("<li>{}</li>").format(Markup(escape(one)).striptags()) for one in section.findings]
    parts = [Markup("<h3>{}</h3>").format(section.title), Markup("<ul>{}</ul>").format(Markup("").join(said))]
    for name, figure in figures(result):
        picture = base64.b64encode(png(figure)).decode()
        parts.append(Markup('<img alt="{}" src="data:image/png;base64,{}">').format(name, picture))
        break
    return Markup("").join(parts)
