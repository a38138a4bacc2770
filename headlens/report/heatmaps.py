"""Heatmaps of attention: single heads, grids of all heads, panels."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import chain
from typing import TYPE_CHECKING
from unicodedata import category

import numpy as np
from matplotlib import colormaps
from matplotlib.axes import Axes
from matplotlib.cm import ScalarMappable
from matplotlib.collections import PatchCollection
from matplotlib.colors import PowerNorm
from matplotlib.patches import Rectangle
from numpy.typing import NDArray

from headlens.errors import InputError
from headlens.report.canvas import (
    DPI,
    MARGIN,
    POINTS,
    InchFigure,
    column,
    families_for,
    link_areas,
    text_size,
    wrapped,
)
from headlens.util.formatting import visible

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
    return _draw_grid(maps, title, width) if len(maps.heads) > 1 else _draw_head(maps, title, width)


def _draw_head(maps: AttentionMaps, title: str | None = None, width: float | None = None) -> InchFigure:
    """Draw the one head that the maps hold: rows are queries, columns are keys."""
    head, scale = maps.heads[0], _scale_of(maps)
    labels = [[label(token) for token in axis.tokens] for axis in maps.axes[head.stack]]
    image, factor = pooled(maps.pattern(head).numpy(), MOST_CELLS)
    title = label(title or f"{maps.model}: {_attention(maps)} of head {maps.name(head)}", 90)
    families = families_for([title, *labels[0], *labels[1]])
    most = WIDEST if width is None else _room(width, labels[0], families)
    points, cell, step = _sizes(max(map(len, labels)), most)
    room = [text_size(names[::step], points, families)[0] + 0.1 for names in labels]
    left = MARGIN + 0.25 + room[0]
    cell = _widened(cell, len(labels[1]), left + BAR_ROOM + MARGIN, width)
    wide, high = len(labels[1]) * cell, len(labels[0]) * cell
    caption = "Rows: the query that looks; columns: the key that it looks at. " + _about(maps)
    figure, top = _Frame(title, caption + _thinned(step, factor), families).figure(
        left - MARGIN + wide + BAR_ROOM, max(high + room[1] + 0.25, 1.5), width
    )
    axes = figure.place(left, top, wide, high)
    _show(axes, image, (0, len(labels[1]), len(labels[0]), 0), scale)
    _name_tokens(figure, axes, labels, step, points)
    axes.set_xlabel("key", fontsize=9, **figure.style)
    axes.set_ylabel("query", fontsize=9, **figure.style)
    _colour_bar(figure, (left + wide + 0.2, top, max(1.3, min(high, 3))), scale)
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


# ---- A grid of heatmaps: rows are layers, columns are heads, one image for each stack of the model


NAMED = 4  # heads that the title names
LISTED = 12  # tokens that are listed in the caption where they are not labelled


def _draw_grid(maps: AttentionMaps, title: str | None = None, width: float | None = None) -> InchFigure:
    """Draw all heads that the maps hold."""
    side, points = _panel_side(maps) if width is None else (side_within(maps, width), 0)
    blocks = [compose(maps, stack, side) for stack in maps.axes]
    labels: dict[str, list[list[str]]] = {
        stack: [[label(token) for token in axis.tokens] if points else [] for axis in pair]
        for stack, pair in maps.axes.items()
    }
    title = label(title or f"{maps.model}: {_attention(maps)} of {_which(maps)}", 90)
    caption = _caption(maps, points > 0, max(block.factor for block in blocks))
    families = families_for([title, caption, *chain.from_iterable(chain(*labels.values()))])
    rooms = {
        stack: [text_size(names, points, families)[0] + 0.06 * bool(names) for names in pair]
        for stack, pair in labels.items()
    }
    left = LEFT + max(room[0] for room in rooms.values())
    several = len({site.stack for site in maps.sites}) > 1
    heights = [0.45 + 0.25 * several + block.size[1] + rooms[block.stack][1] for block in blocks]
    right = left + max(block.size[0] for block in blocks)
    area = right - MARGIN + BAR_ROOM, max(sum(heights), 1.9)
    figure, top = _Frame(title, caption, families).figure(*area, width)
    scale, high = _scale_of(maps), max(1.3, min(blocks[0].size[1], 3))
    _colour_bar(figure, (right + 0.2, top + 0.45, high), scale)
    for block, height in zip(blocks, heights, strict=True):
        if several:
            figure.write(MARGIN, top, _heading(maps, block.stack), 9, fontweight="bold")
        axes = figure.place(left, top + 0.4 + 0.25 * several, *block.size)
        _draw_block(figure, axes, block, scale)
        _label_outer(figure, axes, block, labels[block.stack], points)
        axes.tick_params(axis="y", pad=POINTS * rooms[block.stack][0] + 5)
        top += height
    return figure


def _draw_block(figure: InchFigure, axes: Axes, block: _PanelBlock, scale: PowerNorm) -> None:
    width, height = block.size
    _show(axes, block.image, (0, width, height, 0), scale)
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
    names = [f"{layer}.{number}" for layer, number, _, _ in block.corners]
    fits = wide >= text_size(names, SMALL, figure.families)[0]  # else the numbers at the margins say it
    for layer, number, left, top in block.corners if fits else ():
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
    figure: InchFigure, axes: Axes, block: _PanelBlock, labels: Sequence[Sequence[str]], points: float
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
        "Within a map, rows: the query that looks; columns: the key that it looks at. " + _about(maps)
    )
    if not labelled:
        for axis in {axis.tokens: axis for pair in maps.axes.values() for axis in pair}.values():
            listed = ": " + " ".join(map(label, axis.tokens)) if len(axis) <= LISTED else ""
            text += f" {len(axis)} {unit} from top to bottom and left to right, not labelled{listed}."
    return text + _thinned(1, factor)


# ---- What all heatmaps share: one colour scale, labels, what stands around the maps


Array = NDArray[np.float32]
COLOURS = colormaps["magma_r"]  # perceptually uniform, told apart by lightness alone
SCALE = PowerNorm(
    0.5, vmin=0, vmax=1
)  # the same in every figure; the square root keeps small weights visible
TICKS = (0, 0.01, 0.05, 0.1, 0.25, 0.5, 1)
LINE = 1.35  # room for one label, in font sizes
LONGEST_LABEL = 20  # characters
BAR_ROOM = 0.95  # inches


_JOINERS = "\u200c\u200d"


@dataclass(frozen=True, slots=True)
class _Frame:
    """What surrounds the maps of a figure.

    Args:
        title: above.
        caption: below.
        families: fonts that have all characters.
    """

    title: str
    caption: str
    families: tuple[str, ...]

    def figure(self, width: float, height: float, most: float | None = None) -> tuple[InchFigure, float]:
        """Make a figure around a given area."""
        width = column(width + 2 * MARGIN, most)
        title, above = wrapped(self.title, width - 2 * MARGIN, 10, self.families)
        caption, below = wrapped(self.caption, width - 2 * MARGIN, 7, self.families)
        figure = InchFigure(width, 4 * MARGIN + above + height + below, self.families)
        figure.write(MARGIN, MARGIN, title, 10)
        figure.write(MARGIN, 3 * MARGIN + above + height, caption, 7, color="0.25")
        return figure, 2 * MARGIN + above


def label(text: str, longest: int = LONGEST_LABEL) -> str:
    """Make a text fit to be drawn: nothing invisible, not too long."""
    text = "".join(char for char in visible(text) if char not in "\ufe0e\ufe0f")
    if len(text) <= longest:
        return text
    end = longest - 1
    while end > 1 and (text[end] in _JOINERS or text[end - 1] in _JOINERS or category(text[end])[0] == "M"):
        end -= 1  # a letter keeps its signs
    return text[:end] + "\u2026"


def _scale_of(maps: AttentionMaps) -> PowerNorm:
    """Choose the colour scale: for weights that of all figures, for norms one up to the largest."""
    if maps.measure == "weights":
        return SCALE
    peak = max(float(pattern.max()) for pattern in maps.patterns.values())
    return PowerNorm(0.5, vmin=0, vmax=peak or 1)


def _attention(maps: AttentionMaps) -> str:
    """Name what is drawn, for titles."""
    return "attention" if maps.measure == "weights" else "norms"


def _about(maps: AttentionMaps) -> str:
    """Say how to read the colours, and what was done to the weights."""
    parts = ["Colours run from 0 to 1 by the square root of the weight."]
    if maps.measure == "norms":
        parts = ["Norms: weight times the length of what the key hands over; colours by their square root."]
    if maps.by_words:
        parts.append("Words: the sum to a word's pieces, the mean from them.")
    if not maps.specials:
        parts.append("Special tokens are left out; rows are not renormalised.")
    return " ".join(parts)


def _thinned(step: int, factor: int) -> str:
    """Say which labels and cells were left out to keep the figure readable."""
    text = f" Every {ordinal(step)} token is labelled." if step > 1 else ""
    return text + (f" Each cell is the largest of {factor} x {factor} weights." if factor > 1 else "")


def ordinal(number: int) -> str:
    """Write 2 as 2nd."""
    tens = "th" if number % 100 in (11, 12, 13) else None
    return f"{number}{tens or {1: 'st', 2: 'nd', 3: 'rd'}.get(number % 10, 'th')}"


def pooled(pattern: Array, most: int) -> tuple[Array, int]:
    """Make a pattern small enough to be drawn, keeping what stands out.

    Args:
        pattern: weights [query, key].
        most: how many cells a side may have.

    Returns:
        The largest weight of each square of cells (the pattern itself if it is small enough), and the
        side of that square.
    """
    factor = math.ceil(max(pattern.shape) / most)
    if factor == 1:
        return pattern, 1
    filled = [(0, -size % factor) for size in pattern.shape]
    squares = np.pad(pattern, filled, constant_values=-np.inf)
    rows, columns = (size // factor for size in squares.shape)
    return squares.reshape(rows, factor, columns, factor).max(axis=(1, 3)), factor


def _show(axes: Axes, image: Array, extent: tuple[float, float, float, float], scale: PowerNorm) -> None:
    """Draw weights on a colour scale; extent is (left, right, bottom, top)."""
    axes.imshow(image, cmap=COLOURS, norm=scale, extent=extent, aspect="auto", interpolation="nearest")
    axes.grid(visible=False)


def _name_tokens(
    figure: InchFigure, axes: Axes, labels: Sequence[Sequence[str]], step: int, points: float
) -> None:
    """Write every step-th token along both sides of one map whose cells are 1 wide."""
    queries, keys = labels
    axes.set_yticks(np.arange(0, len(queries), step) + 0.5, queries[::step], fontsize=points, **figure.style)
    axes.set_xticks(
        np.arange(0, len(keys), step) + 0.5, keys[::step], rotation=90, fontsize=points, **figure.style
    )
    axes.tick_params(length=2, pad=2)


def _colour_bar(figure: InchFigure, place: tuple[float, float, float], scale: PowerNorm) -> None:
    """Draw a colour scale with what its colours stand for; place is left, top and height in inches."""
    left, top, height = place
    axes = figure.place(left, top, 0.13, height)
    ticks = [tick * float(scale.vmax or 1) for tick in TICKS]
    bar = figure.colorbar(ScalarMappable(scale, COLOURS), cax=axes, ticks=ticks)
    what = "attention weight" if scale is SCALE else "norm (units of the residual stream)"
    bar.set_label(what, fontsize=8, **figure.style)
    axes.minorticks_off()
    axes.set_yticks(ticks, [f"{tick:.3g}" for tick in ticks], fontsize=7, **figure.style)


# ---- The panels of a grid of heatmaps: how large they are, and one image of all that a stack has


SMALL = 6.0  # points: no text is smaller
MOST_PANEL_CELLS = 128  # along one side of a panel
SMALLEST, LARGEST_PANEL = 0.64, 2.4  # inches: a panel
WIDEST_PANEL, HIGHEST = 9.6, 12.0  # inches: a row and a column of panels, where they can be as small
LABELLED = 18.0  # inches: tokens are labelled where panels that have room for it fit into this square
GAP, MARK = 0.07, 0.13  # inches between columns, and above each panel for its mark
LEFT = MARGIN + 0.55  # inches before the first column, where no tokens stand
CLOSEST = 0.18  # inches from one column to the next that their numbers need


@dataclass(frozen=True, slots=True)
class _PanelBlock:
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


def compose(maps: AttentionMaps, stack: str, side: float) -> _PanelBlock:
    """Compose all panels of a stack into one image."""
    heads = [head for head in maps.heads if head.stack == stack]
    rows = tuple(sorted({head.layer for head in heads}))
    columns = tuple(sorted({head.head for head in heads}))
    most = min(MOST_PANEL_CELLS, int(side * DPI))
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
    return _PanelBlock(
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
    """Find the largest panels with which all columns fit into a width."""
    around = LEFT + BAR_ROOM + MARGIN
    sides = [float(side) for side in np.arange(LARGEST_PANEL, 0, -1 / DPI) if side * DPI >= 1]
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
        factor = math.ceil(max(map(len, axes)) / min(MOST_PANEL_CELLS, int(side * DPI)))
        high, wide = (math.ceil(len(axis) / factor) for axis in axes)
        (_, repeat), (_, unit), (_, gap) = _measures((high, wide), side)
        pitch = unit * (wide * repeat + gap)
        widths.append(n_columns * pitch - unit * gap if pitch >= CLOSEST else math.inf)
    return max(widths)


def _panel_side(maps: AttentionMaps) -> tuple[float, float]:
    """The side of panels in inches, and of token labels in points: 0 where there is no room for them."""
    stacks = [[head for head in maps.heads if head.stack == stack] for stack in maps.axes]
    n_columns = max(len({head.head for head in heads}) for heads in stacks)
    n_rows = sum(len({head.layer for head in heads}) for heads in stacks)
    side = min(max(min(WIDEST_PANEL / n_columns, HIGHEST / n_rows), SMALLEST), LARGEST_PANEL)
    longest = max(len(axis) for pair in maps.axes.values() for axis in pair)
    needed = max(side, longest * SMALL * LINE / POINTS)
    labelled = n_columns * (needed + GAP) <= LABELLED and n_rows * (needed + MARK) <= LABELLED
    if not labelled:
        return side, 0
    return needed, max(SMALL, min(8.0, needed * POINTS / (longest * LINE)))
