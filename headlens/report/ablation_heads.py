"""Figures of a sweep over heads: maps, grids and rows of effects."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd
from matplotlib import colormaps
from matplotlib.axes import Axes
from matplotlib.cm import ScalarMappable
from matplotlib.collections import PatchCollection
from matplotlib.colors import Colormap, Normalize, to_hex, to_rgba
from matplotlib.patches import Rectangle
from matplotlib.ticker import MaxNLocator
from numpy.typing import NDArray

from headlens.ablation.result import SIGNIFICANT, MetricName, Sweep, heads_in
from headlens.benchmarks.metrics import Array
from headlens.model.heads import STACKS, Head, link_name
from headlens.report.canvas import (
    BASE,
    INSIDE,
    MARGIN,
    ONE_COLUMN,
    TWO_COLUMNS,
    InchFigure,
    head_names,
    link_areas,
    link_rows,
    luminance,
    page,
    text_size,
    wrapped,
)
from headlens.report.heatmaps import label
from headlens.report.tag_figures import (
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
from headlens.report.words import among
from headlens.util.formatting import counted, listing

UNSURE_MARK, UNDEFINED_MARK, BETTER_MARK, HARMS_MARK = "\u2022", "\u00d7", "+", "\u2212"
NAMED = 3  # heads that the title of a map of importance names
NOT_DRAWN = {"each", "random"}  # each is the map of deltas; chance needs no map

MEANINGS: Mapping[str, str] = {
    "gradient": "the mean size of the loss's derivative by the head's gate (Michel et al. 2019). It has no "
    "sign: a head that harms counts like one that helps",
    "taylor": "how much the loss rises without the head, to first order",
    "integrated": "the head's share of what the loss rises by without all heads, by integrated gradients",
    "shapley": "the mean rise of the loss when the head goes, over random orders of removal (Shapley value)",
    "gates": "probability that its gate stays open under pressure to close, minus the one that it closes "
    "under pressure to open",
}
"""What an estimate of importance is."""

UNITS: Mapping[str, str] = {
    "gradient": "size of the loss's derivative",
    "taylor": "change in the loss",
    "integrated": "change in the loss",
    "shapley": "change in the loss",
    "gates": "difference of probabilities",
}


def heads_figure(sweep: Sweep) -> InchFigure:
    """Draw what removing each head alone does to the primary metric: a map of layers and heads.

    Colours are centred at 0; red is worse than without ablation, whichever way the metric points. A cell
    with a dot is not significant (q >= 0.05), one with a plus significantly better; in one with a cross the
    metric is not defined; a hatched cell was not measured.

    Args:
        sweep: of the kind *each*.

    Returns:
        The figure, a panel per stack.
    """
    metric, rows = sweep.metric, sweep.primary
    loss = losses(metric, rows["delta"])
    colours = "RdBu" if metric.larger_is_better else "RdBu_r"
    scale = _scale(rows["delta"].to_numpy(np.float64), colours, f"{change_in(metric)} without the head")
    alone = [heads_in(removed)[0] for removed in rows["removed"]]
    in_question = dict.fromkeys([*_heads(sweep.importance), *alone])
    cells = dict.fromkeys(in_question, HeadCell(MISSING, hatched=True))
    judged = verdicts(metric, rows)
    for head, delta, verdict in zip(alone, rows["delta"], judged, strict=True):
        mark = {"": UNDEFINED_MARK, "unsure": UNSURE_MARK, "better": BETTER_MARK}.get(verdict, "")
        cells[head] = scale.cell(delta, mark)
    screened, undefined = len(cells) - len(rows), judged.count("")
    caption = "Red: worse without the head; blue: better, with a plus where that is significant. "
    caption += "A dot: not significant (q \u2265 0.05). "
    caption += f"A cross: {metric.name} is not defined without the head. " * (undefined > 0)
    caption += f"Hatched: not measured ({counted(screened, 'head')}). " * (screened > 0)
    grid, caption = Grid(cells), caption + measured_on(sweep)
    figure, top = grid.draw(_finding(rows, loss, judged), caption, scale.room(grid.width))
    scale.draw(figure, top)
    return figure


def importance_figure(sweep: Sweep, method: str) -> InchFigure:
    """Draw how much each head matters by one estimate: a map of layers and heads.

    Red is a head without which the model would be worse, blue one without which it would be better.

    Args:
        sweep: with importance by this method.
        method: a value of the column `method`.

    Returns:
        The figure, a panel per stack.
    """
    rows = sweep.importance[sweep.importance["method"] == method]
    values = rows["importance"].to_numpy(np.float64)
    signed = bool((values < 0).any())
    unit = f" ({UNITS[method]})" if method in UNITS else ""
    scale = _scale(values, "RdBu_r" if signed else "Reds", f"importance by {method}{unit}", signed)
    cells = {
        head: scale.cell(value, HARMS_MARK if value < 0 else "")
        for head, value in zip(_heads(rows), values, strict=True)
    }
    colours = "Red: the head matters; blue with a minus: it harms"
    colours = colours if signed else "The darker, the more the head matters"
    unknown = int((~np.isfinite(values)).sum())
    caption = f"{colours}. Importance by {method}: {MEANINGS.get(method, 'see the table')}. "
    caption += f"Hatched: no number ({counted(unknown, 'head')}). " * (unknown > 0)
    known = rows.assign(name=head_names(rows))[np.isfinite(values)]
    top_heads = known.sort_values("importance", ascending=False, kind="stable").head(NAMED)
    named = [f"{n} ({v:.2g})" for n, v in zip(top_heads["name"], top_heads["importance"], strict=True)]
    finding = f"the most important {'head is' if len(named) == 1 else 'heads are'} {listing(named)}"
    title = f"By {method} {finding}" if named else f"No head has an importance by {method}"
    grid = Grid(cells)
    figure, top = grid.draw(title, caption + estimated_on(sweep), scale.room(grid.width))
    scale.draw(figure, top)
    return figure


def methods_of(sweep: Sweep) -> list[str]:
    """List the methods whose importance is worth a map: all but *each* and *random*."""
    return [method for method in sweep.importance["method"].unique() if method not in NOT_DRAWN]


def _heads(table: pd.DataFrame) -> list[Head]:
    places = zip(table["stack"], table["layer"], table["head"], strict=True)
    return [Head(str(stack), int(layer), int(head)) for stack, layer, head in places]


def _scale(values: Array, colours: str, said: str, signed: bool = True) -> Scale:
    finite = np.abs(values[np.isfinite(values)])
    largest = float(finite.max()) if len(finite) and finite.max() > 0 else 1.0
    return Scale(colormaps[colours], Normalize(-largest if signed else 0.0, largest), said)


def _finding(rows: pd.DataFrame, loss: Array, judged: list[str]) -> str:
    worse, better = judged.count("worse"), judged.count("better")
    known = len(judged) - judged.count("")
    removed = among(known, len(rows), "head", " removed alone")
    text = (
        f"Of {removed}, {worse or 'none'} matter{'s' * (worse == 1)} "
        f"(significantly worse without) and {better or 'none'} harm{'s' * (better == 1)} (better without)"
    )
    if not (loss > 0).any():
        return text
    first = int(np.nanargmax(loss))
    return f"{text}; the largest loss is {rows['condition'].iloc[first]} ({rows['delta'].iloc[first]:+.4f})"


# ---- A map of layers and heads with one colour and one mark per head, a panel per stack


BAR = 0.49  # inches below the maps for a colour scale and its ticks


@dataclass(frozen=True, slots=True)
class HeadCell:
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

    def cell(self, number: float, mark: str = "") -> HeadCell:
        """The look of a head with this number; one without is grey, and hatched if it has no mark either."""
        if np.isfinite(number):
            return HeadCell(to_hex(self.colours(self.norm(number))), mark)
        return HeadCell(MISSING, mark, hatched=not mark)

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

    cells: Mapping[Head, HeadCell]

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


# ---- Rows of changes with their intervals: a bar each, or a point among those of random sets


ROW, DOTTED_ROW = 0.19, 0.27  # inches
KEY, ROWS_ABOVE, ROWS_BELOW, GAP, ROWS_HEADING = 0.24, 0.2, 0.42, 0.14, 0.08  # inches
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
    metric: MetricName
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
        heading = ROWS_HEADING * (len(stacks) > 1)
        high = DOTTED_ROW if self.dots else ROW
        counts = [int((self.table["stack"] == stack).sum()) for stack in stacks]
        heights = [heading + ROWS_ABOVE + high * count + ROWS_BELOW for count in counts]
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
            axes = figure.place(MARGIN + left, top + heading + ROWS_ABOVE, width, high * count)
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


# ---- Words and colours that all figures of an ablation sweep share


WORSE, BETTER, UNSURE, MISSING = "#b2182b", "#2166ac", "#c8c8c8", "#d9d9d9"
"""Red and blue of the colour map RdBu, told apart by colour-blind readers; greys for what is not known."""

VERDICTS: Mapping[str, tuple[str, str]] = {
    "worse": (WORSE, "significantly worse (q < 0.05)"),
    "better": (BETTER, "significantly better (q < 0.05)"),
    "unsure": (UNSURE, "not significant"),
}
"""What can be said of a change: its colour and its words."""

HATCHES: Mapping[str, str] = {"better": "/////"}
MARKERS: Mapping[str, str] = {"worse": "D", "better": "s", "unsure": "o"}
"""Red and blue are the same grey on paper, so bars are hatched and points have shapes of their own."""

INSTEAD: Mapping[str, str] = {
    "zero": "zeros",
    "mean": "its mean output",
    "resample": "its output on another example",
    "uniform": "what uniform attention gives",
}
"""What a removed head puts out, by mode."""

_LONGEST = 60  # characters of a name that a user has chosen


def measured_on(sweep: Sweep) -> str:
    """Say what a sweep was measured on, and what stood in the place of removed heads.

    Args:
        sweep: of any kind.

    Returns:
        A sentence.
    """
    return (
        f"Measured on {label(sweep.benchmark, _LONGEST)}, {int(sweep.table['n'].iloc[0]):,} examples; a "
        f"removed head puts out {INSTEAD.get(sweep.mode, sweep.mode)}. Layers and heads count from 0."
    )


def estimated_on(sweep: Sweep) -> str:
    """Say what importance was estimated on.

    Args:
        sweep: with importance.

    Returns:
        Sentences.
    """
    name = label(sweep.benchmark, _LONGEST)
    return f"Estimated on {sweep.estimated_on}. Benchmark: {name}. Layers and heads count from 0."


def change_in(metric: MetricName) -> str:
    """Name the axis of deltas."""
    return f"change in {label(metric.label, _LONGEST)}"


def better_when(metric: MetricName) -> str:
    """Say which way the metric points."""
    return f"{'higher' if metric.larger_is_better else 'lower'} is better"


def losses(metric: MetricName, delta: pd.Series) -> Array:
    """Turn changes into losses: positive is worse, whichever way the metric points.

    Args:
        metric: the metric.
        delta: changes of it.

    Returns:
        One loss per change; NaN where it is not a finite number.
    """
    found = delta.to_numpy(np.float64)
    found = np.where(np.isfinite(found), found, np.nan)
    return 0.0 - found if metric.larger_is_better else found


def verdicts(metric: MetricName, table: pd.DataFrame) -> list[str]:
    """Judge changes.

    Args:
        metric: the metric.
        table: with the columns `delta` and `q_value`.

    Returns:
        For each row a name in `VERDICTS`, or nothing where the metric is not defined.
    """
    loss, q_value = losses(metric, table["delta"]), table["q_value"].to_numpy(np.float64)
    found = np.where(q_value < SIGNIFICANT, np.where(loss > 0, "worse", "better"), "unsure")
    return [str(one) for one in np.where(np.isnan(loss), "", found)]


def ticks_within(limits: tuple[float, float], most: int, integer: bool = False) -> dict[str, Any]:
    """Choose round ticks, written as numbers of their own: no offset or power stands beside the axis.

    Args:
        limits: ends of the axis.
        most: how many parts the axis has at most.
        integer: whether only whole numbers mean anything.

    Returns:
        Arguments of an axis's `set_ticks`.
    """
    low, high = min(limits), max(limits)
    ticks = [
        tick for tick in MaxNLocator(most, integer=integer).tick_values(low, high) if low <= tick <= high
    ]
    return {"ticks": ticks, "labels": [f"{tick + 0.0:g}" for tick in ticks]}
