"""Maps of heads: what the loss of each does, and how much each matters by an estimate."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import pandas as pd
from matplotlib import colormaps
from matplotlib.colors import Normalize

from headlens.ablation.result import Sweep
from headlens.benchmarks.metrics import Array
from headlens.model.heads import Head
from headlens.report.ablation_grid import Cell, Grid, Scale
from headlens.report.ablation_words import (
    MISSING,
    change_in,
    estimated_on,
    losses,
    measured_on,
    verdicts,
)
from headlens.report.claims import among
from headlens.report.figures import InchFigure
from headlens.report.pages import head_names, listing
from headlens.util.formatting import counted

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
    metric, rows = sweep.metrics[0], sweep.primary
    loss = losses(metric, rows["delta"])
    colours = "RdBu" if metric.larger_is_better else "RdBu_r"
    scale = _scale(rows["delta"].to_numpy(np.float64), colours, f"{change_in(metric)} without the head")
    cells = dict.fromkeys(_in_question(sweep), Cell(MISSING, hatched=True))
    judged = verdicts(metric, rows)
    for one, delta, verdict in zip(sweep.conditions, rows["delta"], judged, strict=True):
        mark = {"": UNDEFINED_MARK, "unsure": UNSURE_MARK, "better": BETTER_MARK}.get(verdict, "")
        cells[one.heads[0]] = scale.cell(delta, mark)
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


def _in_question(sweep: Sweep) -> list[Head]:
    measured = [one.heads[0] for one in sweep.conditions]
    return list(dict.fromkeys([*_heads(sweep.importance), *measured]))


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
    name = rows["condition"].iloc[first].removeprefix("head ")
    return f"{text}; the largest loss is head {name} ({rows['delta'].iloc[first]:+.4f})"
