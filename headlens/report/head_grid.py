"""A grid of heatmaps: rows are layers, columns are heads, one image for each stack of the model."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import chain
from typing import TYPE_CHECKING

from matplotlib.axes import Axes
from matplotlib.collections import PatchCollection
from matplotlib.colors import PowerNorm
from matplotlib.patches import Rectangle

from headlens.report.figures import InchFigure
from headlens.report.fonts import POINTS, families_for, text_size
from headlens.report.links import link_areas
from headlens.report.panels import LEFT, SMALL, Block, compose, panel_side, side_within
from headlens.report.parts import (
    BAR_ROOM,
    MARGIN,
    Frame,
    about,
    attention,
    colour_bar,
    label,
    scale_of,
    show,
    thinned,
)

if TYPE_CHECKING:
    from headlens.view.maps import AttentionMaps

NAMED = 4  # heads that the title names
LISTED = 12  # tokens that are listed in the caption where they are not labelled


def draw_grid(maps: AttentionMaps, title: str | None = None, width: float | None = None) -> InchFigure:
    """Draw all heads that the maps hold.

    Args:
        maps: the maps.
        title: instead of one that names the model and counts the heads.
        width: at most so many inches, without tokens at the panels; by default as wide as they need.

    Returns:
        The figure.

    Raises:
        InputError: the heads do not fit into the width.
    """
    side, points = panel_side(maps) if width is None else (side_within(maps, width), 0)
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
    left = LEFT + max(room[0] for room in rooms.values())
    several = len({site.stack for site in maps.sites}) > 1
    heights = [0.45 + 0.25 * several + block.size[1] + rooms[block.stack][1] for block in blocks]
    right = left + max(block.size[0] for block in blocks)
    area = right - MARGIN + BAR_ROOM, max(sum(heights), 1.9)
    figure, top = Frame(title, caption, families).figure(*area, width)
    scale, high = scale_of(maps), max(1.3, min(blocks[0].size[1], 3))
    colour_bar(figure, (right + 0.2, top + 0.45, high), scale)
    for block, height in zip(blocks, heights, strict=True):
        if several:
            figure.write(MARGIN, top, _heading(maps, block.stack), 9, fontweight="bold")
        axes = figure.place(left, top + 0.4 + 0.25 * several, *block.size)
        _draw_block(figure, axes, block, scale)
        _label_outer(figure, axes, block, labels[block.stack], points)
        axes.tick_params(axis="y", pad=POINTS * rooms[block.stack][0] + 5)
        top += height
    return figure


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
