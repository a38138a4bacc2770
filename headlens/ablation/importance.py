"""How much each head matters, from what a sweep measured."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import combinations

import numpy as np
import pandas as pd
from scipy import stats

from headlens.benchmarks.metrics import Array, Metric
from headlens.model.heads import Head
from headlens.util.files import IMPORTANCE


def from_each(heads: Sequence[Head], deltas: Mapping[Head, float], metric: Metric) -> pd.DataFrame:
    """Take as importance what is lost when a head is removed alone.

    It misleads where heads stand in for each other: backup heads make every one of them look idle.

    Args:
        heads: the heads in question, in model order.
        deltas: the change of the primary metric when a head is removed alone; a head that is not in it was
            not measured.
        metric: the primary metric.

    Returns:
        The table `importance.csv`, method ``each``; importance is positive where the model is worse
        without the head.
    """
    found = np.array([deltas.get(head, np.nan) for head in heads], dtype=np.float64)
    return ranked(heads, "each", 0.0 - found if metric.larger_is_better else found)


def ranked(heads: Sequence[Head], method: str, importance: Array) -> pd.DataFrame:
    """Rank heads by importance.

    Args:
        heads: in model order.
        method: how the importance was found.
        importance: of each head; NaN where it was not measured.

    Returns:
        The table `importance.csv`; rank 1 is the most important head, of equals the first of the model.
    """
    table = pd.DataFrame(
        {
            "stack": [head.stack for head in heads],
            "layer": [head.layer for head in heads],
            "head": [head.head for head in heads],
            "method": method,
            "importance": np.asarray(importance, dtype=np.float64),
        }
    )
    table["rank"] = table["importance"].rank(method="first", ascending=False).astype("Int64")
    return table[list(IMPORTANCE)]


def agreement(importance: pd.DataFrame) -> pd.DataFrame:
    """Compare how methods rank the heads.

    Args:
        importance: the table `importance.csv` of several methods.

    Returns:
        Spearman's correlation rho of every two methods, in their order, over the n heads that both have
        measured; NaN where it is not defined: fewer than 3 heads, or all equal.
    """
    wide = importance.pivot_table("importance", ["stack", "layer", "head"], "method", dropna=False)
    rows = []
    for a, b in combinations(importance["method"].unique(), 2):
        both = wide[[a, b]].dropna()
        defined = len(both) >= 3 and (both.nunique() > 1).all()
        rho = float(stats.spearmanr(both[a], both[b]).statistic) if defined else float("nan")
        rows.append((a, b, rho, len(both)))
    return pd.DataFrame(rows, columns=["method_a", "method_b", "rho", "n"])
