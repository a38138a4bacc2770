"""What a sweep measured, as tables."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd

from headlens.ablation.compare import Comparison
from headlens.ablation.conditions import Condition
from headlens.benchmarks.metrics import Array, Metric
from headlens.tables import ABLATION


@dataclass(frozen=True, eq=False)
class Sweep:
    """What a sweep measured.

    Args:
        table: a row per condition and metric, columns as in `ablation.csv`.
        importance: a row per head, columns as in `importance.csv`.
        run: what `run.json` says about it.
        metrics: the benchmark's metrics, the primary one first.
        baseline: per-example values without ablation [example, column].
        values: the same under each condition, by its name.
        notes: what the user should know before believing the numbers.
    """

    table: pd.DataFrame
    importance: pd.DataFrame
    run: Mapping[str, Any]
    metrics: tuple[Metric, ...]
    baseline: Array
    values: Mapping[str, Array]
    notes: tuple[str, ...] = ()


def tabulate(
    listed: Sequence[Condition],
    kind: str,
    metrics: Sequence[Metric],
    compared: Sequence[Comparison],
    n_examples: int,
) -> pd.DataFrame:
    """Lay out comparisons as `ablation.csv`.

    `removed` names heads with their stack: a spreadsheet that reads ``4.10`` as the number 4.1 still has it.

    Args:
        listed: the conditions.
        kind: of the sweep.
        metrics: in the benchmark's order.
        compared: of each metric.
        n_examples: how many examples they rest on.

    Returns:
        A row per condition and metric.
    """
    rows = [
        (
            condition.name, kind, condition.mode, " ".join(map(str, condition.heads)), len(condition.heads),
            metric.name, one.value[index], one.baseline, one.delta[index], one.ci_low[index],
            one.ci_high[index], one.p_value[index], one.q_value[index], n_examples,
        )
        for index, condition in enumerate(listed)
        for metric, one in zip(metrics, compared, strict=True)
    ]  # fmt: skip
    return pd.DataFrame(rows, columns=list(ABLATION))


def notes(baseline: Array, measured: Mapping[str, Array]) -> tuple[str, ...]:
    """Say what the user should know before believing the numbers.

    Args:
        baseline: per-example values without ablation.
        measured: the same under each condition.

    Returns:
        Sentences; that nothing changed anywhere, down to the last bit, is one.
    """
    if any(not np.array_equal(values, baseline) for values in measured.values()):
        return ()
    return (
        f"None of the {len(measured)} ablations changed anything: every example came out as without it. "
        "Either these heads do nothing, or the model does not take the ablation; "
        "`headlens check MODEL` tells which.",
    )
