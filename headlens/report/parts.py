"""What all heatmaps share: one colour scale, labels, what stands around the maps."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING
from unicodedata import category

import numpy as np
from matplotlib import colormaps
from matplotlib.axes import Axes
from matplotlib.cm import ScalarMappable
from matplotlib.colors import PowerNorm
from numpy.typing import NDArray

from headlens.report.figures import InchFigure, wrapped
from headlens.util.formatting import visible

if TYPE_CHECKING:
    from headlens.view.maps import AttentionMaps

Array = NDArray[np.float32]
COLOURS = colormaps["magma_r"]  # perceptually uniform, told apart by lightness alone
SCALE = PowerNorm(
    0.5, vmin=0, vmax=1
)  # the same in every figure; the square root keeps small weights visible
TICKS = (0, 0.01, 0.05, 0.1, 0.25, 0.5, 1)
LINE = 1.35  # room for one label, in font sizes
LONGEST_LABEL = 20  # characters
ONE_COLUMN, TWO_COLUMNS = 3.4, 7.0  # inches: how wide figures in a paper are
MARGIN, BAR_ROOM = 0.12, 0.95  # inches


_JOINERS = "\u200c\u200d"


@dataclass(frozen=True, slots=True)
class Frame:
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
        """Make a figure around a given area.

        Args:
            width: of the area, in inches.
            height: of the area, in inches.
            most: see `column`.

        Returns:
            The figure, with title and caption, and the distance of the area from its upper edge.
        """
        width = column(width + 2 * MARGIN, most)
        title, above = wrapped(self.title, width - 2 * MARGIN, 10, self.families)
        caption, below = wrapped(self.caption, width - 2 * MARGIN, 7, self.families)
        figure = InchFigure(width, 4 * MARGIN + above + height + below, self.families)
        figure.write(MARGIN, MARGIN, title, 10)
        figure.write(MARGIN, 3 * MARGIN + above + height, caption, 7, color="0.25")
        return figure, 2 * MARGIN + above


def column(width: float, most: float | None = None) -> float:
    """Choose the width of a figure: that of one or two columns of a paper where it fits, all in inches.

    Args:
        width: what the figure needs.
        most: no column wider than this; any by default.

    Returns:
        The width of the column, or what is needed where that fits none.
    """
    columns = [one for one in (ONE_COLUMN, TWO_COLUMNS) if most is None or one <= most + 1e-9]
    return next((one for one in columns if width <= one + 1e-9), width)


def label(text: str, longest: int = LONGEST_LABEL) -> str:
    """Make a text fit to be drawn: nothing invisible, not too long."""
    text = "".join(char for char in visible(text) if char not in "\ufe0e\ufe0f")
    if len(text) <= longest:
        return text
    end = longest - 1
    while end > 1 and (text[end] in _JOINERS or text[end - 1] in _JOINERS or category(text[end])[0] == "M"):
        end -= 1  # a letter keeps its signs
    return text[:end] + "\u2026"


def scale_of(maps: AttentionMaps) -> PowerNorm:
    """Choose the colour scale: for weights that of all figures, for norms one up to the largest."""
    if maps.measure == "weights":
        return SCALE
    peak = max(float(pattern.max()) for pattern in maps.patterns.values())
    return PowerNorm(0.5, vmin=0, vmax=peak or 1)


def attention(maps: AttentionMaps) -> str:
    """Name what is drawn, for titles."""
    return "attention" if maps.measure == "weights" else "norms"


def about(maps: AttentionMaps) -> str:
    """Say how to read the colours, and what was done to the weights."""
    parts = ["Colours run from 0 to 1 by the square root of the weight."]
    if maps.measure == "norms":
        parts = ["Norms: weight times the length of what the key hands over; colours by their square root."]
    if maps.by_words:
        parts.append("Words: the sum to a word's pieces, the mean from them.")
    if not maps.specials:
        parts.append("Special tokens are left out; rows are not renormalised.")
    return " ".join(parts)


def thinned(step: int, factor: int) -> str:
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


def show(axes: Axes, image: Array, extent: tuple[float, float, float, float], scale: PowerNorm) -> None:
    """Draw weights on a colour scale; extent is (left, right, bottom, top)."""
    axes.imshow(image, cmap=COLOURS, norm=scale, extent=extent, aspect="auto", interpolation="nearest")
    axes.grid(visible=False)


def name_tokens(
    figure: InchFigure, axes: Axes, labels: Sequence[Sequence[str]], step: int, points: float
) -> None:
    """Write every step-th token along both sides of one map whose cells are 1 wide."""
    queries, keys = labels
    axes.set_yticks(np.arange(0, len(queries), step) + 0.5, queries[::step], fontsize=points, **figure.style)
    axes.set_xticks(
        np.arange(0, len(keys), step) + 0.5, keys[::step], rotation=90, fontsize=points, **figure.style
    )
    axes.tick_params(length=2, pad=2)


def colour_bar(figure: InchFigure, place: tuple[float, float, float], scale: PowerNorm) -> None:
    """Draw a colour scale with what its colours stand for; place is left, top and height in inches."""
    left, top, height = place
    axes = figure.place(left, top, 0.13, height)
    ticks = [tick * float(scale.vmax or 1) for tick in TICKS]
    bar = figure.colorbar(ScalarMappable(scale, COLOURS), cax=axes, ticks=ticks)
    what = "attention weight" if scale is SCALE else "norm (units of the residual stream)"
    bar.set_label(what, fontsize=8, **figure.style)
    axes.minorticks_off()
    axes.set_yticks(ticks, [f"{tick:.3g}" for tick in ticks], fontsize=7, **figure.style)
