"""How much each head matters, from what a sweep measured."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pandas as pd

from headlens.ablation.compare import Comparison
from headlens.ablation.conditions import Condition
from headlens.benchmarks.metrics import Array, Metric
from headlens.heads import Head
from headlens.tables import IMPORTANCE


def from_each(conditions: Sequence[Condition], metric: Metric, comparison: Comparison) -> pd.DataFrame:
    """Take as importance what is lost when a head is removed alone.

    It misleads where heads stand in for each other: backup heads make every one of them look idle.

    Args:
        conditions: those of the sweep `each`, one head per condition.
        metric: the primary metric.
        comparison: of that metric.

    Returns:
        The table `importance.csv`, in model order, method ``each``; importance is positive where the model
        is worse without the head.
    """
    loss = 0.0 - comparison.delta if metric.larger_is_better else comparison.delta
    return ranked([condition.heads[0] for condition in conditions], "each", loss)


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
