"""How a benchmark's numbers arise from per-example values, for all examples and for resamples of them."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol, runtime_checkable

import numpy as np
from numpy.typing import NDArray
from scipy import stats

Array = NDArray[np.float64]

_CELLS = 1_000_000  # resamples x examples held at once


class Metric(Protocol):
    """One number that a benchmark reports."""

    @property
    def name(self) -> str:
        """What it is called in tables: "spearman", "loss", ..."""

    @property
    def label(self) -> str:
        """What it is called in figures."""

    @property
    def larger_is_better(self) -> bool:
        """Whether a larger value is a better one."""

    def value(self, values: Array) -> float:
        """Compute it over all examples.

        Args:
            values: per-example values [example, column].

        Returns:
            The metric, NaN where it is not defined.
        """

    def resampled(self, values: Array, drawn: Array) -> Array:
        """Compute it over resamples of the examples.

        Args:
            values: per-example values [example, column].
            drawn: how often each example is in each resample, [resample, example].

        Returns:
            The metric of each resample, [resample].
        """

    def linearised(self, values: Array) -> tuple[float, Array]:
        """Compute what a test of "two conditions are equal" rests on.

        Args:
            values: per-example values [example, column].

        Returns:
            The metric, or what it is a growing function of; and what each example adds to its error, to
            first order, [example] (the infinitesimal jackknife: their squares add up to its variance).
        """


@runtime_checkable
class OwnTest(Metric, Protocol):
    """A metric for which there is a better test of "two conditions are equal" than the studentised one."""

    def paired_p(self, values: Array, baseline: Array) -> float:
        """Test whether the metric differs between two conditions.

        Args:
            values: per-example values of one condition [example, column].
            baseline: the same examples under the other.

        Returns:
            Two-sided p-value.
        """


@dataclass(frozen=True, slots=True)
class Ratio:
    """A ratio of two sums over examples, such as loss per token, or a growing function of it.

    Args:
        name: what it is called in tables.
        label: what it is called in figures.
        larger_is_better: whether a larger value is a better one.
        numerator: column that is summed above the line.
        denominator: column that is summed below it; None for the number of examples.
        scale: a growing function that the ratio is shown through, such as exp for perplexity. Tests are
            done on the ratio itself.
    """

    name: str
    label: str
    larger_is_better: bool
    numerator: int
    denominator: int | None = None
    scale: Callable[[Array], Array] | None = None

    def value(self, values: Array) -> float:
        """See `Metric.value`."""
        return float(self.resampled(values, np.ones((1, len(values))))[0])

    def resampled(self, values: Array, drawn: Array) -> Array:
        """See `Metric.resampled`."""
        with np.errstate(invalid="ignore", divide="ignore"):
            ratio: Array = (drawn @ values[:, self.numerator]) / (drawn @ self._below(values))
        return ratio if self.scale is None else self.scale(ratio)

    def linearised(self, values: Array) -> tuple[float, Array]:
        """See `Metric.linearised`; of the ratio itself."""
        above, below = values[:, self.numerator], self._below(values)
        ratio = float(above.sum() / below.sum())
        return ratio, (above - ratio * below) / below.sum()

    def _below(self, values: Array) -> Array:
        return np.ones(len(values)) if self.denominator is None else values[:, self.denominator]


@dataclass(frozen=True, slots=True)
class Correlation:
    """Correlation of two columns over examples.

    Args:
        name: what it is called in tables.
        label: what it is called in figures.
        ranked: Spearman's correlation (of ranks, ties share their mean rank); else Pearson's.
    """

    name: str
    label: str
    ranked: bool
    larger_is_better: bool = True

    def value(self, values: Array) -> float:
        """See `Metric.value`; NaN where a column is constant, up to rounding."""
        left, right = values[:, 0], values[:, 1]
        if _constant(left) or _constant(right):
            return float("nan")
        if self.ranked:
            return float(stats.spearmanr(left, right).statistic)
        return float(stats.pearsonr(left, right).statistic)

    def resampled(self, values: Array, drawn: Array) -> Array:
        """See `Metric.resampled`; NaN in resamples where a column is constant."""
        step = max(1, _CELLS // len(values))
        parts = [self._resampled(values, drawn[i : i + step]) for i in range(0, len(drawn), step)]
        return np.concatenate(parts)

    def _resampled(self, values: Array, drawn: Array) -> Array:
        if self.ranked:
            return _weighted_pearson(_ranks(values[:, 0], drawn), _ranks(values[:, 1], drawn), drawn)
        centred = values - values.mean(axis=0)
        return _weighted_pearson(centred[None, :, 0], centred[None, :, 1], drawn)

    def linearised(self, values: Array) -> tuple[float, Array]:
        """See `Metric.linearised`; an example counts by itself and by how it moves the others' ranks."""
        left, right = values[:, 0], values[:, 1]
        n = len(values)
        u, v = (stats.rankdata(left) / n, stats.rankdata(right) / n) if self.ranked else (left, right)
        zu, zv = (u - u.mean()) / u.std(), (v - v.mean()) / v.std()
        r = float(np.mean(zu * zv))
        influence = zu * zv - r / 2 * (zu**2 + zv**2)
        if self.ranked:
            influence = (
                influence + _moved(left, (zv - r * zu) / u.std()) + _moved(right, (zu - r * zv) / v.std())
            )
        return r, influence / n


def _constant(column: Array) -> bool:
    """Whether a column has nothing to correlate: its values differ by no more than float32 rounds."""
    return bool(np.ptp(column) <= 1e-6 * np.abs(column).max())


def _moved(column: Array, slope: Array) -> Array:
    """What each example adds by raising the ranks of those above it, by half those of its equals."""
    _, group = np.unique(column, return_inverse=True)
    per_group = np.bincount(group, slope) / len(column)
    above: Array = per_group[::-1].cumsum()[::-1] - per_group / 2
    return above[group]


def _ranks(column: Array, drawn: Array) -> Array:
    """Rank each example within each resample, copies and ties at their mean rank, [resample, example]."""
    _, group = np.unique(column, return_inverse=True)  # examples with one value are one group
    order = np.argsort(group, kind="stable")
    starts = np.flatnonzero(np.diff(group[order], prepend=-1))
    size = np.add.reduceat(drawn[:, order], starts, axis=1)  # [resample, group]
    rank = np.cumsum(size, axis=1) - (size - 1) / 2
    ranks: Array = rank[:, group]
    return ranks


def _weighted_pearson(left: Array, right: Array, drawn: Array) -> Array:
    """Pearson's correlation in each resample; left and right are [resample or 1, example]."""
    total = drawn.sum(axis=1, keepdims=True)
    left = left - (drawn * left).sum(axis=1, keepdims=True) / total
    right = right - (drawn * right).sum(axis=1, keepdims=True) / total
    weighted = drawn * left  # [resample, example]
    product = np.einsum("re,re->r", weighted, right)
    squares = np.einsum("re,re->r", weighted, left) * np.einsum("re,re,re->r", drawn, right, right)
    with np.errstate(invalid="ignore", divide="ignore"):
        correlation: Array = product / np.sqrt(squares)
    return correlation
