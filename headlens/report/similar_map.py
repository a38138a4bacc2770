"""The distances of all pairs of heads as a matrix, in the order of the tree that joins them."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
import pandas as pd
from matplotlib import colormaps
from matplotlib.axes import Axes
from matplotlib.cm import ScalarMappable
from matplotlib.collections import LineCollection
from matplotlib.colors import Normalize, to_rgb
from matplotlib.patches import Rectangle
from numpy.typing import NDArray

from headlens.report.figures import InchFigure
from headlens.report.fonts import text_size
from headlens.report.links import link_rows
from headlens.report.pages import INSIDE, column, page
from headlens.report.parts import MARGIN, ordinal
from headlens.report.similar_looks import Looks, finding
from headlens.similar.measure import LARGEST
from headlens.similar.similar import leaves, names_of, tree

Array = NDArray[np.float64]
COLOURS, SCALE = colormaps["magma"], Normalize(0, LARGEST)  # dark: close
SMALL = 6.0  # points
TREE, STRIP, BAR = 0.9, 0.17, 0.75  # inches: widths of tree, strip and colour bar
LARGE, LEAST = 0.3, 1.3  # inches: the largest cell, the smallest matrix
SPARSE = 5  # where fewer than every 5th head could be named none is
GREYS = ("0.92", "0.75")


def clustermap_figure(
    matrix: Array, heads: pd.DataFrame, model: str = "", several: bool = False
) -> InchFigure:
    """Draw how far apart all pairs of heads are, ordered and joined by average linkage.

    Args:
        matrix: divergences in nats, [head, head], two heads or more.
        heads: rows of `headlens.similar.similar.CLUSTERS` of one stack, in model order.
        model: its name, for the title.
        several: whether names of heads need their stack.

    Returns:
        The figure.
    """
    names, looks = names_of(heads, several), Looks.make(heads)
    order = leaves(matrix)
    wide, high = text_size(names, SMALL, ["DejaVu Sans"])
    before, after = TREE + STRIP * (1 + looks.by_tag), wide + 0.12 + BAR
    side = min(max(LARGE * len(heads), LEAST), INSIDE - before - after)
    step = math.ceil(1.05 * high * len(heads) / side)
    width = column(2 * MARGIN + before + side + after)
    title = f"{model}: " * bool(model) + finding(matrix, heads, names)
    area = side + 0.1 + looks.key_height(width)
    figure, top = page(title, _caption(matrix, looks, step), (width, area), [*names, *_texts(looks)])
    left = MARGIN + before
    _draw_tree(figure.place(MARGIN, top, TREE, side), tree(matrix), order)
    _draw_clusters(figure, figure.place(left - STRIP * (1 + looks.by_tag), top, STRIP, side), heads, order)
    if looks.by_tag:
        _draw_tags(figure, figure.place(left - STRIP, top, STRIP, side), looks, order)
    axes = figure.place(left, top, side, side)
    _draw_matrix(axes, matrix, heads, order)
    shown = range(0, len(order), step) if step < SPARSE else range(0)
    style = {"fontsize": SMALL, **figure.style}
    axes.set_yticks(list(shown), [names[order[row]] for row in shown], **style)
    axes.tick_params(length=0, pad=2, left=False, labelleft=False, labelright=True)
    link_rows(axes, [names[head] for head in order], 1 + (wide + 0.04) / side)
    _draw_bar(figure, (left + side + wide + 0.17, top, min(side, 2.5)))
    looks.draw_key(figure, top + side + 0.1, width)
    return figure


def _draw_matrix(axes: Axes, matrix: Array, heads: pd.DataFrame, order: Sequence[int]) -> None:
    ordered = matrix[np.ix_(order, order)]
    smooth = "nearest" if len(order) < 400 else "antialiased"  # more cells than pixels are averaged
    axes.imshow(ordered, cmap=COLOURS, norm=SCALE, aspect="auto", interpolation=smooth)
    axes.set_xticks([])
    axes.spines[:].set_visible(False)
    for first, count, _ in _runs(heads["cluster"].to_numpy(int)[list(order)]):
        box = Rectangle((first - 0.5, first - 0.5), count, count, label="cluster")
        box.set(facecolor="none", edgecolor="white", linewidth=0.8)
        axes.add_patch(box)


def _runs(labels: NDArray[np.int64]) -> list[tuple[int, int, int]]:
    """First row, number of rows and label of each run of equal labels."""
    ends = [*(np.flatnonzero(np.diff(labels)) + 1).tolist(), len(labels)]
    firsts = [0, *ends[:-1]]
    return [(first, end - first, int(labels[first])) for first, end in zip(firsts, ends, strict=True)]


def _draw_tree(axes: Axes, merges: Array, order: Sequence[int]) -> None:
    """Join the rows of the matrix; a join stands as far to the left as its heads are apart."""
    n_heads = len(order)
    rows = np.empty(2 * n_heads - 1)
    rows[list(order)] = np.arange(n_heads)
    heights = np.zeros(2 * n_heads - 1)
    lines = []
    for number, (one, other, height, _) in enumerate(merges):
        a, b, node = int(one), int(other), n_heads + number
        rows[node], heights[node] = (rows[a] + rows[b]) / 2, height
        lines.append([(heights[a], rows[a]), (height, rows[a]), (height, rows[b]), (heights[b], rows[b])])
    axes.add_collection(LineCollection(lines, colors="0.25", linewidths=0.6 if n_heads < 200 else 0.3))
    axes.set(xlim=(1.02 * (heights[-1] or 1), 0), ylim=(n_heads - 0.5, -0.5))
    axes.set_axis_off()


def _draw_clusters(figure: InchFigure, axes: Axes, heads: pd.DataFrame, order: Sequence[int]) -> None:
    """A strip of grey boxes with the numbers of the clusters, where they have room."""
    axes.set(xlim=(0, 1), ylim=(len(order) - 0.5, -0.5))
    axes.set_axis_off()
    inch = axes.get_position().height * figure.get_size_inches()[1] / len(order)
    room = 1.1 * text_size(["0"], SMALL, figure.families)[1]
    for turn, (first, count, number) in enumerate(_runs(heads["cluster"].to_numpy(int)[list(order)])):
        axes.add_patch(Rectangle((0, first - 0.5), 0.95, count, facecolor=GREYS[turn % 2]))
        if count * inch >= room:
            axes.text(
                0.47, first + (count - 1) / 2, str(number), fontsize=SMALL, ha="center",
                va="center_baseline", **figure.style,
            )  # fmt: skip


def _draw_tags(figure: InchFigure, axes: Axes, looks: Looks, order: Sequence[int]) -> None:
    """A strip of the heads' strongest tags, with their letters where they have room."""
    colours = np.array([[to_rgb(looks.of_heads[head].colour)] for head in order])  # [head, 1, colour]
    axes.imshow(colours, aspect="auto", interpolation="nearest", extent=(0, 0.95, len(order) - 0.5, -0.5))
    axes.set(xlim=(0, 1))
    axes.set_axis_off()
    inch = axes.get_position().height * figure.get_size_inches()[1] / len(order)
    if inch < text_size(["M"], SMALL, figure.families)[1]:
        return
    for row, head in enumerate(order):
        look = looks.of_heads[head]
        axes.text(
            0.47, row, look.letter, fontsize=SMALL, color=look.ink, ha="center", va="center_baseline",
            **figure.style,
        )  # fmt: skip


def _draw_bar(figure: InchFigure, place: tuple[float, float, float]) -> None:
    left, top, height = place
    axes = figure.place(left, top, 0.13, height)
    bar = figure.colorbar(ScalarMappable(SCALE, COLOURS), cax=axes)
    bar.set_label("divergence (nats)", fontsize=7, **figure.style)
    ticks = [0, 0.2, 0.4, LARGEST]
    axes.set_yticks(ticks, ["0", "0.2", "0.4", "ln 2"], fontsize=6.5, **figure.style)


def _texts(looks: Looks) -> list[str]:
    return [text for _, text in looks.key]


def _caption(matrix: Array, looks: Looks, step: int) -> str:
    parts = [
        "Rows and columns: heads, in the same order. Colour: the Jensen-Shannon divergence of what two heads "
        "look at, from 0 (the same) to ln 2 (no key in common). The tree at the left joins heads by average "
        f"linkage, the farther left the farther apart (its root: {tree(matrix)[-1, 2]:.2f} nats). White "
        "frames and the numbers beside the tree: clusters."
    ]
    if looks.by_tag:
        parts.append("The coloured strip: each head's strongest tag.")
    if step >= SPARSE:
        parts.append("Heads have no room for their names: clusters.csv has them.")
    elif step > 1:
        parts.append(f"Every {ordinal(step)} head is named.")
    return " ".join(parts)
