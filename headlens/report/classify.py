"""The figures of ``headlens classify``."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pandas as pd

from headlens.report.best_heads import best_heads, best_heads_figure
from headlens.report.entropy import MEASURE, entropy_figure
from headlens.report.figures import InchFigure, save_drawn
from headlens.report.offsets import offset_figure, offset_table
from headlens.report.tag_map import tag_map_figure

__all__ = [
    "best_heads_figure",
    "draw_all",
    "entropy_figure",
    "offset_figure",
    "save_figures",
    "tag_map_figure",
]

OWN_FIGURE = {"positional", "broad"}  # tags with a figure of another kind


def draw_all(scores: pd.DataFrame, tags: pd.DataFrame, model: str = "") -> Iterator[tuple[str, InchFigure]]:
    """Draw every figure that the tables have the numbers for.

    Args:
        scores: columns as in `headlens.util.files.SCORES`.
        tags: columns as in `headlens.util.files.TAGS`; both also as read from files.
        model: its name or path, for the titles; its folders are left out.

    Yields:
        The name of each figure (``tags``, ``best-syntactic``, ``offsets``, ``entropy``, ...), and the figure.
    """
    model = Path(model).name
    yield "tags", tag_map_figure(scores, tags, model)
    for tag in dict.fromkeys(scores["tag"]):
        if tag not in OWN_FIGURE and not best_heads(scores, tag).empty:
            yield f"best-{tag}", best_heads_figure(scores, tag, model)
    if not offset_table(scores).empty:
        yield "offsets", offset_figure(scores, model)
    if scores.loc[scores["measure"] == MEASURE, "score"].notna().any():
        yield "entropy", entropy_figure(scores, model)


def save_figures(scores: pd.DataFrame, tags: pd.DataFrame, out: Path, model: str = "") -> list[Path]:
    """Write every figure that the tables have the numbers for, as PNG and as SVG with its text as text.

    Args:
        scores: columns as in `headlens.util.files.SCORES`.
        tags: columns as in `headlens.util.files.TAGS`; both also as read from files.
        out: the run directory.
        model: its name or path, for the titles; its folders are left out.

    Returns:
        The files, ``figures/NAME.png`` and ``figures/NAME.svg`` of each; the same bytes every time.

    Raises:
        RunError: one cannot be written.
    """
    return save_drawn(draw_all(scores, tags, model), out)
