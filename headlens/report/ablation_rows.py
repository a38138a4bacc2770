"""Rows of changes with their intervals: a bar each, or a point among those of random sets."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.patches import Rectangle
from numpy.typing import NDArray

from headlens.benchmarks.metrics import Array, Metric
from headlens.report.ablation_words import HATCHES, MARKERS, VERDICTS, change_in, ticks_within, verdicts
from headlens.report.figures import InchFigure
from headlens.report.fonts import text_size
from headlens.report.links import link_rows
from headlens.report.pages import INSIDE, TWO_COLUMNS, page
from headlens.report.parts import MARGIN

ROW, DOTTED_ROW = 0.19, 0.27  # inches
KEY, ABOVE, BELOW, GAP, HEADING = 0.24, 0.2, 0.42, 0.14, 0.08  # inches
SIZE = 7  # points
Places = NDArray[np.intp]
Columns = Sequence[tuple[str, Sequence[str]]]


@dataclass(frozen=True, eq=False)
class Rows:
    """What a figure shows, from top to bottom.

    Args:
        table: label, stack, delta, ci_low, ci_high and q_value of each row; rows of a stack together. Where
            each row is about one head, `head` is its name.
        metric: what changed.
        columns: heading and cells of the columns of text at the right.
        dots: changes under random sets, an array per row; empty for bars instead.
    """

    table: pd.DataFrame
    metric: Metric
    columns: Columns
    dots: Sequence[Array] = ()

    def draw(self, title: str, caption: str) -> InchFigure:
        """Draw the rows, a panel per stack.

        Args:
            title: above.
            caption: below.

        Returns:
            The figure.
        """
        stacks = list(dict.fromkeys(self.table["stack"]))
        heading = HEADING * (len(stacks) > 1)
        high = DOTTED_ROW if self.dots else ROW
        counts = [int((self.table["stack"] == stack).sum()) for stack in stacks]
        heights = [heading + ABOVE + high * count + BELOW for count in counts]
        texts = [*self.table["label"], *(cell for _, cells in self.columns for cell in cells)]
        figure, top = page(title, caption, (TWO_COLUMNS, KEY + sum(heights)), texts)
        left = text_size(list(self.table["label"]), SIZE, figure.families)[0] + 0.1
        ends = np.cumsum([text_size([h, *c], SIZE, figure.families)[0] + GAP for h, c in self.columns])
        width = INSIDE - left - float(ends[-1])
        self._key(figure, top)
        top += KEY
        for stack, count, height in zip(stacks, counts, heights, strict=True):
            if heading:
                figure.write(MARGIN, top, stack, 9, fontweight="bold")
            axes = figure.place(MARGIN + left, top + heading + ABOVE, width, high * count)
            places = np.flatnonzero(self.table["stack"] == stack)
            self._panel(figure, axes, places)
            if "head" in self.table:
                link_rows(axes, self.table["head"].iloc[places], 1 + float(ends[-1]) / width)
            self._texts(figure, axes, places, ends / width)
            top += height
        axes.set_xlabel(change_in(self.metric), fontsize=8, labelpad=2, **figure.style)
        return figure

    def _panel(self, figure: InchFigure, axes: Axes, places: Places) -> None:
        table = self.table.iloc[places]
        judged, rows = np.array(verdicts(self.metric, table)), np.arange(len(table))
        delta = table["delta"].to_numpy(np.float64)
        axes.axvline(0, color="black", linewidth=0.8, zorder=1)
        if self.dots:
            for row, place in zip(rows, places, strict=True):
                drawn = self.dots[place]
                spread = row + 0.25 * np.cos(np.pi * np.arange(len(drawn)) * 0.618)  # apart, and always so
                axes.plot(drawn, spread, "o", markersize=2.8, color="0.6", markeredgewidth=0, label="random")
        for verdict, (colour, _) in VERDICTS.items():
            mine = judged == verdict
            if self.dots:
                axes.plot(
                    delta[mine], rows[mine], MARKERS[verdict], markersize=5, color=colour,
                    markeredgecolor="black", markeredgewidth=0.7, label=verdict, zorder=4, linestyle="",
                )  # fmt: skip
            else:
                axes.barh(
                    rows[mine], delta[mine], height=0.7, facecolor=colour, label=verdict, zorder=2,
                    edgecolor="white", linewidth=0, hatch=HATCHES.get(verdict),
                )  # fmt: skip
        known = np.isfinite(delta)
        axes.hlines(
            rows[known], table["ci_low"][known], table["ci_high"][known], color="black", linewidth=1.1,
            label="interval", zorder=3,
        )  # fmt: skip
        axes.set_ylim(len(table) - 0.4, -0.6)
        axes.set_yticks(rows, list(table["label"]), fontsize=SIZE, **figure.style)
        axes.set_xlim(*self._limits())
        axes.xaxis.set_ticks(**ticks_within(axes.get_xlim(), 5), fontsize=SIZE, **figure.style)
        axes.tick_params(length=2, pad=2)
        axes.grid(axis="x", color="0.92", linewidth=0.5)
        axes.set_axisbelow(True)
        axes.spines[["top", "right"]].set_visible(False)

    def _texts(self, figure: InchFigure, axes: Axes, places: Places, ends: Array) -> None:
        """Write the columns; ends are their right edges, in widths of the axes beyond the axes."""
        for (head, cells), end in zip(self.columns, ends, strict=True):
            for row, text in enumerate([head, *(cells[place] for place in places)]):
                axes.text(
                    1 + float(end), row - 1 + 0.1 * (not row), text, fontsize=SIZE, ha="right",
                    va="center_baseline", fontweight="normal" if row else "bold",
                    transform=axes.get_yaxis_transform(), **figure.style,
                )  # fmt: skip

    def _limits(self) -> tuple[float, float]:
        ends = [self.table[name].to_numpy(np.float64) for name in ("delta", "ci_low", "ci_high")]
        found = np.concatenate([[0.0], *ends, *self.dots])
        found = found[np.isfinite(found)]
        low, high = float(found.min()), float(found.max())
        room = 0.05 * (high - low) or 1.0
        return low - room, high + room

    def _key(self, figure: InchFigure, top: float) -> None:
        """The meaning of colours and marks, in one line above the panels."""
        axes = figure.place(MARGIN, top, INSIDE, KEY)
        axes.set(xlim=(0, INSIDE), ylim=(0, 1))
        axes.set_axis_off()
        judged = set(verdicts(self.metric, self.table))
        entries = [(*look, MARKERS[name], name) for name, look in VERDICTS.items() if name in judged]
        entries += [("black", "95 % interval", "_", "")]
        entries += [("0.6", "random sets", ".", "")] * bool(self.dots)
        left = 0.08
        for colour, text, shape, verdict in entries:
            if verdict and not self.dots:
                axes.add_patch(_swatch(left, colour, HATCHES.get(verdict)))
            else:
                axes.plot([left], [0.5], shape, color=colour, markersize=6, markeredgewidth=1.1)
            axes.text(left + 0.09, 0.5, text, fontsize=SIZE, va="center_baseline", **figure.style)
            left += 0.3 + text_size([text], SIZE, figure.families)[0]


def _swatch(left: float, colour: str, hatch: str | None) -> Rectangle:
    """A small bar in the key, of height 1."""
    box = (left - 0.05, 0.5 - 0.05 / KEY), 0.1, 0.1 / KEY
    return Rectangle(*box, facecolor=colour, edgecolor="white", linewidth=0, hatch=hatch)
