"""Conditions against the baseline, paired over examples: deltas, intervals, p- and q-values."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from scipy import stats

from headlens.benchmarks.metrics import Array, Metric, OwnTest
from headlens.util.statistics import benjamini_hochberg


@dataclass(frozen=True, slots=True)
class Comparison:
    """One metric under every condition.

    Args:
        baseline: the metric without ablation.
        value: the metric under each condition, [condition]; NaN where it is not defined.
        delta: value minus baseline, in the metric's own direction.
        ci_low: lower end of the 95 % interval of delta.
        ci_high: its upper end.
        p_value: two-sided, of "delta is 0".
        q_value: Benjamini and Hochberg's (1995) over all conditions.
    """

    baseline: float
    value: Array
    delta: Array
    ci_low: Array
    ci_high: Array
    p_value: Array
    q_value: Array


def compare(
    metric: Metric, baseline: Array, conditions: Sequence[Array], drawn: Array, tests: int = 0
) -> Comparison:
    """Compare conditions with the baseline over the same examples.

    The interval is the percentile interval of a paired bootstrap over examples: the same resamples for the
    baseline and every condition. The p-value is that of a studentised paired effect against a t
    distribution with n - 1 degrees of freedom, not a share of resamples, so that it can be small enough to
    pass a correction for many heads; its standard error is that of the paired difference of the linearised
    metrics (the infinitesimal jackknife: Efron 1982). A metric that has its own test (`OwnTest`, such as
    the exact one of accuracies) is tested by it. A condition whose per-example values equal the
    baseline's has delta 0, interval 0 to 0, and p 1.

    It misleads where examples are not independent, such as consecutive windows of one story: intervals are
    then too narrow.

    Args:
        metric: the metric.
        baseline: per-example values without ablation [example, column].
        conditions: the same under each condition.
        drawn: how often each example is in each resample, [resample, example]; see
            `headlens.util.statistics.draws`.
        tests: how many conditions were in question, if more than were measured: q-values are corrected for
            all of them.

    Returns:
        One entry per condition.
    """
    start = metric.value(baseline)
    resampled = metric.resampled(baseline, drawn)
    rows = np.array([_row(metric, baseline, values, drawn, resampled) for values in conditions])
    value, delta, low, high, p_value = rows.reshape(-1, 5).T
    unmeasured = np.ones(max(0, tests - len(p_value)))
    q_value = benjamini_hochberg(np.concatenate([p_value, unmeasured]))[: len(p_value)]
    return Comparison(start, value, delta, low, high, p_value, q_value)


def _row(
    metric: Metric, baseline: Array, values: Array, drawn: Array, resampled: Array
) -> tuple[float, float, float, float, float]:
    """Value, delta, interval and p-value of one condition."""
    start = metric.value(baseline)
    if np.array_equal(values, baseline):
        zero = 0.0 if np.isfinite(start) else float("nan")
        return start, zero, zero, zero, 1.0 + zero
    value = metric.value(values)
    if not np.isfinite(value - start):
        return value, float("nan"), float("nan"), float("nan"), float("nan")
    deltas = metric.resampled(values, drawn) - resampled
    low, high = np.nanpercentile(deltas, [2.5, 97.5])
    return value, value - start, float(low), float(high), paired_p(metric, values, baseline)


def paired_p(metric: Metric, values: Array, baseline: Array) -> float:
    """Test whether a metric differs between two conditions, by its own test if it has one.

    Args:
        metric: the metric.
        values: per-example values of one condition [example, column].
        baseline: the same examples under the other.

    Returns:
        Two-sided p-value.
    """
    if isinstance(metric, OwnTest):
        return metric.paired_p(values, baseline)
    effect, influence = metric.linearised(values)
    other, other_influence = metric.linearised(baseline)
    n = len(values)
    error = np.sqrt(np.sum((influence - other_influence) ** 2) * n / (n - 1))
    return two_sided(effect - other, float(error), n - 1)


def two_sided(effect: float, error: float, freedom: int) -> float:
    """Compute the two-sided p-value of an effect over its standard error.

    Args:
        effect: the effect.
        error: its standard error, 0 or more.
        freedom: degrees of freedom of the t distribution, at least 1.

    Returns:
        The p-value; 1 for an effect of 0, and 0 for another effect without any error.
    """
    if effect == 0:
        return 1.0
    if error <= 1e-12 * abs(effect):
        return 0.0
    return float(2 * stats.t.sf(abs(effect / error), freedom))
