"""The curve of heads removed step by step, held against random sets."""

from __future__ import annotations

import math

import numpy as np
import pandas as pd
from matplotlib.axes import Axes

from headlens.ablation.result import Sweep
from headlens.report.ablation_words import (
    BETTER,
    WORSE,
    better_when,
    measured_on,
    ticks_within,
)
from headlens.report.claims import can_go
from headlens.report.figures import InchFigure
from headlens.report.pages import INSIDE, TWO_COLUMNS, page
from headlens.report.parts import MARGIN, label
from headlens.util.formatting import per_cent

LEFT, HIGH, ABOVE, BELOW, KEY_LINE = 0.68, 2.7, 0.4, 0.38, 0.155  # inches


def pruning_figure(sweep: Sweep) -> InchFigure:
    """Draw the primary metric against the share of heads removed, the least important first.

    Args:
        sweep: of the kind *cumulative*.

    Returns:
        The figure.
    """
    rows = sweep.primary.sort_values("n_removed", kind="stable")
    n_heads = int(rows["n_removed"].max())
    method = str(sweep.importance["method"].iloc[0]) if len(sweep.importance) else "given"
    order = "in a random order" if method == "random" else f"the least important by {method} first"
    share = float(sweep.run["largest_share_without_significant_loss"])
    n_keys = 6 + 2 * bool(len(sweep.controls)) + bool(rows["delta"].isna().any())
    key = KEY_LINE * math.ceil(n_keys / 2)
    estimated = f"Importance was estimated on {sweep.run['importance_estimated_on']}. " * (method != "random")
    caption = (
        "The interval of each step is that of the change, placed at the value. "
        f"{estimated}What can go ends before the first significant loss, also where a later step happens to "
        f"be insignificant. {measured_on(sweep)}"
    )
    title = f"{can_go(rows, share, _of_model(sweep, n_heads))}, {order}"
    figure, top = page(title, caption, (TWO_COLUMNS, key + ABOVE + HIGH + BELOW))
    axes = figure.place(MARGIN + LEFT, top + key + ABOVE, INSIDE - LEFT, HIGH)
    start = float(rows["baseline"].iloc[0])
    axes.axhline(start, color="black", linewidth=0.8, linestyle=(0, (4, 2)), label="baseline, all heads kept")
    if len(sweep.controls):
        _band(axes, sweep, start, n_heads, "random orders" if method == "random" else "random sets")
    _steps(axes, rows, n_heads, order)
    which = f" of these {n_heads:,}" * (_of_model(sweep, n_heads) != n_heads)
    largest = f"largest share{which} without a significant loss: {per_cent(share)}%"
    axes.axvline(share, color=BETTER, linewidth=1.0, linestyle=":", label=largest)
    _frame(figure, axes, sweep, n_heads)
    _key(figure, axes, top)
    return figure


def _key(figure: InchFigure, axes: Axes, top: float) -> None:
    width, height = figure.get_size_inches()
    figure.legend(
        *axes.get_legend_handles_labels(), loc="upper left", ncols=2, frameon=False, borderpad=0,
        bbox_to_anchor=(MARGIN / width, 1 - top / height), columnspacing=1.2, handletextpad=0.5,
        labelspacing=0.35, prop={"family": list(figure.families), "size": 7}, borderaxespad=0,
    )  # fmt: skip


def _band(axes: Axes, sweep: Sweep, start: float, n_heads: int, what: str) -> None:
    controls = sweep.controls[sweep.controls["metric"] == sweep.metrics[0].name].set_index("condition")
    removed = sweep.primary.set_index("condition")["n_removed"]
    controls = controls.assign(n_removed=removed).sort_values("n_removed", kind="stable")
    share = [0.0, *(controls["n_removed"] / n_heads)]
    low, high, mean = (
        [start, *controls[name].astype(float)] for name in ("random_low", "random_high", "random_mean")
    )
    drawn = f"{int(controls['draws'].max())} {what}"
    axes.fill_between(share, low, high, color="0.85", linewidth=0, label=f"{drawn}: 2.5\u201397.5 percentile")
    axes.plot(share, mean, color="0.55", linewidth=1.2, label=f"{drawn}: mean")


def _steps(axes: Axes, rows: pd.DataFrame, n_heads: int, order: str) -> None:
    share, value = (rows["n_removed"] / n_heads).to_numpy(), rows["value"].to_numpy(np.float64)
    start = float(rows["baseline"].iloc[0])
    value = np.where(np.isfinite(value), value, np.nan)
    axes.plot([0.0, *share], [start, *value], color="black", linewidth=1.2, label=order)
    low, high = (start + rows[name].to_numpy(np.float64) for name in ("ci_low", "ci_high"))
    axes.vlines(share, low, high, color="black", linewidth=0.9, label="95 % interval", zorder=2.5)
    undefined = np.isnan(value)
    lost = (~rows["no_significant_loss"].astype("boolean").fillna(True)).to_numpy(bool)
    for chosen, face, what in (
        (lost, WORSE, "significant loss (p < 0.05)"),
        (~lost & ~undefined, "white", "no significant loss"),
    ):
        axes.plot(
            share[chosen], value[chosen], "o", markersize=5, markerfacecolor=face, markeredgecolor="black",
            markeredgewidth=0.8, label=what, zorder=3,
        )  # fmt: skip
    if undefined.any():
        axes.plot(
            share[undefined], np.full(undefined.sum(), 0.03), "x", color="black", markersize=5,
            transform=axes.get_xaxis_transform(), label="not defined",
        )  # fmt: skip


def _frame(figure: InchFigure, axes: Axes, sweep: Sweep, n_heads: int) -> None:
    metric = sweep.metrics[0]
    ticks = np.linspace(0, 1, 11)
    axes.set_xlim(-0.02, 1.02)
    axes.set_xticks(ticks, [f"{tick:.0%}" for tick in ticks], fontsize=7, **figure.style)
    of_model = _of_model(sweep, n_heads)
    chosen = of_model != n_heads
    which = f"{n_heads:,} heads in question" if chosen else "heads"
    axes.set_xlabel(f"share of the {which} removed", fontsize=8, labelpad=2, **figure.style)
    axes.set_ylabel(
        f"{label(metric.label, 40)}\n({better_when(metric)})", fontsize=8, labelpad=3, **figure.style
    )
    axes.yaxis.set_ticks(**ticks_within(axes.get_ylim(), 7), fontsize=7, **figure.style)
    scaled = (lambda x: np.multiply(x, n_heads), lambda x: np.divide(x, n_heads))
    above = axes.secondary_xaxis("top", functions=scaled)
    above.xaxis.set_ticks(**ticks_within((0, n_heads), 10, integer=True), fontsize=7, **figure.style)
    total = f" in question (the model has {of_model:,})" * chosen
    above.set_xlabel(f"heads removed, of {n_heads:,}{total}", fontsize=8, labelpad=3, **figure.style)
    for one in (axes, above):
        one.tick_params(length=2, pad=2)
    axes.grid(axis="y", color="0.92", linewidth=0.5)
    axes.set_axisbelow(True)
    axes.spines["right"].set_visible(False)


def _of_model(sweep: Sweep, n_heads: int) -> int:
    """How many heads the whole model has; as many as were in question where a run does not say."""
    return int(sweep.run.get("heads_of_model", n_heads))
