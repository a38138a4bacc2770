from __future__ import annotations

import numpy as np
import pytest
from scipy import stats

from headlens.ablation.result import compare, two_sided
from headlens.benchmarks.metrics import Correlation, Ratio
from headlens.util.statistics import draws

LOSS = Ratio("loss", "loss", False, 0, 1)
PERPLEXITY = Ratio("perplexity", "perplexity", False, 0, 1, scale=np.exp)
SPEARMAN = Correlation("spearman", "spearman", ranked=True)
PEARSON = Correlation("pearson", "pearson", ranked=False)


def losses(generator, n, shift=0.0, spread=0.3):
    """Summed loss and token counts without and with an ablation that adds `shift` per token."""
    counts = generator.integers(5, 40, n).astype(float)
    base = counts * generator.normal(3, 1, n)
    return np.column_stack([base, counts]), np.column_stack(
        [base + counts * generator.normal(shift, spread, n), counts]
    )


def pairs(generator, n, noise=0.0):
    """Cosine and gold without and with an ablation that adds noise."""
    gold = generator.integers(0, 11, n) / 2
    cosine = gold + generator.normal(0, 2, n)
    return np.column_stack([cosine, gold]), np.column_stack([cosine + generator.normal(0, noise, n), gold])


def test_values_by_hand():
    base = np.array([[2.0, 1.0], [6.0, 3.0], [4.0, 4.0]])
    worse = np.array([[4.0, 1.0], [6.0, 3.0], [8.0, 4.0]])
    made = compare(LOSS, base, [worse, base], draws(3))
    assert made.baseline == 12 / 8
    assert made.value.tolist() == [18 / 8, 12 / 8]
    assert made.delta.tolist() == [6 / 8, 0]
    # residuals of the paired difference [2, 0, 4] from 6/8 of the counts [1, 3, 4]: 1.25, -2.25, 1
    error = np.sqrt((1.25**2 + 2.25**2 + 1) * 3 / 2) / 8
    assert made.p_value == pytest.approx([2 * stats.t.sf(0.75 / error, 2), 1])
    assert (made.ci_low[1], made.ci_high[1], made.q_value[1]) == (0, 0, 1)
    shown = compare(PERPLEXITY, base, [worse], draws(3))
    assert shown.delta[0] == pytest.approx(np.exp(18 / 8) - np.exp(12 / 8))
    assert shown.p_value[0] == pytest.approx(made.p_value[0])


def test_intervals_are_those_of_a_plain_bootstrap():
    generator = np.random.default_rng(1)
    drawn = draws(40, seed=5, resamples=300)
    for metric, (base, other) in (
        (LOSS, losses(generator, 40, 0.1)),
        (SPEARMAN, pairs(generator, 40, 1.0)),
        (PEARSON, pairs(generator, 40, 1.0)),
    ):
        deltas = []
        for counts in drawn:
            chosen = np.repeat(np.arange(40), counts.astype(int))
            deltas.append(plain(metric, other[chosen]) - plain(metric, base[chosen]))
        made = compare(metric, base, [other], drawn)
        assert [made.ci_low[0], made.ci_high[0]] == pytest.approx(
            np.percentile(deltas, [2.5, 97.5]), abs=1e-12
        )
        assert made.delta[0] == pytest.approx(plain(metric, other) - plain(metric, base), abs=1e-12)


@pytest.mark.parametrize("metric", [LOSS, SPEARMAN, PEARSON], ids=["loss", "spearman", "pearson"])
def test_linearised_metrics_are_those_of_a_jackknife(metric):
    """Leaving out one example of many changes the metric by what that example adds."""
    generator = np.random.default_rng(8)
    _, values = losses(generator, 300) if metric is LOSS else pairs(generator, 300, 1.0)
    value, influence = metric.linearised(values)
    assert value == pytest.approx(plain(metric, values), abs=1e-12)
    assert influence.sum() == pytest.approx(0, abs=1e-12)
    left_out = np.array([plain(metric, np.delete(values, i, axis=0)) for i in range(300)])
    np.testing.assert_allclose(left_out.mean() - left_out, influence, atol=0.03 * np.abs(influence).max())


def plain(metric, values) -> float:
    if metric is LOSS:
        return values[:, 0].sum() / values[:, 1].sum()
    function = stats.spearmanr if metric is SPEARMAN else stats.pearsonr
    return function(values[:, 0], values[:, 1]).statistic


@pytest.mark.parametrize("shift", [0.0, 0.04, 0.09])
def test_p_values_of_losses_are_those_of_a_permutation_test(shift):
    """Under "no effect" an example's loss with and without the head can change places."""
    generator = np.random.default_rng(int(100 * shift))
    base, other = losses(generator, 60, shift)
    made = compare(LOSS, base, [other], draws(60, resamples=1000))
    signs = generator.choice([-1.0, 1.0], size=(100_000, 60))
    permuted = np.abs(signs @ (other[:, 0] - base[:, 0]))
    share = np.mean(permuted >= abs((other[:, 0] - base[:, 0]).sum()))
    assert made.p_value[0] == pytest.approx(share, abs=0.02)


@pytest.mark.parametrize("metric", [SPEARMAN, PEARSON], ids=["spearman", "pearson"])
@pytest.mark.parametrize("noise", [1.2, 2.5])
def test_p_values_of_correlations_are_those_of_a_permutation_test(metric, noise):
    generator = np.random.default_rng(int(10 * noise))
    base, other = pairs(generator, 120, noise)
    if metric is SPEARMAN:  # what can change places must be on one scale
        base[:, 0], other[:, 0] = stats.rankdata(base[:, 0]), stats.rankdata(other[:, 0])
    made = compare(metric, base, [other], draws(120))
    swap = generator.random((4000, 120)) < 0.5
    deltas = [
        plain(metric, np.column_stack([np.where(s, base[:, 0], other[:, 0]), base[:, 1]]))
        - plain(metric, np.column_stack([np.where(s, other[:, 0], base[:, 0]), base[:, 1]]))
        for s in swap
    ]
    share = np.mean(np.abs(deltas) >= abs(made.delta[0]))
    assert made.p_value[0] == pytest.approx(share, abs=0.06)


@pytest.mark.parametrize("metric", [LOSS, SPEARMAN], ids=["loss", "spearman"])
def test_intervals_cover_and_p_values_are_level(metric):
    """Over 400 made-up benchmarks: 95 % of intervals hold the truth, 5 % of p-values lie under 0.05."""
    generator = np.random.default_rng(2)
    drawn = draws(80, resamples=400)
    covered, rejected = [], []
    for _ in range(400):
        if metric is LOSS:
            (base, other), truth = losses(generator, 80, 0.1), 0.1
        else:  # two cosines that are equally good: the truth is 0
            gold = generator.normal(0, 1, 80)
            shared = generator.normal(0, 1, 80)
            base, other = (
                np.column_stack([gold + shared + generator.normal(0, 0.5, 80), gold]) for _ in range(2)
            )
            truth = 0.0
        made = compare(metric, base, [other], drawn)
        covered.append(made.ci_low[0] <= truth <= made.ci_high[0])
        rejected.append(made.p_value[0] < 0.05)
    assert 0.91 <= np.mean(covered) <= 0.98
    if metric is SPEARMAN:
        assert 0.02 <= np.mean(rejected) <= 0.08


def test_undefined_is_not_measured():
    base, other = pairs(np.random.default_rng(3), 20, 0.5)
    flat = base.copy()
    flat[:, 0] = 0.7
    made = compare(SPEARMAN, base, [flat, other], draws(20, resamples=1000))
    assert np.isnan([made.value[0], made.delta[0], made.ci_low[0], made.p_value[0], made.q_value[0]]).all()
    assert made.q_value[1] == made.p_value[1]  # the one that was tested
    made = compare(SPEARMAN, flat, [flat], draws(20, resamples=1000))
    assert np.isnan([made.baseline, made.delta[0], made.p_value[0]]).all()


def test_two_sided():
    assert two_sided(0.0, 0.0, 9) == 1
    assert two_sided(-0.1, 0.0, 9) == 0
    assert two_sided(2.0, 1.0, 9) == two_sided(-2.0, 1.0, 9) == pytest.approx(2 * stats.t.sf(2, 9))


def test_many_tests_are_corrected():
    generator = np.random.default_rng(4)
    base, strong = losses(generator, 50, 0.5)
    others = [base + [[1, 0]] * generator.normal(0, 1, (50, 1)) for _ in range(9)]
    made = compare(LOSS, base, [strong, *others], draws(50, resamples=1000))
    assert made.q_value.tolist() == stats.false_discovery_control(made.p_value).tolist()
    assert made.q_value[0] < 1e-9
