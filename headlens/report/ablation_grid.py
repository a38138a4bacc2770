"""A map of layers and heads with one colour and one mark per head, a panel per stack."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from matplotlib.axes import Axes
from matplotlib.cm import ScalarMappable
from matplotlib.collections import PatchCollection
from matplotlib.colors import Colormap, Normalize, to_hex, to_rgba
from matplotlib.patches import Rectangle

from headlens.model.heads import STACKS, Head
from headlens.report.ablation_words import MISSING
from headlens.report.figures import InchFigure, wrapped
from headlens.report.fonts import BASE
from headlens.report.head_map import (
    ABOVE,
    BELOW,
    FEW_HEADS,
    HEADING,
    HIGHEST,
    LEFT,
    LOWEST,
    NARROWEST,
    TALL,
    WIDEST,
)
from headlens.report.links import link_areas, link_name
from headlens.report.pages import ONE_COLUMN, TWO_COLUMNS, page
from headlens.report.parts import MARGIN
from headlens.report.tag_styles import luminance

BAR = 0.49  # inches below the maps for a colour scale and its ticks


@dataclass(frozen=True, slots=True)
class Cell:
    """How a head looks.

    Args:
        colour: any colour of matplotlib.
        mark: written on it.
        hatched: whether it is hatched, as cells of which nothing is known are.
    """

    colour: str
    mark: str = ""
    hatched: bool = False


@dataclass(frozen=True, slots=True)
class Scale:
    """What numbers look like.

    Args:
        colours: the colour map.
        norm: from numbers to 0..1; its ends are those of the scale.
        label: what the numbers are.
    """

    colours: Colormap
    norm: Normalize
    label: str

    def cell(self, number: float, mark: str = "") -> Cell:
        """The look of a head with this number; one without is grey, and hatched if it has no mark either."""
        if np.isfinite(number):
            return Cell(to_hex(self.colours(self.norm(number))), mark)
        return Cell(MISSING, mark, hatched=not mark)

    def room(self, width: float) -> float:
        """The height of the scale in a figure of this width, with its ticks and label, in inches."""
        return BAR + self._label(width)[1]

    def draw(self, figure: InchFigure, top: float) -> None:
        """Draw the colour scale.

        Args:
            figure: where.
            top: of the scale, in inches from the figure's upper edge.
        """
        width = figure.get_size_inches()[0] - 2 * MARGIN - LEFT - 0.12  # for half of the last tick
        axes = figure.place(MARGIN + LEFT, top + 0.06, min(width, 3.2), 0.13)
        ticks = np.linspace(self.norm.vmin or 0.0, self.norm.vmax or 1.0, 5)
        bar = figure.colorbar(
            ScalarMappable(self.norm, self.colours), cax=axes, orientation="horizontal", ticks=ticks
        )
        bar.outline.set_visible(False)
        axes.minorticks_off()
        axes.set_xticks(ticks, [f"{tick:.3g}" for tick in ticks], fontsize=7, **figure.style)
        axes.tick_params(length=2, pad=2)
        said, _ = self._label(figure.get_size_inches()[0])
        axes.set_xlabel(said, fontsize=8, labelpad=2, loc="left", multialignment="left", **figure.style)

    def _label(self, width: float) -> tuple[str, float]:
        return wrapped(self.label, width - 2 * MARGIN - LEFT, 8, [BASE])


@dataclass(frozen=True, slots=True)
class Grid:
    """What a map shows.

    Args:
        cells: the look of each head; what the grid of layers and heads has besides stays white.
    """

    cells: Mapping[Head, Cell]

    @property
    def width(self) -> float:
        """The width of the figure: one or two columns of a paper, or what many heads need; in inches."""
        fits = TWO_COLUMNS if self._n_columns > FEW_HEADS else ONE_COLUMN
        return max(fits, 2 * MARGIN + LEFT + NARROWEST * self._n_columns)

    @property
    def _n_columns(self) -> int:
        """How many heads the widest stack has."""
        shown = {(head.stack, head.head) for head in self.cells}
        return max(Counter(stack for stack, _ in shown).values())

    def draw(self, title: str, caption: str, below: float) -> tuple[InchFigure, float]:
        """Draw the map, a panel per stack.

        Args:
            title: above.
            caption: below.
            below: room that is kept free under the maps, in inches.

        Returns:
            The figure, and the distance of the free room from its upper edge in inches.
        """
        stacks = [stack for stack in STACKS if any(head.stack == stack for head in self.cells)]
        heads = [[head for head in self.cells if head.stack == stack] for stack in stacks]
        n_rows = [len({head.layer for head in mine}) for mine in heads]
        wide = min((self.width - 2 * MARGIN - LEFT) / self._n_columns, WIDEST)
        high = max(min(HIGHEST, 0.85 * wide, TALL / sum(n_rows)), LOWEST)
        heading = HEADING * (len(stacks) > 1)
        heights = [heading + ABOVE + high * n + BELOW for n in n_rows]
        caption += " Rows: layers, the lowest on top."
        figure, top = page(title, caption, (self.width, sum(heights) + below))
        for stack, mine, height in zip(stacks, heads, heights, strict=True):
            if heading:
                figure.write(MARGIN, top, stack, 9, fontweight="bold")
            self._panel(figure, mine, (MARGIN + LEFT, top + heading + ABOVE), (wide, high))
            top += height
        return figure, top

    def _panel(
        self, figure: InchFigure, heads: Sequence[Head], place: tuple[float, float], cell: tuple[float, float]
    ) -> None:
        rows = sorted({head.layer for head in heads})
        columns = sorted({head.head for head in heads})
        axes = figure.place(*place, cell[0] * len(columns), cell[1] * len(rows))
        image = np.ones((len(rows), len(columns), 4))  # [layer, head, colour]
        several = len({head.stack for head in self.cells}) > 1
        areas, unknown = [], []
        for head in heads:
            row, column = rows.index(head.layer), columns.index(head.head)
            look = self.cells[head]
            areas.append((link_name(head, several), (column - 0.5, row - 0.5, 1.0, 1.0)))
            image[row, column] = to_rgba(look.colour)
            if look.hatched:
                unknown.append(Rectangle((column - 0.5, row - 0.5), 1, 1))
            if look.mark:
                ink = "black" if luminance(look.colour) > 0.18 else "white"
                axes.text(
                    column, row, look.mark, fontsize=7, color=ink, ha="center", va="center_baseline",
                    **figure.style,
                )  # fmt: skip
        axes.imshow(image, aspect="auto", interpolation="nearest")
        if unknown:
            hatched = PatchCollection(unknown, facecolor="none", edgecolor="0.5", linewidth=0, hatch="/////")
            axes.add_collection(hatched, autolim=False)
        link_areas(axes, areas)
        _frame(figure, axes, rows, columns)


def _frame(figure: InchFigure, axes: Axes, rows: Sequence[int], columns: Sequence[int]) -> None:
    high = axes.get_position().height * figure.get_size_inches()[1]
    for axis, numbers, name in ((axes.xaxis, columns, "head"), (axes.yaxis, rows, "layer")):
        axis.set_ticks(range(len(numbers)), list(map(str, numbers)), fontsize=7, **figure.style)
        axis.set_ticks([n - 0.5 for n in range(1, len(numbers))], minor=True)
        first = " (0 on top)" if name == "layer" and high > 1.2 and rows[0] == 0 else ""
        axis.set_label_text(name + first, fontsize=8, **figure.style)
        axis.labelpad = 2
    axes.grid(which="minor", color="white", linewidth=0.8)
    axes.tick_params(length=0, pad=2, top=False, labeltop=True, labelbottom=False)
    axes.tick_params(which="minor", length=0)
    axes.xaxis.set_label_position("top")
    axes.spines[:].set_visible(False)
