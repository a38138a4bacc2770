"""The panels of a grid of heatmaps: how large they are, and one image of all that a stack has."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from headlens.errors import InputError
from headlens.report.figures import DPI
from headlens.report.fonts import POINTS
from headlens.report.parts import BAR_ROOM, LINE, MARGIN, Array, pooled

if TYPE_CHECKING:
    from headlens.view.maps import AttentionMaps

SMALL = 6.0  # points: no text is smaller
MOST_CELLS = 128  # along one side of a panel
SMALLEST, LARGEST = 0.64, 2.4  # inches: a panel
WIDEST, HIGHEST = 9.6, 12.0  # inches: a row and a column of panels, where they can be as small
LABELLED = 18.0  # inches: tokens are labelled where panels that have room for it fit into this square
GAP, MARK = 0.07, 0.13  # inches between columns, and above each panel for its mark
LEFT = MARGIN + 0.55  # inches before the first column, where no tokens stand
CLOSEST = 0.18  # inches from one column to the next that their numbers need


@dataclass(frozen=True, slots=True)
class Block:
    """All panels of one stack, composed into one image.

    Args:
        stack: which stack.
        rows: layer numbers, from top to bottom.
        columns: head numbers, from left to right.
        image: weights with NaN between the panels.
        corners: (layer, head, left, top) of every panel, in inches from the image's upper left corner.
        panel: width and height of a panel, in inches.
        size: width and height of the image, in inches.
        factor: side of the square of weights that one cell stands for.
        several: whether the model has other stacks besides.
    """

    stack: str
    rows: tuple[int, ...]
    columns: tuple[int, ...]
    image: Array
    corners: tuple[tuple[int, int, float, float], ...]
    panel: tuple[float, float]
    size: tuple[float, float]
    factor: int
    several: bool = False


def compose(maps: AttentionMaps, stack: str, side: float) -> Block:
    """Compose all panels of a stack into one image.

    Args:
        maps: the maps.
        stack: which stack.
        side: about the width and height of a panel, in inches; cells become a whole number of pixels.

    Returns:
        The block.
    """
    heads = [head for head in maps.heads if head.stack == stack]
    rows = tuple(sorted({head.layer for head in heads}))
    columns = tuple(sorted({head.head for head in heads}))
    most = min(MOST_CELLS, int(side * DPI))
    panels = {(head.layer, head.head): pooled(maps.pattern(head).numpy(), most) for head in heads}
    first, factor = next(iter(panels.values()))
    repeats, units, gaps = _measures(first.shape, side)
    high, wide = (count * repeat for count, repeat in zip(first.shape, repeats, strict=True))
    shape = len(rows) * (high + gaps[0]), len(columns) * (wide + gaps[1]) - gaps[1]
    image = np.full(shape, np.nan, dtype=np.float32)
    corners = []
    for (layer, number), (panel, _) in panels.items():
        top = rows.index(layer) * (high + gaps[0]) + gaps[0]
        left = columns.index(number) * (wide + gaps[1])
        image[top : top + high, left : left + wide] = panel.repeat(repeats[0], 0).repeat(repeats[1], 1)
        corners.append((layer, number, left * units[1], top * units[0]))
    size = shape[1] * units[1], shape[0] * units[0]
    several = len({site.stack for site in maps.sites}) > 1
    return Block(
        stack, rows, columns, image, tuple(corners), (wide * units[1], high * units[0]), size, factor, several
    )


def _measures(
    shape: tuple[int, ...], side: float
) -> tuple[tuple[int, int], tuple[float, float], tuple[int, int]]:
    """How often a cell is repeated, how large that is in inches, and how many of it are between panels.

    Cells are a whole number of pixels, and gaps a whole number of what is drawn; rows first, then columns.
    """
    cells = [max(1, round(side * DPI / count)) / DPI for count in shape]
    high, wide = (math.ceil(cell / GAP) for cell in cells)
    units = (cells[0] / high, cells[1] / wide)
    gaps = (math.ceil(MARK / units[0] - 1e-9), math.ceil(GAP / units[1] - 1e-9))
    return (high, wide), units, gaps


def side_within(maps: AttentionMaps, width: float) -> float:
    """Find the largest panels with which all columns fit into a width.

    Args:
        maps: the maps.
        width: of the whole figure, in inches.

    Returns:
        Their side, in inches.

    Raises:
        InputError: there is no room for so many heads.
    """
    around = LEFT + BAR_ROOM + MARGIN
    sides = [float(side) for side in np.arange(LARGEST, 0, -1 / DPI) if side * DPI >= 1]
    needed = {side: around + _across(maps, side) for side in sides}
    for side in sides:
        if needed[side] <= width:
            return side
    enough = math.ceil(min(needed.values()) * 10) / 10
    raise InputError(
        f"The grid of {len(maps.heads)} heads does not fit into {width:g} inches.",
        f"Give a width of {enough:g} inches or more, or choose fewer heads.",
    )


def _across(maps: AttentionMaps, side: float) -> float:
    """How wide the widest row of panels is, in inches; infinite where its columns stand too close."""
    widths = []
    for stack, axes in maps.axes.items():
        n_columns = len({head.head for head in maps.heads if head.stack == stack})
        factor = math.ceil(max(map(len, axes)) / min(MOST_CELLS, int(side * DPI)))
        high, wide = (math.ceil(len(axis) / factor) for axis in axes)
        (_, repeat), (_, unit), (_, gap) = _measures((high, wide), side)
        pitch = unit * (wide * repeat + gap)
        widths.append(n_columns * pitch - unit * gap if pitch >= CLOSEST else math.inf)
    return max(widths)


def panel_side(maps: AttentionMaps) -> tuple[float, float]:
    """Choose the size of panels.

    Args:
        maps: the maps.

    Returns:
        Their side in inches, and the size of token labels in points: 0 where there is no room for them.
    """
    stacks = [[head for head in maps.heads if head.stack == stack] for stack in maps.axes]
    n_columns = max(len({head.head for head in heads}) for heads in stacks)
    n_rows = sum(len({head.layer for head in heads}) for heads in stacks)
    side = min(max(min(WIDEST / n_columns, HIGHEST / n_rows), SMALLEST), LARGEST)
    longest = max(len(axis) for pair in maps.axes.values() for axis in pair)
    needed = max(side, longest * SMALL * LINE / POINTS)
    labelled = n_columns * (needed + GAP) <= LABELLED and n_rows * (needed + MARK) <= LABELLED
    if not labelled:
        return side, 0
    return needed, max(SMALL, min(8.0, needed * POINTS / (longest * LINE)))
