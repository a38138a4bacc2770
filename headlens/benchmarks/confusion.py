"""Metrics of right and wrong: accuracy, macro F1 and Matthews correlation, from classes per example."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy import sparse, stats

from headlens.benchmarks.metrics import Array

_CELLS = 1_000_000  # resamples x examples held at once


@dataclass(frozen=True, slots=True)
class Accuracy:
    """Share of examples that come out right.

    Args:
        right: column that is 1 where an example is right and 0 where it is wrong.
        name: what it is called in tables.
        label: what it is called in figures.
    """

    right: int
    name: str = "accuracy"
    label: str = "accuracy"
    larger_is_better: bool = True

    def value(self, values: Array) -> float:
        """See `Metric.value`."""
        return float(values[:, self.right].mean())

    def resampled(self, values: Array, drawn: Array) -> Array:
        """See `Metric.resampled`."""
        share: Array = (drawn @ values[:, self.right]) / drawn.sum(axis=1)
        return share

    def linearised(self, values: Array) -> tuple[float, Array]:
        """See `Metric.linearised`."""
        right = values[:, self.right]
        return float(right.mean()), (right - right.mean()) / len(right)

    def paired_p(self, values: Array, baseline: Array) -> float:
        """Do the exact test of McNemar (1947) of "both conditions are right equally often".

        Among the examples that only one condition has right, each condition should have half: a two-sided
        binomial test. Examples that both have right, or both wrong, say nothing.

        Args:
            values: per-example values of one condition [example, column].
            baseline: the same examples under the other.

        Returns:
            Two-sided p-value; 1 where no example changes.
        """
        change = values[:, self.right] - baseline[:, self.right]
        won, lost = int((change > 0).sum()), int((change < 0).sum())
        return float(stats.binomtest(won, won + lost, 0.5).pvalue) if won + lost else 1.0


@dataclass(frozen=True, slots=True)
class MacroF1:
    """Mean over classes of F1, the harmonic mean of precision and recall.

    The classes are those that occur as gold in the whole benchmark, whatever is predicted: scikit-learn's
    ``f1_score(gold, predicted, labels=numpy.unique(gold), average="macro", zero_division=0)``. A resample
    is averaged over the same classes, so that its number means the same; one that a resample lacks, and
    that is not predicted in it, counts as 0 there with and without an ablation, which narrows intervals a
    little where some class has only a few examples.

    Args:
        gold: column of the true class, a whole number from 0.
        predicted: column of the predicted class.
        name: what it is called in tables.
        label: what it is called in figures.
    """

    gold: int = 0
    predicted: int = 1
    name: str = "macro-f1"
    label: str = "macro F1"
    larger_is_better: bool = True

    def value(self, values: Array) -> float:
        """See `Metric.value`."""
        return float(self.resampled(values, np.ones((1, len(values))))[0])

    def resampled(self, values: Array, drawn: Array) -> Array:
        """See `Metric.resampled`."""
        gold, predicted = _classes(values, self.gold, self.predicted)
        right, true, said = _counts(gold, predicted, drawn)
        mean: Array = _f1(right, true, said)[:, np.unique(gold)].mean(axis=1)
        return mean

    def linearised(self, values: Array) -> tuple[float, Array]:
        """See `Metric.linearised`: the derivative by the weight of each example, which is 1."""
        gold, predicted = _classes(values, self.gold, self.predicted)
        right, true, said = (count[0] for count in _counts(gold, predicted, np.ones((1, len(gold)))))
        f1 = _f1(right, true, said)
        used = np.unique(gold)
        each = np.zeros(len(f1))
        each[used] = 1 / (true + said)[used] / len(used)
        lost = f1 * each  # by one more gold or predicted example of a class
        influence = 2 * each[gold] * (gold == predicted) - lost[gold] - lost[predicted]
        return float(f1[used].mean()), influence


@dataclass(frozen=True, slots=True)
class Matthews:
    """Matthews correlation of several classes (R_K of Gorodkin 2004); of two classes, the phi coefficient.

    0 where gold or predictions are all of one class, as in scikit-learn's ``matthews_corrcoef``, which it
    equals.

    Args:
        gold: column of the true class, a whole number from 0.
        predicted: column of the predicted class.
        name: what it is called in tables.
        label: what it is called in figures.
    """

    gold: int = 0
    predicted: int = 1
    name: str = "matthews"
    label: str = "Matthews correlation"
    larger_is_better: bool = True

    def value(self, values: Array) -> float:
        """See `Metric.value`."""
        return float(self.resampled(values, np.ones((1, len(values))))[0])

    def resampled(self, values: Array, drawn: Array) -> Array:
        """See `Metric.resampled`."""
        right, true, said = _counts(*_classes(values, self.gold, self.predicted), drawn)
        total = drawn.sum(axis=1)
        both = right.sum(axis=1) * total - np.einsum("rc,rc->r", true, said)
        spread = (total**2 - (true**2).sum(axis=1)) * (total**2 - (said**2).sum(axis=1))
        r: Array = np.divide(both, np.sqrt(spread), out=np.zeros(len(drawn)), where=spread > 0)
        return r

    def linearised(self, values: Array) -> tuple[float, Array]:
        """See `Metric.linearised`: the derivative by the weight of each example, which is 1."""
        gold, predicted = _classes(values, self.gold, self.predicted)
        n = len(gold)
        right, true, said = (count[0] for count in _counts(gold, predicted, np.ones((1, n))))
        both = right.sum() * n - true @ said
        spread_true, spread_said = n**2 - true @ true, n**2 - said @ said
        spread = np.sqrt(spread_true * spread_said)
        if spread == 0:  # one class only: 0 whatever the weights
            return 0.0, np.zeros(n)
        r = both / spread
        slope = n * (gold == predicted) + right.sum() - said[gold] - true[predicted]
        wider = (n - true[gold]) / spread_true + (n - said[predicted]) / spread_said
        return float(r), slope / spread - r * wider


def _classes(values: Array, gold: int, predicted: int) -> tuple[NDArray[np.intp], NDArray[np.intp]]:
    return values[:, gold].astype(np.intp), values[:, predicted].astype(np.intp)


def _counts(gold: NDArray[np.intp], predicted: NDArray[np.intp], drawn: Array) -> tuple[Array, Array, Array]:
    """Right, gold and predicted examples of each class in each resample, each [resample, class]."""
    n = len(gold)
    n_classes = 1 + max(gold.max(), predicted.max())
    every = np.arange(n)

    def table(weight: Array, classes: NDArray[np.intp]) -> sparse.csr_array:
        return sparse.csr_array((weight, (every, classes)), shape=(n, n_classes))

    same = (gold == predicted).astype(np.float64)
    wide = sparse.hstack([table(same, gold), table(np.ones(n), gold), table(np.ones(n), predicted)])
    turned = wide.T.tocsr()  # [3 x class, example]
    step = max(1, _CELLS // n)
    parts = [(turned @ drawn[i : i + step].T).T for i in range(0, len(drawn), step)]
    right, true, said = np.split(np.concatenate(parts), 3, axis=1)
    return right, true, said


def _f1(right: Array, true: Array, said: Array) -> Array:
    """F1 of each class, 0 where it neither occurs nor is predicted."""
    both = true + said
    return np.divide(2 * right, both, out=np.zeros_like(both), where=both > 0)
