"""What a sweep measured, as tables."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pandas as pd

from headlens.ablation.compare import Comparison
from headlens.ablation.conditions import Condition
from headlens.benchmarks.metrics import Array, Metric
from headlens.benchmarks.registry import Benchmark, Keyed
from headlens.util.files import ABLATION, AGREEMENT, CONTROLS, GATES, IMPORTANCE

SIGNIFICANT = 0.05  # q-values below it speak for an effect, p-values below it against "no loss"


@dataclass(frozen=True, eq=False)
class Sweep:
    """What a sweep measured.

    Args:
        kind: a name in `headlens.ablation.conditions.SWEEPS`.
        table: a row per condition and metric, columns as in `ablation.csv`.
        importance: a row per method and head, columns as in `importance.csv`.
        run: what `run.json` says about it.
        metrics: the benchmark's metrics, the primary one first.
        conditions: what was taken out, in the order of the table.
        baseline: per-example values without ablation [example, column].
        values: the same under each condition, by its name.
        controls: each condition against its random sets, columns as in `controls.csv`.
        agreement: rank correlation of every two methods of importance.
        gates: what learned gates came to, columns as in `gates.csv`.
        notes: what the user should know before believing the numbers.
    """

    kind: str
    table: pd.DataFrame
    importance: pd.DataFrame
    run: Mapping[str, Any]
    metrics: tuple[Metric, ...]
    conditions: tuple[Condition, ...]
    baseline: Array
    values: Mapping[str, Array]
    controls: pd.DataFrame = field(default_factory=lambda: pd.DataFrame(columns=CONTROLS))
    agreement: pd.DataFrame = field(default_factory=lambda: pd.DataFrame(columns=AGREEMENT))
    gates: pd.DataFrame = field(default_factory=lambda: pd.DataFrame(columns=GATES))
    notes: tuple[str, ...] = ()

    @property
    def primary(self) -> pd.DataFrame:
        """The rows of the primary metric that are no random sets, in order."""
        rows = self.table[self.table["metric"] == self.metrics[0].name]
        random = {one.name for one in self.conditions if one.control_of}
        return rows[~rows["condition"].isin(random)].reset_index(drop=True)


def tabulate(
    conditions: Sequence[Condition],
    kind: str,
    mode: str,
    metrics: Sequence[Metric],
    compared: Sequence[Mapping[str, tuple[Comparison, int]]],
    n_examples: int,
) -> pd.DataFrame:
    """Lay out comparisons as `ablation.csv`.

    `removed` names heads with their stack: a spreadsheet that reads ``4.10`` as the number 4.1 still has it.
    Random sets have no q-value: they are what others are held against. `no_significant_loss` goes by the
    p-value as it is: correcting it for many tests would make it easier to claim that nothing is lost.

    Args:
        conditions: in order.
        kind: of the sweep.
        mode: what stood in removed heads' places.
        metrics: in the benchmark's order.
        compared: of each metric, the comparison that a condition is in, by its name, and its place there.
        n_examples: how many examples they rest on.

    Returns:
        A row per condition and metric.
    """
    rows = []
    for condition in conditions:
        for metric, found in zip(metrics, compared, strict=True):
            one, place = found[condition.name]
            q_value = np.nan if condition.control_of else one.q_value[place]
            lost = one.delta[place] < 0 if metric.larger_is_better else one.delta[place] > 0
            certain = one.p_value[place] < SIGNIFICANT
            rows.append(
                (
                    condition.name, kind, mode, " ".join(map(str, condition.heads)), len(condition.heads),
                    metric.name, one.value[place], one.baseline, one.delta[place], one.ci_low[place],
                    one.ci_high[place], one.p_value[place], q_value, n_examples,
                    None if np.isnan(one.delta[place]) else not (lost and certain),
                )
            )  # fmt: skip
    table = pd.DataFrame(rows, columns=ABLATION)
    return table.astype({"no_significant_loss": "boolean"})


def against_controls(
    conditions: Sequence[Condition], metrics: Sequence[Metric], table: pd.DataFrame
) -> pd.DataFrame:
    """Hold each condition against its random sets.

    Args:
        conditions: all of the sweep.
        metrics: in the benchmark's order.
        table: `ablation.csv`.

    Returns:
        Mean and 95 % range of the metric over the random sets; and `at_least_as_bad`, the share of them, the
        set itself counted in, without which the model is as bad or worse: (1 + so many) / (1 + draws), a
        one-sided p-value of "this set is like a random one" (Phipson and Smyth 2010).
    """
    random: dict[str, list[str]] = {}
    for one in conditions:
        if one.control_of:
            random.setdefault(one.control_of, []).append(one.name)
    rows = []
    values = table.set_index(["condition", "metric"])["value"]
    for name, names in random.items():
        for metric in metrics:
            value = float(values[name, metric.name])
            drawn = np.array([values[other, metric.name] for other in names], dtype=np.float64)
            drawn = drawn[~np.isnan(drawn)]
            low, high = np.percentile(drawn, [2.5, 97.5]) if len(drawn) else (np.nan, np.nan)
            mean = drawn.mean() if len(drawn) else np.nan
            worse = drawn <= value if metric.larger_is_better else drawn >= value
            share = (1 + worse.sum()) / (1 + len(drawn)) if np.isfinite(value) and len(drawn) else np.nan
            rows.append((name, metric.name, value, mean, low, high, share, len(drawn)))
    return pd.DataFrame(rows, columns=CONTROLS)


def headline(rows: pd.DataFrame, n_heads: int) -> float:
    """Find the largest share of heads that can go without a significant loss.

    Args:
        rows: the rows of the primary metric of a *cumulative* sweep, random sets aside.
        n_heads: how many heads were in question.

    Returns:
        Share of them at the last step before the first significant loss, 0..1: a later step that happens to
        be insignificant again does not count, nor does one where the metric is not defined.
    """
    share = 0.0
    for row in rows.sort_values("n_removed").itertuples():
        if row.no_significant_loss is pd.NA or not row.no_significant_loss:
            break
        share = float(row.n_removed) / n_heads  # type: ignore[arg-type]
    return share


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
        "Either these heads do nothing, or the model does not take the ablation: if taking out whole layers "
        "(--sweep layer) changes nothing either, believe none of these numbers.",
    )


def same_input(benchmark: Benchmark, baseline: Array) -> tuple[str, ...]:
    """Notice examples that are all the same one.

    Args:
        benchmark: what is measured on; one that does not tell its inputs goes by its values.
        baseline: its per-example values without ablation.

    Returns:
        A sentence if every example has the same input: nothing then varies that intervals and tests go by.
    """
    if isinstance(benchmark, Keyed):
        same, what = len(set(benchmark.input_keys)) == 1, "have the same input"
    else:
        same, what = bool((baseline == baseline[:1]).all()), "came out the same without ablation"
    if not same or len(baseline) < 2:
        return ()
    return (
        f"All {len(baseline)} examples of {benchmark.name} {what}. They tell as much as one, but are counted "
        f"as {len(baseline)}: do not believe intervals, p- and q-values.",
    )


def no_importance() -> pd.DataFrame:
    """Make an `importance.csv` without rows.

    Returns:
        The columns alone.
    """
    return pd.DataFrame(columns=list(IMPORTANCE))
