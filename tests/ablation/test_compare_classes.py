"""Comparisons by metrics of right and wrong."""

from __future__ import annotations

from itertools import product

import numpy as np
import pytest
from sklearn.metrics import accuracy_score, f1_score, matthews_corrcoef

from headlens.ablation.result import compare
from headlens.benchmarks.metrics import Accuracy, MacroF1, Matthews, OwnTest, Ratio
from headlens.util.statistics import draws

ACCURACY, F1, MATTHEWS = Accuracy(2), MacroF1(), Matthews()
ALL = pytest.mark.parametrize("metric", [ACCURACY, F1, MATTHEWS], ids=["accuracy", "f1", "matthews"])


def guesses(generator, gold, share) -> np.ndarray:
    """Right for a share of examples, else drawn."""
    predicted = np.where(generator.random(len(gold)) < share, gold, generator.integers(0, 4, len(gold)))
    return np.column_stack([gold, predicted, gold == predicted]).astype(float)


def changed(generator, n, moved=0.2, share=0.0):
    """Without and with an ablation that makes new predictions for some examples, right for a share."""
    gold = np.r_[np.arange(4), generator.integers(0, 4, n - 4)]
    base = guesses(generator, gold, 0.6)
    redrawn = guesses(generator, gold, share)
    return base, np.where(generator.random((n, 1)) < moved, redrawn, base)


def plain(metric, values, labels=(0, 1, 2, 3)) -> float:
    gold, predicted = values[:, 0].astype(int), values[:, 1].astype(int)
    if metric is ACCURACY:
        return accuracy_score(gold, predicted)
    if metric is MATTHEWS:
        return matthews_corrcoef(gold, predicted)
    return f1_score(gold, predicted, labels=labels, average="macro", zero_division=0)


@ALL
def test_intervals_are_those_of_a_plain_bootstrap(metric):
    base, other = changed(np.random.default_rng(1), 40)
    drawn = draws(40, seed=5, resamples=120)
    deltas = []
    for counts in drawn:
        chosen = np.repeat(np.arange(40), counts.astype(int))
        deltas.append(plain(metric, other[chosen]) - plain(metric, base[chosen]))
    made = compare(metric, base, [other], drawn)
    assert [made.ci_low[0], made.ci_high[0]] == pytest.approx(np.percentile(deltas, [2.5, 97.5]), abs=1e-12)
    assert made.delta[0] == pytest.approx(plain(metric, other) - plain(metric, base), abs=1e-12)


@ALL
def test_linearised_metrics_are_those_of_a_jackknife(metric):
    """Leaving out one example of many changes the metric by what that example adds."""
    _, values = changed(np.random.default_rng(8), 400)
    value, influence = metric.linearised(values)
    assert value == pytest.approx(plain(metric, values), abs=1e-12)
    assert influence.sum() == pytest.approx(0, abs=1e-12)
    left_out = np.array([plain(metric, np.delete(values, i, axis=0)) for i in range(400)])
    np.testing.assert_allclose(left_out.mean() - left_out, influence, atol=0.03 * np.abs(influence).max())


@ALL
def test_linearised_metrics_are_derivatives_by_weights(metric):
    """An example that weighs a little more changes the metric by a little of what it adds."""
    _, values = changed(np.random.default_rng(9), 30)
    step = 1e-5
    up, down = (metric.resampled(values, 1 + sign * step * np.eye(30)) for sign in (1, -1))
    np.testing.assert_allclose((up - down) / (2 * step), metric.linearised(values)[1], atol=1e-8)


@pytest.mark.parametrize("share", [0.5, 0.55])
@pytest.mark.parametrize("metric", [F1, MATTHEWS], ids=["f1", "matthews"])
def test_p_values_are_those_of_a_permutation_test(metric, share):
    """Under "no effect" an example's predictions with and without the head can change places."""
    generator = np.random.default_rng(int(100 * share))
    base, other = changed(generator, 200, 0.8, share)
    made = compare(metric, base, [other], draws(200, resamples=1000))
    deltas = []
    for swap in generator.random((1500, 200, 1)) < 0.5:
        one, two = np.where(swap, base, other), np.where(swap, other, base)
        deltas.append(metric.value(one) - metric.value(two))
    p = np.mean(np.abs(deltas) >= abs(made.delta[0]) - 1e-12)
    assert 0.01 < p < 0.9  # a case that tells something
    assert made.p_value[0] == pytest.approx(p, abs=0.04)


def test_accuracies_are_compared_by_all_ways_to_swap():
    """McNemar's exact p is the share of all swaps of discordant examples with a change at least as large."""
    base, other = changed(np.random.default_rng(3), 60, moved=0.25)
    change = other[:, 2] - base[:, 2]
    discordant = change[change != 0]
    assert 5 <= len(discordant) <= 14
    sums = [abs(np.dot(signs, discordant)) for signs in product((1, -1), repeat=len(discordant))]
    made = compare(ACCURACY, base, [other, base], draws(60, resamples=1000))
    assert made.p_value[0] == pytest.approx(np.mean(np.array(sums) >= abs(change.sum())), rel=1e-12)
    assert made.p_value[1] == 1
    assert made.p_value[0] != compare(Ratio("a", "a", True, 2), base, [other], draws(60)).p_value[0]


def test_only_accuracy_brings_its_own_test():
    kinds = [isinstance(metric, OwnTest) for metric in (ACCURACY, F1, MATTHEWS, Ratio("a", "a", True, 2))]
    assert kinds == [True, False, False, False]


@pytest.mark.parametrize("metric", [F1, MATTHEWS], ids=["f1", "matthews"])
def test_intervals_cover_and_p_values_are_level(metric):
    """Two equally good conditions, 250 times: 95 % of intervals hold 0, 5 % of p-values lie under 0.05."""
    generator = np.random.default_rng(2)
    drawn = draws(100, resamples=200)
    covered, rejected = [], []
    for _ in range(250):
        gold = np.r_[np.arange(4), generator.integers(0, 4, 96)]
        base, other = (guesses(generator, gold, 0.6) for _ in range(2))
        made = compare(metric, base, [other], drawn)
        covered.append(made.ci_low[0] <= 0 <= made.ci_high[0])
        rejected.append(made.p_value[0] < 0.05)
    assert 0.91 <= np.mean(covered) <= 0.985
    assert 0.015 <= np.mean(rejected) <= 0.09


@pytest.mark.parametrize(
    "metric", [Accuracy(0), Ratio("loss", "loss", False, 0, 1)], ids=["accuracy", "loss"]
)
def test_one_real_effect_among_a_thousand_heads_is_found(metric):
    """p-values are no shares of resamples: with 60 examples they pass a correction for 1,000 tests."""
    generator = np.random.default_rng(5)
    base = np.column_stack([generator.random(60) < 0.9, np.ones(60)]).astype(float)
    others = [base] * 999
    strong = base.copy()
    if metric.name == "accuracy":
        strong[:, 0] = 0
    else:
        base[:, 0] = generator.normal(3, 1, 60)
        strong[:, 0] = base[:, 0] + generator.normal(0.5, 0.3, 60)
    made = compare(metric, base, [strong, *others], draws(60, resamples=200))
    assert made.q_value[0] < 1e-6
    assert (made.q_value[1:] == 1).all()
    screened = compare(metric, base, [strong], draws(60, resamples=200), tests=1000)
    assert screened.q_value[0] == pytest.approx(made.q_value[0])
