from __future__ import annotations

import math
import tracemalloc

import numpy as np
import pytest
from sklearn.metrics import f1_score, matthews_corrcoef

from headlens.benchmarks.metrics import Accuracy, MacroF1, Matthews, Ratio
from headlens.util.statistics import draws

ACCURACY, F1, MATTHEWS = Accuracy(2), MacroF1(), Matthews()


def guesses(generator, n: int, n_classes: int, share: float) -> np.ndarray:
    """Gold, predicted (right for about a share of them) and right; classes are unequally common."""
    gold = (n_classes * generator.random(n) ** 2).astype(int)
    predicted = np.where(generator.random(n) < share, gold, generator.integers(0, n_classes, n))
    return np.column_stack([gold, predicted, gold == predicted]).astype(float)


def by_sklearn(metric, values, labels) -> float:
    gold, predicted = values[:, 0].astype(int), values[:, 1].astype(int)
    if metric is MATTHEWS:
        return matthews_corrcoef(gold, predicted)
    return f1_score(gold, predicted, labels=labels, average="macro", zero_division=0)


def test_values_by_hand():
    """Class 0: 2 of 3 found, 1 said wrongly; class 1: 1 of 1 found, 1 said wrongly; class 2: never right."""
    values = np.array([[0, 0, 1], [0, 0, 1], [0, 1, 0], [1, 1, 1], [2, 0, 0]], dtype=float)
    assert ACCURACY.value(values) == 3 / 5
    assert F1.value(values) == pytest.approx((4 / 6 + 2 / 3 + 0) / 3, abs=1e-15)
    # 3 right of 5; gold 3, 1, 1; predicted 3, 2, 0
    assert MATTHEWS.value(values) == pytest.approx((15 - 11) / math.sqrt((25 - 11) * (25 - 13)), abs=1e-15)
    assert Ratio("margin", "margin", True, 2).value(values) == 3 / 5
    for metric in (ACCURACY, Ratio("margin", "margin", True, 2)):
        value, influence = metric.linearised(values)
        assert value == 3 / 5
        assert influence == pytest.approx([0.08, 0.08, -0.12, 0.08, -0.12])


@pytest.mark.parametrize("n_classes", [2, 3, 12])
@pytest.mark.parametrize("metric", [F1, MATTHEWS], ids=["f1", "matthews"])
def test_metrics_are_those_of_sklearn(metric, n_classes):
    generator = np.random.default_rng(n_classes)
    for share in (0.0, 0.5, 1.0):
        values = guesses(generator, 60, n_classes, share)
        values = values[values[:, 0] != 1] if n_classes == 12 else values  # predicted, but never gold
        labels = np.unique(values[:, 0])
        assert metric.value(values) == pytest.approx(by_sklearn(metric, values, labels), abs=1e-12)
        assert metric.linearised(values)[0] == pytest.approx(metric.value(values), abs=1e-12)
        drawn = draws(len(values), seed=1, resamples=40)
        expected = [
            by_sklearn(metric, np.repeat(values, counts.astype(int), axis=0), labels) for counts in drawn
        ]
        np.testing.assert_allclose(metric.resampled(values, drawn), expected, atol=1e-12)


def test_one_class_only_has_no_matthews_correlation():
    values = guesses(np.random.default_rng(0), 20, 3, 0.8)
    for column in (0, 1):
        flat = values.copy()
        flat[:, column] = 2
        assert MATTHEWS.value(flat) == by_sklearn(MATTHEWS, flat, None) == 0
        assert MATTHEWS.linearised(flat)[0] == 0
        assert not MATTHEWS.linearised(flat)[1].any()
        assert not MATTHEWS.resampled(flat, draws(20, resamples=10)).any()


def test_many_classes_and_resamples_fit_in_memory():
    values = guesses(np.random.default_rng(1), 3000, 77, 0.6)
    drawn = draws(3000)
    tracemalloc.start()
    for metric in (F1, MATTHEWS):
        metric.resampled(values, drawn)
    assert tracemalloc.get_traced_memory()[1] < 60e6  # a table of 77 x 77 for each resample would be 95 MB
    tracemalloc.stop()


def exact_p(won: int, lost: int) -> float:
    """Two-sided binomial test by adding up all outcomes that are no more likely than this one."""
    n = won + lost
    ways = [math.comb(n, k) for k in range(n + 1)]
    return sum(way for way in ways if way <= ways[won]) / 2**n


def test_p_values_of_accuracies_are_exact():
    for won, lost in ((0, 0), (1, 0), (3, 3), (0, 6), (9, 2), (2, 14), (40, 71)):
        right = np.zeros((200, 3))
        other = right.copy()
        right[:won, 2] = 1
        other[won : won + lost, 2] = 1
        right[150:, 2] = other[150:, 2] = 1  # what both have right says nothing
        assert ACCURACY.paired_p(right, other) == pytest.approx(exact_p(won, lost), rel=1e-12)
        assert ACCURACY.paired_p(other, right) == pytest.approx(exact_p(won, lost), rel=1e-12)
