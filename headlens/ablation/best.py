"""The best head of each layer, chosen on one half of the examples and measured on the other."""

from __future__ import annotations

import numpy as np
import pandas as pd

from headlens.ablation.compare import paired_p
from headlens.ablation.result import Sweep
from headlens.util.statistics import benjamini_hochberg, draws

BEST = ["layer", "kept", "delta", "ci_low", "ci_high", "p_value", "q_value"]


def best_of_layers(sweep: Sweep, seed: int = 0) -> pd.DataFrame:
    """Find which head of each layer does best alone, and what the model then loses.

    Choosing and measuring on the same examples would flatter the head that is chosen (Michel et al. 2019
    choose on validation data, too).

    Args:
        sweep: of the kind *only*.
        seed: of the split into halves.

    Returns:
        A row per layer: layer, kept (the head), delta of the primary metric, its 95 % interval ci_low and
        ci_high, p_value, and q_value over the layers; over the second half alone.
    """
    metric = sweep.metrics[0]
    order = np.random.default_rng(seed).permutation(len(sweep.baseline))
    first, second = np.sort(order[: len(order) // 2]), np.sort(order[len(order) // 2 :])
    drawn = draws(len(second), seed)
    sign = 1 if metric.larger_is_better else -1
    layers: dict[str, list[str]] = {}
    for condition in sweep.conditions:
        kept = condition.name.removeprefix("only head ")
        layers.setdefault(kept.rpartition(".")[0], []).append(condition.name)
    rows = []
    base = sweep.baseline[second]
    for layer, names in layers.items():
        worth = [sign * metric.value(sweep.values[name][first]) for name in names]
        best = names[int(np.argmax(np.nan_to_num(worth, nan=-np.inf)))]
        values = sweep.values[best][second]
        deltas = metric.resampled(values, drawn) - metric.resampled(base, drawn)
        low, high = np.nanpercentile(deltas, [2.5, 97.5]) if np.isfinite(deltas).any() else (np.nan, np.nan)
        delta = metric.value(values) - metric.value(base)
        p_value = paired_p(metric, values, base) if np.isfinite(delta) else np.nan
        rows.append((layer, best.removeprefix("only head "), delta, low, high, p_value))
    table = pd.DataFrame(rows, columns=BEST[:-1])
    return table.assign(q_value=benjamini_hochberg(table["p_value"].to_numpy(np.float64)))
