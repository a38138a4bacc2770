"""A map of layers and heads with one colour and one mark per head, a panel per stack."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from matplotlib.cm import ScalarMappable
from matplotlib.colors import Colormap, Normalize, to_hex, to_rgba

from headlens.heads import STACKS, Head
from headlens.report.ablation_words import MISSING
from headlens.report.figures import InchFigure
from headlens.report.head_map import ABOVE, BELOW, HEADING, HIGHEST, LEFT, LOWEST, NARROWEST, TALL, WIDEST
from headlens.report.links import link_areas, link_name
from headlens.report.pages import TWO_COLUMNS, page
from headlens.report.parts import MARGIN
from headlens.report.tag_styles import luminance

LEAST_WIDTH = 4.4  # inches of the figure, so that title and caption have lines
BAR = 0.62  # inches below the maps for a colour scale, its ticks and label


@dataclass(frozen=True, slots=True)
class Cell:
    """How a head looks.

    Args:
        colour: any colour of matplotlib.
        mark: written on it.
    """

    colour: str
    mark: str = ""


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
        """The look of a head with this number; one without is grey."""
        return Cell(to_hex(self.colours(self.norm(number))) if np.isfinite(number) else MISSING, mark)

    def draw(self, figure: InchFigure, top: float) -> None:
        """Draw the colour scale.

        Args:
            figure: where.
            top: of the scale, in inches from the figure's upper edge.
        """
        width = figure.get_size_inches()[0] - 2 * MARGIN - LEFT
        axes = figure.place(MARGIN + LEFT, top + 0.06, min(width, 3.2), 0.13)
        ticks = np.linspace(self.norm.vmin or 0.0, self.norm.vmax or 1.0, 5)
        bar = figure.colorbar(
            ScalarMappable(self.norm, self.colours), cax=axes, orientation="horizontal", ticks=ticks
        )
        bar.outline.set_visible(False)
        axes.minorticks_off()
        axes.set_xticks(ticks, [f"{tick:.3g}" for tick in ticks], fontsize=7, **figure.style)
        axes.tick_params(length=2, pad=2)
        axes.set_xlabel(self.label, fontsize=8, labelpad=2, loc="left", **figure.style)


@dataclass(frozen=True, slots=True)
class Grid:
    """What a map shows.

    Args:
        cells: the look of each head; what the grid of layers and heads has besides stays white.
    """

    cells: Mapping[Head, Cell]

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
        n_columns = max(len({head.head for head in mine}) for mine in heads)
        n_rows = [len({head.layer for head in mine}) for mine in heads]
        wide = (TWO_COLUMNS - 2 * MARGIN - LEFT) / n_columns
        wide = min(max(wide, NARROWEST), WIDEST)
        high = max(min(HIGHEST, 0.85 * wide, TALL / sum(n_rows)), LOWEST)
        width = max(2 * MARGIN + LEFT + wide * n_columns, LEAST_WIDTH)
        heading = HEADING * (len(stacks) > 1)
        heights = [heading + ABOVE + high * n + BELOW for n in n_rows]
        figure, top = page(title, caption, (width, sum(heights) + below))
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
        areas: dict[str, tuple[float, float, float, float]] = {}
        for head in heads:
            row, column = rows.index(head.layer), columns.index(head.head)
            look = self.cells[head]
            areas[link_name(head, several)] = (column - 0.5, row - 0.5, 1, 1)
            image[row, column] = to_rgba(look.colour)
            if look.mark:
                ink = "black" if luminance(look.colour) > 0.18 else "white"
                axes.text(
                    column, row, look.mark, fontsize=7, color=ink, ha="center", va="center_baseline",
                    **figure.style,
                )  # fmt: skip
        axes.imshow(image, aspect="auto", interpolation="nearest")
        link_areas(axes, areas.items())
        for axis, numbers, name in ((axes.xaxis, columns, "head"), (axes.yaxis, rows, "layer")):
            axis.set_ticks(range(len(numbers)), list(map(str, numbers)), fontsize=7, **figure.style)
            axis.set_ticks([n - 0.5 for n in range(1, len(numbers))], minor=True)
            first = " (0 on top)" if name == "layer" and cell[1] * len(rows) > 1.2 and rows[0] == 0 else ""
            axis.set_label_text(name + first, fontsize=8, **figure.style)
            axis.labelpad = 2
        axes.grid(which="minor", color="white", linewidth=0.8)
        axes.tick_params(length=0, pad=2, top=False, labeltop=True, labelbottom=False)
        axes.tick_params(which="minor", length=0)
        axes.xaxis.set_label_position("top")
        axes.spines[:].set_visible(False)
