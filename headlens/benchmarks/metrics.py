"""Metrics of benchmarks, from per-example values."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Protocol, runtime_checkable

import numpy as np
from numpy.typing import NDArray
from scipy import sparse, stats

from headlens.errors import InputError

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


# ---- Metrics of right and wrong: accuracy, macro F1 and Matthews correlation, from classes per example


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


# ---- BLEU and chrF of a corpus as functions of sums over examples, equal to sacrebleu's numbers


BLEU_COLUMNS = slice(0, 10)  # tokens of translation and reference; matched n-grams, n-grams, n = 1 to 4
CHRF_COLUMNS = slice(10, 28)  # for n = 1 to 6: character n-grams of translation and reference, matched ones


@dataclass(frozen=True, slots=True)
class CorpusScore:
    """A score of a whole corpus that depends on sums over its examples alone.

    It is no mean of scores of examples: short and long examples count as many n-grams as they have.

    Args:
        name: what it is called in tables.
        label: what it is called in figures.
        columns: the columns that are summed.
        formula: makes scores of sums [corpus, column].
        larger_is_better: whether a larger value is a better one.
    """

    name: str
    label: str
    columns: slice
    formula: Callable[[Array], Array]
    larger_is_better: bool = True

    def value(self, values: Array) -> float:
        """See `Metric.value`."""
        return float(self.formula(values[:, self.columns].sum(axis=0, keepdims=True))[0])

    def resampled(self, values: Array, drawn: Array) -> Array:
        """See `Metric.resampled`; the score of each resample's sums, not a mean of scores."""
        return self.formula(drawn @ values[:, self.columns])

    def linearised(self, values: Array) -> tuple[float, Array]:
        """See `Metric.linearised`; what the score loses when an example is left out (Efron 1982)."""
        mine = values[:, self.columns]
        n = len(mine)
        left_out = self.formula(mine.sum(axis=0) - mine)  # [example]
        influence = (left_out.mean() - left_out) * (n - 1) / n
        return self.value(values), influence - influence.mean()


def _bleu(sums: Array) -> Array:
    """Compute BLEU (Papineni et al. 2002) as sacrebleu does by default (Post 2018).

    Words up to 4-grams, tokenizer 13a, one reference, precisions of 0 smoothed exponentially. It misleads
    for languages without blanks between words.

    Args:
        sums: see `BLEU_COLUMNS`, [corpus, 10].

    Returns:
        0 to 100, [corpus].
    """
    written, expected = sums[:, 0], sums[:, 1]
    right, total = sums[:, 2:6], sums[:, 6:10]
    halvings = np.cumsum(right == 0, axis=1)
    precision = np.where(right > 0, right, 0.5**halvings) / np.maximum(total, 1)
    with np.errstate(over="ignore"):
        penalty = np.exp(np.minimum(0, 1 - expected / np.maximum(written, 1)))
    score: Array = 100 * penalty * np.exp(np.log(precision).mean(axis=1))
    return np.where((right > 0).any(axis=1) & (total > 0).all(axis=1), score, 0.0)


def _chrf(sums: Array) -> Array:
    """Compute chrF2 (Popovic 2015) as sacrebleu does by default: characters up to 6-grams, no blanks.

    Args:
        sums: see `CHRF_COLUMNS`, [corpus, 18].

    Returns:
        0 to 100, [corpus].
    """
    written, expected, right = (sums[:, place::3] for place in range(3))  # [corpus, order]
    used = (written > 0) & (expected > 0)
    orders = np.maximum(1, used.sum(axis=1))
    precision = np.where(used, right / np.maximum(written, 1), 0).sum(axis=1) / orders
    recall = np.where(used, right / np.maximum(expected, 1), 0).sum(axis=1) / orders
    some = precision + recall > 0
    score: Array = 500 * precision * recall / np.where(some, 4 * precision + recall, 1)
    return score


BLEU = CorpusScore("bleu", "BLEU", BLEU_COLUMNS, _bleu)
CHRF = CorpusScore("chrf", "chrF", CHRF_COLUMNS, _chrf)


class Ngrams:
    """Counts, with sacrebleu, what BLEU and chrF are made of.

    Args:
        references: one for each example.

    Raises:
        InputError: sacrebleu is not installed.
    """

    def __init__(self, references: Sequence[str]) -> None:
        sacrebleu = _sacrebleu()
        listed = [list(references)]
        self._kinds = (sacrebleu.BLEU(force=True, references=listed), sacrebleu.CHRF(references=listed))

    @property
    def signatures(self) -> dict[str, str]:
        """What sacrebleu calls these scores, version included."""
        names = (BLEU.name, CHRF.name)
        return {name: str(kind.get_signature()) for name, kind in zip(names, self._kinds, strict=True)}

    def count(self, translations: Sequence[str]) -> Array:
        """Count n-grams of translations and those that their references have too.

        Args:
            translations: one for each reference.

        Returns:
            float64 [example, 28]; see `BLEU_COLUMNS` and `CHRF_COLUMNS`.
        """
        counts = [kind._extract_corpus_statistics(list(translations), None) for kind in self._kinds]
        return np.hstack([np.array(rows, dtype=np.float64) for rows in counts])


def _sacrebleu() -> Any:
    try:
        from sacrebleu import metrics
    except ImportError:
        raise InputError(
            "The benchmark translation needs the package sacrebleu, which is not installed.",
            "Type: pip install 'headlens[translation]'",
        ) from None
    return metrics
