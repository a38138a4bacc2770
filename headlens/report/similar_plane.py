"""Heads as points in a plane: near each other where they look at the same."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.ticker import MaxNLocator
from numpy.typing import NDArray

from headlens.report.figures import InchFigure
from headlens.report.fonts import POINTS, text_size
from headlens.report.links import link_points
from headlens.report.pages import INSIDE, TWO_COLUMNS, page
from headlens.report.parts import MARGIN
from headlens.report.similar_looks import Looks, finding
from headlens.report.tag_styles import STYLES
from headlens.similar.similar import faithfulness, names_of

Array = NDArray[np.float64]
SMALL = 6.0  # points
LEFT, BELOW = 0.55, 0.45  # inches beside and below the axes
LOWEST, HIGHEST = 2.5, 6.0  # inches: the axes
MARK = 9.0, 5.0  # points: diameter of a head, of one among many
MANY = 300  # heads
EDGE = 0.06  # of the plane, free around the heads


def embedding_figure(
    matrix: Array, heads: pd.DataFrame, model: str = "", several: bool = False
) -> InchFigure:
    """Draw heads as points, coloured by their strongest tag, or by their cluster where none has a tag.

    Args:
        matrix: divergences in nats, [head, head], two heads or more.
        heads: rows of `headlens.similar.similar.CLUSTERS` of one stack, in model order.
        model: its name, for the title.
        several: whether names of heads need their stack.

    Returns:
        The figure.
    """
    places = heads[["x", "y"]].to_numpy(float)
    names, short = names_of(heads, several), names_of(heads, False)
    looks = Looks.make(heads)
    found = _same_tag(matrix, heads) if looks.by_tag else finding(matrix, heads, names)
    wide = INSIDE - LEFT
    (left, right), (bottom, upper) = _limits(places, wide)
    unit = (right - left) / wide  # nats to an inch
    high, mark = (upper - bottom) / unit, MARK[len(heads) > MANY]
    texts = _texts((places - (left, bottom)) / unit, looks, short, mark, (wide, high))
    named = sum(one.align != "center" for one in texts)
    caption = _caption(faithfulness(matrix, places), looks, named, heads)
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


def _texts(
    inches: Array, looks: Looks, names: Sequence[str], mark: float, size: tuple[float, float]
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


def _caption(faithful: float, looks: Looks, named: int, heads: pd.DataFrame) -> str:
    n_heads, n_clusters = len(heads), heads["cluster"].nunique()
    parts = [
        "Each point is a head; near each other are heads that look at the same. Metric multidimensional "
        "scaling of the Jensen-Shannon divergence"
        + ("." if np.isnan(faithful) else f"; distances here and true ones correlate by {faithful:.2f}.")
    ]
    signs = "" if n_heads > MANY else " and letters" if looks.by_tag else " and numbers"
    parts.append(f"Colours{signs}: the {'strongest tag' if looks.by_tag else 'cluster'}.")
    if not looks.by_tag and n_clusters > len(STYLES):
        parts.append("Colours come again after nine clusters.")
    parts.append("Names: layer.head, both from 0.")
    if named < n_heads:
        parts.append(f"{n_heads - named:,} of {n_heads:,} heads have no room for their names.")
    return " ".join(parts)
