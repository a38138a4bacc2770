"""Figures of likeness: the clustered map and the plane."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pandas as pd
from matplotlib import colormaps
from matplotlib.axes import Axes
from matplotlib.cm import ScalarMappable
from matplotlib.collections import LineCollection
from matplotlib.colors import Normalize, to_rgb
from matplotlib.patches import Rectangle
from matplotlib.ticker import MaxNLocator
from numpy.typing import NDArray

from headlens.report.canvas import (
    INSIDE,
    MARGIN,
    POINTS,
    TWO_COLUMNS,
    InchFigure,
    TagStyle,
    column,
    in_order,
    link_points,
    link_rows,
    page,
    style_of,
    text_size,
)
from headlens.report.heatmaps import ordinal
from headlens.similarity.measure import LARGEST
from headlens.similarity.similar import (
    faithfulness,
    has_several,
    leaves,
    matrix_of,
    names_of,
    sizes_told,
    tree,
)


def draw_all(
    distances: pd.DataFrame, clusters: pd.DataFrame, model: str = ""
) -> Iterator[tuple[str, InchFigure]]:
    """Draw the figures of every stack that has two heads or more."""
    model, several = Path(model).name, has_several(clusters)
    stacks = list(dict.fromkeys(clusters["stack"]))
    for stack in stacks:
        heads = clusters[clusters["stack"] == stack].reset_index(drop=True)
        if len(heads) > 1:
            matrix = matrix_of(distances, heads)
            ending = f"-{stack}" if len(stacks) > 1 else ""
            said = f"{model}, {stack}".lstrip(", ") if several else model
            yield f"clustermap{ending}", _clustermap_figure(matrix, heads, said, several)
            yield f"embedding{ending}", _embedding_figure(matrix, heads, said, several)


# ---- How heads look in the figures of ``headlens similar``: by their strongest tag, else by their cluster


UNTAGGED = TagStyle("#E4E4E4", "")
CLUSTERS = ("#332288", "#DDCC77", "#117733", "#CC6677", "#88CCEE", "#882255", "#AA4499", "#999933", "#44AA99")
"""Colours of clusters: the nine of Paul Tol's scheme "muted", which are those of the tags, too."""
LINE, SWATCH, SIZE = 0.19, 0.15, 7.5  # inches, inches, points
NAMED = 4  # clusters whose sizes are named


@dataclass(frozen=True, slots=True)
class _Looks:
    """The look of every head, and the key.

    Args:
        of_heads: the look of each head, in model order.
        by_tag: whether it shows the strongest tag; else it shows the cluster.
        key: looks and what they mean.
    """

    of_heads: Sequence[TagStyle]
    by_tag: bool
    key: Sequence[tuple[TagStyle, str]]

    @classmethod
    def make(cls, heads: pd.DataFrame) -> _Looks:
        """Choose the looks.

        Args:
            heads: rows of `headlens.similarity.similar.CLUSTERS` of one stack, in model order.

        Returns:
            Tags where there are any, and only those in the key.
        """
        if not heads["tags"].any():
            clusters = heads["cluster"].astype(int)
            numbers = [TagStyle(CLUSTERS[n % len(CLUSTERS)], str(n)) for n in clusters]
            return cls(numbers, False, [])
        tags = [str(cell).partition(";")[0] for cell in heads["tags"]]
        counts = {tag: tags.count(tag) for tag in in_order(tags) if tag}
        key = [(style_of(tag), f"{tag}: {_heads(count)}") for tag, count in counts.items()]
        if "" in tags:
            key.append((UNTAGGED, f"no tag: {_heads(tags.count(''))}"))
        return cls([style_of(tag) if tag else UNTAGGED for tag in tags], True, key)

    def key_height(self, width: float) -> float:
        """Measure the key of a figure of some width, in inches."""
        return LINE * math.ceil(len(self.key) / self._columns(width)[0]) if self.key else 0.0

    def draw_key(self, figure: InchFigure, top: float, width: float) -> None:
        """Draw the key."""
        if not self.key:
            return
        columns, wide = self._columns(width)
        rows = math.ceil(len(self.key) / columns)
        box = (MARGIN, top, width - 2 * MARGIN, rows * LINE)
        axes = figure.place(*box)
        axes.set(xlim=(0, box[2]), ylim=(box[3], 0))
        axes.set_axis_off()
        for number, (look, text) in enumerate(self.key):
            column, row = divmod(number, rows)
            left, middle = column * wide, (row + 0.5) * LINE
            axes.add_patch(Rectangle((left, middle - SWATCH / 2), SWATCH, SWATCH, facecolor=look.colour))
            axes.text(
                left + SWATCH / 2, middle, look.letter, fontsize=6, color=look.ink, ha="center",
                va="center_baseline", **figure.style,
            )  # fmt: skip
            axes.text(left + SWATCH + 0.05, middle, text, fontsize=SIZE, va="center_baseline", **figure.style)

    def _columns(self, width: float) -> tuple[int, float]:
        needed = SWATCH + 0.2 + text_size([text for _, text in self.key], SIZE, ["DejaVu Sans"])[0]
        return max(1, min(len(self.key), int((width - 2 * MARGIN) / needed))), needed


def _finding(matrix: NDArray[np.float64], heads: pd.DataFrame, names: Sequence[str]) -> str:
    """Say how many clusters there are, how large, and which heads are closest."""
    sizes = sorted(heads["cluster"].value_counts().tolist(), reverse=True)
    into = f"{len(sizes)} clusters ({sizes_told(sizes)})" if len(sizes) > 1 else "one cluster"
    first, second = np.triu_indices(len(matrix), 1)
    near = int(matrix[first, second].argmin())
    one, other = int(first[near]), int(second[near])
    return (
        f"{len(heads):,} heads fall into {into} by what they look at; the closest are {names[one]} and "
        f"{names[other]} ({matrix[one, other]:.3f} nats)"
    )


def _heads(count: int) -> str:
    return f"{count:,} head{'s' * (count != 1)}"


# ---- The distances of all pairs of heads as a matrix, in the order of the tree that joins them


Array = NDArray[np.float64]
COLOURS, SCALE = colormaps["magma"], Normalize(0, LARGEST)  # dark: close
SMALL = 6.0  # points
TREE, STRIP, BAR = 0.9, 0.17, 0.75  # inches: widths of tree, strip and colour bar
LARGE, LEAST = 0.3, 1.3  # inches: the largest cell, the smallest matrix
SPARSE = 5  # where fewer than every 5th head could be named none is
GREYS = ("0.92", "0.75")


def _clustermap_figure(
    matrix: Array, heads: pd.DataFrame, model: str = "", several: bool = False
) -> InchFigure:
    """How far apart heads are, [head, head] in nats, two or more, ordered and joined by average linkage."""
    names, looks = names_of(heads, several), _Looks.make(heads)
    order = leaves(matrix)
    wide, high = text_size(names, SMALL, ["DejaVu Sans"])
    before, after = TREE + STRIP * (1 + looks.by_tag), wide + 0.12 + BAR
    side = min(max(LARGE * len(heads), LEAST), INSIDE - before - after)
    step = math.ceil(1.05 * high * len(heads) / side)
    width = column(2 * MARGIN + before + side + after)
    title = f"{model}: " * bool(model) + _finding(matrix, heads, names)
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


def _draw_tags(figure: InchFigure, axes: Axes, looks: _Looks, order: Sequence[int]) -> None:
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


def _texts(looks: _Looks) -> list[str]:
    return [text for _, text in looks.key]


def _caption(matrix: Array, looks: _Looks, step: int) -> str:
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


# ---- Heads as points in a plane: near each other where they look at the same


LEFT, BELOW = 0.55, 0.45  # inches beside and below the axes
LOWEST, HIGHEST = 2.5, 6.0  # inches: the axes
MARK = 9.0, 5.0  # points: diameter of a head, of one among many
MANY = 300  # heads
EDGE = 0.06  # of the plane, free around the heads


def _embedding_figure(
    matrix: Array, heads: pd.DataFrame, model: str = "", several: bool = False
) -> InchFigure:
    """Heads as points, coloured by their strongest tag, or by their cluster where none has a tag."""
    places = heads[["x", "y"]].to_numpy(float)
    names, short = names_of(heads, several), names_of(heads, False)
    looks = _Looks.make(heads)
    found = _same_tag(matrix, heads) if looks.by_tag else _finding(matrix, heads, names)
    wide = INSIDE - LEFT
    (left, right), (bottom, upper) = _limits(places, wide)
    unit = (right - left) / wide  # nats to an inch
    high, mark = (upper - bottom) / unit, MARK[len(heads) > MANY]
    texts = _plane_texts((places - (left, bottom)) / unit, looks, short, mark, (wide, high))
    named = sum(one.align != "center" for one in texts)
    caption = _plane_caption(faithfulness(matrix, places), looks, named, heads)
    more = [*short, *(text for _, text in looks.key)]
    area = high + BELOW + looks.key_height(TWO_COLUMNS)
    figure, top = page(f"{model}: " * bool(model) + found, caption, (TWO_COLUMNS, area), more)
    axes = figure.place(MARGIN + LEFT, top, wide, high)
    axes.set(xlim=(left, right), ylim=(bottom, upper))
    _frame(figure, axes)
    colours = [look.colour for look in looks.of_heads]
    axes.scatter(
        places[:, 0], places[:, 1], s=mark**2, c=colours, edgecolors="0.35", linewidths=0.4, label="heads"
    )
    for one in texts:
        x, y = left + one.place[0] * unit, bottom + one.place[1] * unit
        style = {"fontsize": SMALL, "color": one.colour, "va": "center_baseline", **figure.style}
        axes.text(x, y, one.text, ha=one.align, **style)
    link_points(axes, {name: (float(x), float(y)) for name, (x, y) in zip(names, places, strict=True)})
    looks.draw_key(figure, top + high + BELOW, TWO_COLUMNS)
    return figure


def _limits(places: Array, wide: float) -> tuple[tuple[float, float], tuple[float, float]]:
    """What the axes show: all heads, an inch as long in both directions."""
    low, high = places.min(0), places.max(0)
    span = np.maximum(high - low, 1e-9)
    if span.max() < 1e-6:
        span = np.array([1.0, LOWEST / wide])
    span, middle = span * (1 + 2 * EDGE), (low + high) / 2
    per_inch = max(span[0] / wide, span[1] / HIGHEST)
    half_x = per_inch * wide / 2
    half_y = max(span[1], per_inch * LOWEST) / 2
    return (middle[0] - half_x, middle[0] + half_x), (middle[1] - half_y, middle[1] + half_y)


def _frame(figure: InchFigure, axes: Axes) -> None:
    style = {"fontsize": 7, **figure.style}
    axes.set_xlabel("first direction of the plane (nats)", fontsize=8, **figure.style)
    axes.set_ylabel("second direction (nats)", fontsize=8, **figure.style)
    for axis in (axes.xaxis, axes.yaxis):
        axis.set_major_locator(MaxNLocator(6))
        ticks = [tick for tick in axis.get_majorticklocs() if _inside(float(tick), *axis.get_view_interval())]
        axis.set_ticks(ticks, [f"{tick + 0.0:.2g}" for tick in ticks], **style)
    axes.spines[["top", "right"]].set_visible(False)
    axes.grid(color="0.93", linewidth=0.5)
    axes.set_axisbelow(True)


def _inside(tick: float, low: float, high: float) -> bool:
    return bool(low + 0.02 * (high - low) <= tick <= high - 0.02 * (high - low))


@dataclass(frozen=True, slots=True)
class _Text:
    """A text in the plane: where it stands, in inches from the lower left corner, and how it is aligned."""

    place: tuple[float, float]
    text: str
    colour: str
    align: str  # "center" on the point; "left" and "right" beside it


def _plane_texts(
    inches: Array, looks: _Looks, names: Sequence[str], mark: float, size: tuple[float, float]
) -> list[_Text]:
    """Letters on the points, and names beside them, where they cover no text and no other point."""
    digit = 1.02 * text_size(["0"], SMALL, ["DejaVu Sans"])[0]
    half = 0.75 * text_size(["M0"], SMALL, ["DejaVu Sans"])[1]
    radius = mark / POINTS / 2
    found: list[_Text] = []
    boxes = np.empty((0, 4))  # left, bottom, right, top
    for beside in (False, True):
        for number, (x, y) in enumerate(inches):
            look = looks.of_heads[number]
            text = names[number] if beside else look.letter
            if not text or (not beside and mark < SMALL):
                continue
            others = np.delete(inches, number, 0)
            wide = (1.4 if text.isalpha() else 1) * digit * len(text)
            for align, at in _sides(float(x), radius + 0.02) if beside else [("center", float(x))]:
                left = at - wide * {"left": 0, "center": 0.5, "right": 1}[align]
                box = np.array([left, y - half, left + wide, y + half])
                if _free(box, boxes, others, radius, size):
                    boxes = np.vstack([boxes, box])
                    found.append(_Text((at, float(y)), text, "0.15" if beside else look.ink, align))
                    break
    return found


def _sides(x: float, away: float) -> list[tuple[str, float]]:
    return [("left", x + away), ("right", x - away)]


def _free(box: Array, boxes: Array, points: Array, radius: float, size: tuple[float, float]) -> bool:
    left, bottom, right, top = box
    if left < 0 or bottom < 0 or right > size[0] or top > size[1]:
        return False
    nearest = np.clip(points, (left, bottom), (right, top))  # of the box to each point
    if (((points - nearest) ** 2).sum(1) < (0.9 * radius) ** 2).any():
        return False
    apart = (boxes[:, 0] >= right) | (boxes[:, 2] <= left) | (boxes[:, 1] >= top) | (boxes[:, 3] <= bottom)
    return bool(apart.all())


def _same_tag(matrix: Array, heads: pd.DataFrame) -> str:
    """Say whether heads of the same strongest tag are nearer each other than others."""
    tags = np.array([str(cell).partition(";")[0] for cell in heads["tags"]])
    first, second = np.triu_indices(len(matrix), 1)
    both = (tags[first] != "") & (tags[second] != "")
    same = both & (tags[first] == tags[second])
    values, others = matrix[first, second], both & ~same
    if not same.any() or not others.any():
        return f"{len(heads):,} heads by what they look at"
    return (
        f"Heads with the same strongest tag are {values[same].mean():.2f} nats apart on average, heads with "
        f"different ones {values[others].mean():.2f}"
    )


def _plane_caption(faithful: float, looks: _Looks, named: int, heads: pd.DataFrame) -> str:
    n_heads, n_clusters = len(heads), heads["cluster"].nunique()
    parts = [
        "Each point is a head; near each other are heads that look at the same. Metric multidimensional "
        "scaling of the Jensen-Shannon divergence"
        + ("." if np.isnan(faithful) else f"; distances here and true ones correlate by {faithful:.2f}.")
    ]
    signs = "" if n_heads > MANY else " and letters" if looks.by_tag else " and numbers"
    parts.append(f"Colours{signs}: the {'strongest tag' if looks.by_tag else 'cluster'}.")
    if not looks.by_tag and n_clusters > len(CLUSTERS):
        parts.append("Colours come again after nine clusters.")
    parts.append("Names: layer.head, both from 0.")
    if named < n_heads:
        parts.append(f"{n_heads - named:,} of {n_heads:,} heads have no room for their names.")
    return " ".join(parts)
