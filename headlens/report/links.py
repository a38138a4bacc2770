"""Heads in figures that can be clicked: where an SVG stands in a page, a click on a head shows it."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from matplotlib.axes import Axes
from matplotlib.collections import PatchCollection
from matplotlib.patches import Rectangle

from headlens.heads import Head

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
    names, boxes = zip(*[(name, Rectangle(box[:2], *box[2:])) for name, box in areas], strict=True)
    over = PatchCollection(boxes, facecolor="white", edgecolor="none", alpha=UNSEEN, zorder=9, **options)
    over.set_urls([f"#head={name}" for name in names])
    limits = axes.get_xlim(), axes.get_ylim()
    axes.add_collection(over, autolim=False)
    axes.set(xlim=limits[0], ylim=limits[1])


def link_points(axes: Axes, points: Mapping[str, tuple[float, float]]) -> None:
    """The same for heads that are drawn as points."""
    if points:
        x, y = zip(*points.values(), strict=True)
        over = axes.scatter(x, y, s=45, alpha=UNSEEN, color="white", linewidths=0, zorder=9)
        over.set_urls([f"#head={name}" for name in points])


def link_name(head: Head, several: bool) -> str:
    """Write a head as pages name it: with its stack where the model has several."""
    return str(head) if several else f"{head.layer}.{head.head}"
