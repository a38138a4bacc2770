"""Heatmaps of attention: one head with its tokens, or a grid of layers by heads."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING

from headlens.errors import InputError
from headlens.report.figures import InchFigure
from headlens.report.fonts import POINTS, families_for, text_size
from headlens.report.head_grid import draw_grid
from headlens.report.parts import (
    BAR_ROOM,
    LINE,
    MARGIN,
    Frame,
    about,
    attention,
    colour_bar,
    column,
    label,
    name_tokens,
    pooled,
    scale_of,
    show,
    thinned,
)

if TYPE_CHECKING:
    from headlens.view.maps import AttentionMaps

NARROWEST, WIDEST, LARGEST = 0.6, 9.2, 0.5  # inches: one map, one map, one cell
LARGEST_LABEL = 9.0  # points
MOST_CELLS = 1840  # along one side of it: one pixel each


def draw(maps: AttentionMaps, title: str | None = None, width: float | None = None) -> InchFigure:
    """Draw one head with its tokens, or all heads that the maps hold as a grid.

    Args:
        maps: the maps.
        title: instead of one that names the model and the heads.
        width: at most so many inches; by default as wide as the labels need.

    Returns:
        The figure.

    Raises:
        InputError: the maps do not fit into the width.
    """
    return draw_grid(maps, title, width) if len(maps.heads) > 1 else draw_head(maps, title, width)


def draw_head(maps: AttentionMaps, title: str | None = None, width: float | None = None) -> InchFigure:
    """Draw the one head that the maps hold: rows are queries, columns are keys.

    Args:
        maps: maps of one head.
        title: instead of one that names the model and the head.
        width: at most so many inches; by default as suits the number of tokens.

    Returns:
        The figure.

    Raises:
        InputError: the labels leave no room for the map.
    """
    head, scale = maps.heads[0], scale_of(maps)
    labels = [[label(token) for token in axis.tokens] for axis in maps.axes[head.stack]]
    image, factor = pooled(maps.pattern(head).numpy(), MOST_CELLS)
    title = label(title or f"{maps.model}: {attention(maps)} of head {maps.name(head)}", 90)
    families = families_for([title, *labels[0], *labels[1]])
    most = WIDEST if width is None else _room(width, labels[0], families)
    points, cell, step = _sizes(max(map(len, labels)), most)
    room = [text_size(names[::step], points, families)[0] + 0.1 for names in labels]
    left = MARGIN + 0.25 + room[0]
    cell = _widened(cell, len(labels[1]), left + BAR_ROOM + MARGIN, width)
    wide, high = len(labels[1]) * cell, len(labels[0]) * cell
    caption = "Rows: the query that looks; columns: the key that it looks at. " + about(maps)
    figure, top = Frame(title, caption + thinned(step, factor), families).figure(
        left - MARGIN + wide + BAR_ROOM, max(high + room[1] + 0.25, 1.5), width
    )
    axes = figure.place(left, top, wide, high)
    show(axes, image, (0, len(labels[1]), len(labels[0]), 0), scale)
    name_tokens(figure, axes, labels, step, points)
    axes.set_xlabel("key", fontsize=9, **figure.style)
    axes.set_ylabel("query", fontsize=9, **figure.style)
    colour_bar(figure, (left + wide + 0.2, top, max(1.3, min(high, 3))), scale)
    return figure


def _room(width: float, names: Sequence[str], families: Sequence[str]) -> float:
    """How wide the map can be in a figure of some width, beside its labels at their largest; in inches."""
    around = MARGIN + 0.25 + text_size(names, LARGEST_LABEL, families)[0] + 0.1 + BAR_ROOM + MARGIN
    if width < around + NARROWEST:
        raise InputError(
            f"One map with its labels does not fit into {width:g} inches.",
            f"Give a width of {math.ceil((around + NARROWEST) * 10) / 10:g} inches or more.",
        )
    return min(WIDEST, width - around)


def _widened(cell: float, count: int, around: float, most: float | None) -> float:
    """Make cells wider where that fills a column of a paper; all in inches."""
    spare = column(around + count * cell, most) - around - count * cell
    return max(cell, min(cell + spare / count, LARGEST))


def _sizes(longest: int, widest: float) -> tuple[float, float, int]:
    """Font size in points, side of a cell in inches, and of how many tokens one is labelled."""
    points = LARGEST_LABEL if longest <= 20 else 8 if longest <= 40 else 7
    line = points * LINE / POINTS
    cell = min(max(line, min(0.4, 3.2 / longest)), widest / longest)
    return points, cell, math.ceil(line / cell - 1e-9)
