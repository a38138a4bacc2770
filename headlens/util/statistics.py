"""Intervals, p-values and false-discovery control for effects that are ratios of sums over units.

A unit is what is resampled: a document, a sentence, a benchmark example. Every function takes sums per
unit, so that the cost does not grow with the number of words or tokens.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray
from scipy import stats

Array = NDArray[np.float64]

RESAMPLES = 2000
_CELLS = 4_000_000  # resamples x effects held at once


@dataclass(frozen=True, slots=True)
class _Effects:
    """Effects with their uncertainty, one per column of the sums they were made from.

    Args:
        effect: sum of gains over sum of counts; NaN where the counts are 0.
        ci_low: lower end of the 95 % percentile interval of a bootstrap over units; NaN where only one unit
            says anything.
        ci_high: its upper end.
        p_value: one-sided p-value of the studentised effect against 0, t distribution.
        n: sum of counts.
    """

    effect: Array
    ci_low: Array
    ci_high: Array
    p_value: Array
    n: Array


def ratio_effects(gains: Array, counts: Array, seed: int = 0, resamples: int = RESAMPLES) -> _Effects:
    """Estimate effects that are sums of gains over sums of counts.

    The same resamples of units serve all effects. The p-value is that of the effect over its standard
    error (linearised ratio, variance over units), not a share of resamples, so that it can be small enough
    to pass a correction for thousands of tests.

    Args:
        gains: score minus baseline, summed in each unit, [unit, effect].
        counts: decisions in each unit, [unit, effect]; 0 where the unit has none.
        seed: of the resamples.
        resamples: how many.

    Returns:
        One effect per column.
    """
    total = counts.sum(axis=0)
    with np.errstate(invalid="ignore", divide="ignore"):
        effect = gains.sum(axis=0) / total
    low, high = _interval(gains, counts, seed, resamples)
    return _Effects(effect, low, high, _p_value(gains, counts, effect), total)


def _interval(gains: Array, counts: Array, seed: int, resamples: int) -> tuple[Array, Array]:
    n_units, n_effects = gains.shape
    low, high = np.full(n_effects, np.nan), np.full(n_effects, np.nan)
    if n_units == 0:
        return low, high
    drawn = draws(n_units, seed, resamples)
    step = max(1, _CELLS // resamples)
    for start in range(0, n_effects, step):
        part = slice(start, start + step)
        with np.errstate(invalid="ignore", divide="ignore"):
            values = (drawn @ gains[:, part]) / (drawn @ counts[:, part])  # [resample, effect]
        known = (counts[:, part] > 0).sum(axis=0) >= 2  # one unit alone scatters around nothing
        if known.any():
            low[part][known], high[part][known] = _ends(values[:, known])
    return low, high


def _ends(values: Array) -> tuple[Array, Array]:
    """The 95 % interval of every column [resample, effect], NaN aside; the few with NaN take long."""
    ends = np.percentile(values, [2.5, 97.5], axis=0)
    some = np.isnan(ends[0])
    if some.any():
        ends[:, some] = np.nanpercentile(values[:, some], [2.5, 97.5], axis=0)
    return ends[0], ends[1]


@lru_cache(maxsize=1)  # one after another, measures mostly have the same units
def draws(n_units: int, seed: int = 0, resamples: int = RESAMPLES) -> Array:
    """Draw bootstrap resamples of units with replacement.

    Args:
        n_units: number of units.
        seed: of the generator.
        resamples: how many.

    Returns:
        How often each unit is in each resample, [resample, unit]; every row sums to n_units.
    """
    generator = np.random.default_rng(seed)
    shares = np.full(n_units, 1 / n_units)
    drawn = generator.multinomial(n_units, shares, size=resamples).astype(np.float64)
    drawn.setflags(write=False)
    return drawn


def _p_value(gains: Array, counts: Array, effect: Array) -> Array:
    used = (counts > 0).sum(axis=0)  # units that say anything about an effect
    residual = gains - np.where(np.isnan(effect), 0, effect) * counts
    with np.errstate(invalid="ignore", divide="ignore"):
        variance = (residual**2).sum(axis=0) * used / (used - 1)
        error = np.sqrt(variance) / counts.sum(axis=0)
        studentised = effect / error
        p = stats.t.sf(studentised, used - 1)
    # all units agree to the last digit: certain if the effect is positive
    exact = error <= 1e-12 * np.abs(effect)
    p = np.where(exact, np.where(effect > 0, 0.0, 1.0), p)
    return np.where(used >= 2, p, np.nan)


def benjamini_hochberg(p_values: Array) -> Array:
    """Control the false-discovery rate (Benjamini and Hochberg 1995).

    Args:
        p_values: one per test, NaN for what was not tested.

    Returns:
        q-values in 0..1, NaN where p is.
    """
    q_values = np.full(len(p_values), np.nan)
    tested = ~np.isnan(p_values)
    if tested.any():
        q_values[tested] = stats.false_discovery_control(p_values[tested], method="bh")
    return q_values
