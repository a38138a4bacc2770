"""Heads in figures that can be clicked: where an SVG stands in a page, a click on a head shows it."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from matplotlib.axes import Axes
from matplotlib.collections import Collection, LineCollection, PatchCollection
from matplotlib.patches import Rectangle

from headlens.model.heads import Head

Box = tuple[float, float, float, float]
UNSEEN = 0.001
"""The opacity of what can be clicked: no pixel shows it, but with none at all the SVG would say "no fill",
which is nothing that a pointer meets."""


def link_areas(axes: Axes, areas: Iterable[tuple[str, Box]], **options: Any) -> None:
    """Lay areas over axes that lead to heads, ``#head=2.8``, and that cannot be seen.

    Args:
        axes: the axes.
        areas: names of heads with left, bottom, width and height, in the units of the axes; a head may have
            several.
        **options: of the collection, such as another transform.
    """
    names, boxes = zip(*areas, strict=True)
    made = [Rectangle(box[:2], *box[2:]) for box in boxes]
    _lay_over(axes, PatchCollection(made, facecolor="white", edgecolor="none", **options), names)


def link_rows(axes: Axes, names: Iterable[str], reach: float) -> None:
    """The same for heads that have rows of height 1 around 0, 1, ...

    Args:
        axes: the axes.
        names: of the heads, row by row.
        reach: how far the rows go to the right, in widths of the axes: as far as what stands beside them.
    """
    areas = [(name, (0.0, row - 0.5, reach, 1.0)) for row, name in enumerate(names)]
    link_areas(axes, areas, transform=axes.get_yaxis_transform(), clip_on=False)


def link_points(axes: Axes, points: Mapping[str, tuple[float, float]]) -> None:
    """The same for heads that are drawn as points."""
    if points:
        x, y = zip(*points.values(), strict=True)
        over = axes.scatter(x, y, s=45, color="white", linewidths=0)
        over.remove()
        _lay_over(axes, over, points)


def link_lines(axes: Axes, lines: Mapping[str, list[tuple[float, float]]]) -> None:
    """The same for heads that are drawn as lines; where they lie over each other the last one is met."""
    _lay_over(axes, LineCollection(list(lines.values()), colors="white", linewidths=4), lines)


def link_name(head: Head, several: bool) -> str:
    """Write a head as pages name it: with its stack where the model has several."""
    return str(head) if several else f"{head.layer}.{head.head}"


def _lay_over(axes: Axes, over: Collection, names: Iterable[str]) -> None:
    over.set(alpha=UNSEEN, zorder=9, urls=[f"#head={name}" for name in names])
    limits = axes.get_xlim(), axes.get_ylim()
    axes.add_collection(over, autolim=False)
    axes.set(xlim=limits[0], ylim=limits[1])
