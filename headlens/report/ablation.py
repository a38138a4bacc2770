"""Figures of an ablation sweep."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.colors import TwoSlopeNorm
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator

from headlens.ablation.result import Sweep
from headlens.benchmarks.metrics import Metric
from headlens.errors import RunError

SIGNIFICANT = 0.05  # q-values below it


def figures(sweep: Sweep) -> list[tuple[str, Figure]]:
    """Draw what suits a sweep.

    Args:
        sweep: of any kind.

    Returns:
        Names and figures.
    """
    return [("heads", heads_figure(sweep))] if sweep.kind == "each" else []


def heads_figure(sweep: Sweep) -> Figure:
    """Draw what removing each head alone does to the primary metric: a map of layers and heads.

    Colours are centred at 0; red is worse than without ablation, whichever way the metric points. A cell
    with a dot is not significant (q >= 0.05); a grey cell was not measured.

    Args:
        sweep: of the kind `each`.

    Returns:
        The figure, a panel per stack.
    """
    metric = sweep.metrics[0]
    heads = [(one.heads[0].stack, one.heads[0].layer, one.heads[0].head) for one in sweep.conditions]
    table = pd.DataFrame(heads, columns=["stack", "layer", "head"])
    table[["delta", "q_value"]] = sweep.primary[["delta", "q_value"]]
    stacks = list(dict.fromkeys(table["stack"]))
    n_layers, n_heads = int(table["layer"].max()) + 1, int(table["head"].max()) + 1
    size = (max(4.5, 0.42 * n_heads * len(stacks) + 2.2), max(2.8, 0.36 * n_layers + 1.6))
    figure = Figure(figsize=size, layout="constrained")
    FigureCanvasAgg(figure)
    axes = figure.subplots(1, len(stacks), squeeze=False)[0]
    largest = np.nan_to_num(table["delta"].abs().max()) or 1.0
    for axis, stack in zip(axes, stacks, strict=True):
        _panel(axis, table[table["stack"] == stack], metric, float(largest))
        if len(stacks) > 1:
            axis.set_title(stack)
    bar = figure.colorbar(axes[-1].images[0], ax=list(axes))
    bar.set_label(f"change in {metric.label}\nwhen the head is removed")
    figure.supxlabel("dot: not significant (q ≥ 0.05)", fontsize="small", x=0.02, ha="left")
    return figure


def _panel(axis: Axes, table: pd.DataFrame, metric: Metric, largest: float) -> None:
    shape = (int(table["layer"].max()) + 1, int(table["head"].max()) + 1)
    delta, q_value = np.full(shape, np.nan), np.full(shape, np.nan)  # [layer, head]
    places = table["layer"].to_numpy(int), table["head"].to_numpy(int)
    delta[places], q_value[places] = table["delta"], table["q_value"]
    norm = TwoSlopeNorm(0.0, -largest, largest)
    axis.imshow(delta, cmap="RdBu" if metric.larger_is_better else "RdBu_r", norm=norm, aspect="auto")
    axis.set_facecolor("0.85")
    layers, heads = np.nonzero(q_value >= SIGNIFICANT)
    axis.scatter(heads, layers, s=10, color="0.25", edgecolors="white", linewidths=0.4)
    axis.set_xlabel("head")
    axis.set_ylabel("layer")
    axis.xaxis.set_major_locator(MaxNLocator(integer=True))
    axis.yaxis.set_major_locator(MaxNLocator(integer=True))


def save(figures: Sequence[tuple[str, Figure]], out: Path) -> list[Path]:
    """Write figures into a run directory.

    Args:
        figures: names and figures.
        out: the run directory.

    Returns:
        The files ``figures/NAME.png``.

    Raises:
        RunError: one cannot be written.
    """
    folder = out / "figures"
    paths = []
    for name, figure in figures:
        path = folder / f"{name}.png"
        try:
            folder.mkdir(parents=True, exist_ok=True)
            figure.savefig(path, dpi=150)
        except OSError as error:
            raise RunError(f"{path} cannot be written: {error.strerror}.", "Choose another --out.") from error
        paths.append(path)
    return paths
