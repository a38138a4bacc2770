"""A grid of heatmaps: rows are layers, columns are heads, one image for each stack of the model."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import chain
from typing import TYPE_CHECKING

import numpy as np
from matplotlib.axes import Axes
from matplotlib.collections import PatchCollection
from matplotlib.colors import PowerNorm
from matplotlib.patches import Rectangle

from headlens.report.figures import DPI, InchFigure
from headlens.report.fonts import POINTS, families_for, text_size
from headlens.report.links import link_areas
from headlens.report.parts import (
    BAR_ROOM,
    LINE,
    MARGIN,
    Array,
    Frame,
    about,
    attention,
    colour_bar,
    label,
    pooled,
    scale_of,
    show,
    thinned,
)

if TYPE_CHECKING:
    from headlens.maps import AttentionMaps

SMALL = 6.0  # points: no text is smaller
MOST_CELLS = 128  # along one side of a panel
SMALLEST, LARGEST = 0.64, 2.4  # inches: a panel
WIDEST, HIGHEST = 9.6, 12.0  # inches: a row and a column of panels, where they can be as small
LABELLED = 18.0  # inches: tokens are labelled where panels that have room for it fit into this square
NAMED = 4  # heads that the title names
LISTED = 12  # tokens that are listed in the caption where they are not labelled
GAP, MARK = 0.07, 0.13  # inches between columns, and above each panel for its mark


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


def draw_grid(maps: AttentionMaps, title: str | None = None) -> InchFigure:
    """Draw all heads that the maps hold.

    Args:
        maps: the maps.
        title: instead of one that names the model and counts the heads.

    Returns:
        The figure.
    """
    side, points = _panel_side(maps)
    blocks = [compose(maps, stack, side) for stack in maps.axes]
    labels: dict[str, list[list[str]]] = {
        stack: [[label(token) for token in axis.tokens] if points else [] for axis in pair]
        for stack, pair in maps.axes.items()
    }
    title = label(title or f"{maps.model}: {attention(maps)} of {_which(maps)}", 90)
    caption = _caption(maps, points > 0, max(block.factor for block in blocks))
    families = families_for([title, caption, *chain.from_iterable(chain(*labels.values()))])
    rooms = {
        stack: [text_size(names, points, families)[0] + 0.06 * bool(names) for names in pair]
        for stack, pair in labels.items()
    }
    left = MARGIN + 0.55 + max(room[0] for room in rooms.values())
    several = len({site.stack for site in maps.sites}) > 1
    heights = [0.45 + 0.25 * several + block.size[1] + rooms[block.stack][1] for block in blocks]
    width = left - MARGIN + max(block.size[0] for block in blocks) + BAR_ROOM
    figure, top = Frame(title, caption, families).figure(width, max(sum(heights), 1.9))
    scale, high = scale_of(maps), max(1.3, min(blocks[0].size[1], 3))
    colour_bar(figure, (width + MARGIN - BAR_ROOM + 0.2, top + 0.45, high), scale)
    for block, height in zip(blocks, heights, strict=True):
        if several:
            figure.write(MARGIN, top, _heading(maps, block.stack), 9, fontweight="bold")
        axes = figure.place(left, top + 0.4 + 0.25 * several, *block.size)
        _draw_block(figure, axes, block, scale)
        _label_outer(figure, axes, block, labels[block.stack], points)
        axes.tick_params(axis="y", pad=POINTS * rooms[block.stack][0] + 5)
        top += height
    return figure


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
    panels = {(head.layer, head.head): pooled(maps.pattern(head).numpy(), MOST_CELLS) for head in heads}
    first, factor = next(iter(panels.values()))
    # a cell is repeated until the gap between panels is a whole number of what is drawn
    cells = [max(1, round(side * DPI / count)) / DPI for count in first.shape]
    repeats = [math.ceil(cell / GAP) for cell in cells]
    units = [cell / repeat for cell, repeat in zip(cells, repeats, strict=True)]
    gaps = [math.ceil(MARK / units[0] - 1e-9), math.ceil(GAP / units[1] - 1e-9)]
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


def _panel_side(maps: AttentionMaps) -> tuple[float, float]:
    """The side of a panel in inches, and the size of token labels in points: 0 where there is no room."""
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


def _draw_block(figure: InchFigure, axes: Axes, block: Block, scale: PowerNorm) -> None:
    width, height = block.size
    show(axes, block.image, (0, width, height, 0), scale)
    wide, high = block.panel
    outlines = [Rectangle((left, top), wide, high) for _, _, left, top in block.corners]
    axes.add_collection(
        PatchCollection(outlines, facecolor="none", edgecolor="0.6", linewidth=0.4, clip_on=False)
    )
    several = block.stack if block.several else ""
    areas = [
        (f"{several}.{layer}.{n}".lstrip("."), (left, top, wide, high))
        for layer, n, left, top in block.corners
    ]
    link_areas(axes, areas)
    for layer, number, left, top in block.corners:
        axes.text(left, top - 0.015, f"{layer}.{number}", fontsize=SMALL, va="bottom", **figure.style)
    bold = {"fontsize": 8, "fontweight": "bold", **figure.style}
    lefts = {number: left for _, number, left, _ in block.corners}
    tops = {layer: top for layer, _, _, top in block.corners}
    axes.set_xticks([lefts[n] + wide / 2 for n in block.columns], list(map(str, block.columns)), **bold)
    axes.set_yticks([tops[n] + high / 2 for n in block.rows], list(map(str, block.rows)), **bold)
    axes.tick_params(length=0, top=False, labeltop=True, labelbottom=False)
    axes.xaxis.set_label_position("top")
    axes.set_xlabel("head", fontsize=9, **figure.style)
    axes.set_ylabel(
        "layer (0 on top)" if height > 1.4 and 0 in block.rows else "layer", fontsize=9, **figure.style
    )
    axes.spines[:].set_visible(False)


def _label_outer(
    figure: InchFigure, axes: Axes, block: Block, labels: Sequence[Sequence[str]], points: float
) -> None:
    """Write queries at the left of the first column and keys below the last row."""
    queries, keys = labels
    wide, high = block.panel
    style = {"fontsize": points, "color": "0.2", **figure.style}
    for top in {top for _, _, _, top in block.corners}:
        for index, token in enumerate(queries):
            place = top + (index + 0.5) * high / len(queries)
            axes.text(-0.03, place, token, ha="right", va="center_baseline", **style)
    for left in {left for _, _, left, _ in block.corners}:
        for index, token in enumerate(keys):
            place = left + (index + 0.5) * wide / len(keys)
            axes.text(place, block.size[1] + 0.03, token, ha="center", va="top", rotation=90, **style)


def _which(maps: AttentionMaps) -> str:
    if len(maps.heads) <= NAMED:
        return "heads " + ", ".join(map(maps.name, maps.heads))
    everything = len(maps.heads) == sum(site.n_heads for site in maps.sites)
    return f"all {len(maps.heads)} heads" if everything else f"{len(maps.heads)} heads"


def _heading(maps: AttentionMaps, stack: str) -> str:
    unit = "words" if maps.by_words else "tokens"
    queries, keys = maps.axes[stack]
    looking, seen = (
        ("source" if stack == "encoder" else "target"),
        ("target" if stack == "decoder" else "source"),
    )
    return f"{stack}: {len(queries)} {looking} {unit} look at {len(keys)} {seen} {unit}"


def _caption(maps: AttentionMaps, labelled: bool, factor: int) -> str:
    unit = "words" if maps.by_words else "tokens"
    text = (
        "Rows of maps: layers, the lowest on top; columns of maps: heads. "
        "Within a map, rows: the query that looks; columns: the key that it looks at. " + about(maps)
    )
    if not labelled:
        for axis in {axis.tokens: axis for pair in maps.axes.values() for axis in pair}.values():
            listed = ": " + " ".join(map(label, axis.tokens)) if len(axis) <= LISTED else ""
            text += f" {len(axis)} {unit} from top to bottom and left to right, not labelled{listed}."
    return text + thinned(1, factor)
