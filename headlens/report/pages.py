"""Figures as wide as one or two columns of a paper, with title and caption."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import pandas as pd

from headlens.report.figures import InchFigure, wrapped
from headlens.report.fonts import families_for
from headlens.report.parts import MARGIN, ONE_COLUMN, TWO_COLUMNS, column
from headlens.util.formatting import visible

__all__ = [
    "INSIDE",
    "ONE_COLUMN",
    "TWO_COLUMNS",
    "column",
    "count_heads",
    "head_names",
    "listing",
    "page",
]

INSIDE = TWO_COLUMNS - 2 * MARGIN  # inches


def page(
    title: str, caption: str, size: tuple[float, float], more: Iterable[str] = ()
) -> tuple[InchFigure, float]:
    """Make a figure of a given width around an area of a given height.

    Args:
        title: above; it says what was found.
        caption: below; it says how to read the figure.
        size: width of the figure and height of the area, in inches.
        more: other texts that the figure will show, so that its fonts have their characters.

    Returns:
        The figure, and the distance of the area from its upper edge in inches.
    """
    width, height = size
    title, caption = visible(title), visible(caption)
    families = families_for([title, caption, *more])
    title, above = wrapped(title, width - 2 * MARGIN, 9, families)
    caption, below = wrapped(caption, width - 2 * MARGIN, 7, families)
    figure = InchFigure(width, 4 * MARGIN + above + height + below, families)
    figure.write(MARGIN, MARGIN, title, 9)
    figure.write(MARGIN, 3 * MARGIN + above + height, caption, 7, color="0.25")
    return figure, 2 * MARGIN + above


def head_names(table: pd.DataFrame) -> list[str]:
    """Write the head of each row as users do: ``4.11``, with its stack where the table has several.

    Args:
        table: with the columns `stack`, `layer` and `head`.

    Returns:
        One name per row.
    """
    several = table["stack"].nunique() > 1
    return [
        f"{stack}.{layer}.{head}" if several else f"{layer}.{head}"
        for stack, layer, head in table[["stack", "layer", "head"]].itertuples(index=False)
    ]


def count_heads(table: pd.DataFrame) -> int:
    """Count the heads that a table speaks of."""
    return len(table[["stack", "layer", "head"]].drop_duplicates())


def listing(parts: Sequence[str]) -> str:
    """Join parts of a sentence: ``a, b and c``."""
    return " and ".join(filter(None, [", ".join(parts[:-1]), *parts[-1:]]))
