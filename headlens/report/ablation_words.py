"""Words and colours that all figures of an ablation sweep share."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import pandas as pd
from matplotlib.ticker import MaxNLocator

from headlens.ablation.result import SIGNIFICANT, Sweep
from headlens.benchmarks.metrics import Array, Metric
from headlens.report.parts import label

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
    about, mode = sweep.run["benchmark"], str(sweep.table["mode"].iloc[0])
    return (
        f"Measured on {label(about['name'], _LONGEST)}, {about['examples']:,} examples; a removed head puts "
        f"out {INSTEAD.get(mode, mode)}. Layers and heads count from 0."
    )


def estimated_on(sweep: Sweep) -> str:
    """Say what importance was estimated on.

    Args:
        sweep: with importance.

    Returns:
        Sentences.
    """
    which = sweep.run.get("importance_estimated_on", "all examples")
    name = label(sweep.run["benchmark"]["name"], _LONGEST)
    return f"Estimated on {which}. Benchmark: {name}. Layers and heads count from 0."


def change_in(metric: Metric) -> str:
    """Name the axis of deltas."""
    return f"change in {label(metric.label, _LONGEST)}"


def better_when(metric: Metric) -> str:
    """Say which way the metric points."""
    return f"{'higher' if metric.larger_is_better else 'lower'} is better"


def losses(metric: Metric, delta: pd.Series) -> Array:
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


def verdicts(metric: Metric, table: pd.DataFrame) -> list[str]:
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
