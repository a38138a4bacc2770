"""Intervals, p-values and false-discovery control against plain second computations."""

from __future__ import annotations

import math

import numpy as np
import pytest
from scipy import stats

from headlens.util import statistics
from headlens.util.statistics import benjamini_hochberg, draws, ratio_effects


def simulated(n_units: int, n_effects: int, effect: float = 0.0, seed: int = 0):
    """Units of different sizes, with gains that scatter about effect x count."""
    generator = np.random.default_rng(seed)
    counts = generator.integers(0, 12, (n_units, n_effects)).astype(float)
    own = effect + generator.normal(0, 0.15, (n_units, n_effects))
    return own * counts, counts


def test_against_a_plain_loop_over_the_same_draws():
    gains, counts = simulated(13, 4)
    found = ratio_effects(gains, counts, seed=7, resamples=200)
    drawn = draws(13, seed=7, resamples=200)
    for column in range(4):
        values = []
        for times in drawn:
            units = [unit for unit, n in enumerate(times) for _ in range(int(n))]
            assert len(units) == 13
            values.append(sum(gains[u, column] for u in units) / sum(counts[u, column] for u in units))
        low, high = np.percentile(values, [2.5, 97.5])
        assert found.ci_low[column] == pytest.approx(low, abs=1e-12)
        assert found.ci_high[column] == pytest.approx(high, abs=1e-12)
        assert found.effect[column] == pytest.approx(sum(gains[:, column]) / sum(counts[:, column]))
        assert found.n[column] == counts[:, column].sum()


def test_with_equal_counts_the_p_value_is_that_of_a_t_test():
    generator = np.random.default_rng(1)
    gains = generator.normal(0.2, 1, (25, 6))
    found = ratio_effects(gains, np.ones_like(gains))
    expected = stats.ttest_1samp(gains, 0, alternative="greater").pvalue
    np.testing.assert_allclose(found.p_value, expected, rtol=1e-12)


def test_p_values_agree_with_a_sign_flip_permutation():
    gains, counts = simulated(60, 8, effect=0.03, seed=2)
    found = ratio_effects(gains, counts)
    generator = np.random.default_rng(3)
    signs = generator.choice([-1.0, 1.0], (200_000, 60))
    permuted = (signs @ gains >= gains.sum(0) - 1e-12).mean(0)
    assert permuted.min() < 0.1 < 0.2 < permuted.max()  # the data hold weak and strong evidence
    np.testing.assert_allclose(found.p_value, permuted, rtol=0.15, atol=0.01)


def test_null_p_values_are_uniform():
    gains, counts = simulated(40, 4000, seed=4)
    p = ratio_effects(gains, counts, resamples=10).p_value
    assert stats.kstest(p, "uniform").pvalue > 0.001
    assert (p < 0.05).mean() == pytest.approx(0.05, abs=0.015)


def test_intervals_cover_the_truth():
    gains, counts = simulated(60, 3000, effect=0.1, seed=5)
    found = ratio_effects(gains, counts, resamples=1000)
    covered = (found.ci_low <= 0.1) & (found.ci_high >= 0.1)
    assert covered.mean() == pytest.approx(0.95, abs=0.02)
    assert (found.ci_low > 0.1).mean() == pytest.approx((found.ci_high < 0.1).mean(), abs=0.015)


def test_tiny_p_values_are_no_share_of_resamples():
    gains, counts = simulated(60, 3, effect=0.5, seed=6)
    assert (ratio_effects(gains, counts, resamples=100).p_value < 1e-9).all()


def test_units_without_counts_change_nothing():
    gains, counts = simulated(20, 3, effect=0.05)
    counts[4] = gains[4] = 0
    kept = np.arange(20) != 4
    whole, without = ratio_effects(gains, counts), ratio_effects(gains[kept], counts[kept])
    np.testing.assert_allclose(whole.effect, without.effect)
    np.testing.assert_allclose(whole.p_value, without.p_value)


def test_no_variance():
    counts = np.array([[2.0, 3, 4, 0], [5, 6, 7, 0], [1, 1, 1, 0]])
    found = ratio_effects(counts * [0.3, 0, -0.3, 1], counts)
    np.testing.assert_allclose(found.effect, [0.3, 0, -0.3, np.nan])
    np.testing.assert_allclose(found.ci_low, [0.3, 0, -0.3, np.nan])
    np.testing.assert_allclose(found.ci_high, [0.3, 0, -0.3, np.nan])
    np.testing.assert_array_equal(found.p_value, [0, 1, 1, np.nan])
    np.testing.assert_array_equal(found.n, [8, 10, 12, 0])


def test_an_effect_of_exactly_zero_that_scatters_has_p_one_half():
    assert ratio_effects(np.array([[1.0], [-1], [2], [-2]]), np.ones((4, 1))).p_value == pytest.approx([0.5])


def test_one_unit_shows_nothing():
    found = ratio_effects(np.array([[0.0, 2], [3, 2]]), np.array([[0.0, 4], [4, 4]]))
    np.testing.assert_array_equal(found.effect, [0.75, 0.5])
    np.testing.assert_array_equal(found.p_value, [np.nan, 0])
    np.testing.assert_array_equal([found.ci_low, found.ci_high], [[np.nan, 0.5], [np.nan, 0.5]])


@pytest.mark.parametrize("shape", [(0, 3), (4, 0)])
def test_nothing_measured(shape):
    found = ratio_effects(np.zeros(shape), np.zeros(shape))
    for values in (found.effect, found.ci_low, found.ci_high, found.p_value):
        assert values.shape == shape[1:]
        assert np.isnan(values).all()


def test_the_same_answer_twice_and_another_seed_another():
    gains, counts = simulated(15, 5)
    first, second, other = (ratio_effects(gains, counts, seed) for seed in (0, 0, 1))
    np.testing.assert_array_equal(first.ci_low, second.ci_low)
    np.testing.assert_array_equal(first.p_value, other.p_value)
    assert (first.ci_low != other.ci_low).any()


def test_chunks_of_effects_change_nothing(monkeypatch):
    gains, counts = simulated(15, 11)
    counts[:, 3] = gains[:, 3] = 0
    whole = ratio_effects(gains, counts, resamples=100)
    monkeypatch.setattr(statistics, "_CELLS", 400)  # 4 effects at once
    parts = ratio_effects(gains, counts, resamples=100)
    np.testing.assert_allclose(parts.ci_low, whole.ci_low, rtol=1e-13)
    np.testing.assert_allclose(parts.ci_high, whole.ci_high, rtol=1e-13)
    assert np.isnan(whole.ci_low).tolist() == [column == 3 for column in range(11)]


def test_draws_are_with_replacement():
    drawn = draws(9, seed=1, resamples=4000)
    assert (drawn.sum(1) == 9).all()
    assert (drawn == 0).mean() == pytest.approx((8 / 9) ** 9, abs=0.01)
    assert (drawn == 2).mean() == pytest.approx(math.comb(9, 2) * (1 / 9) ** 2 * (8 / 9) ** 7, abs=0.01)


def test_benjamini_hochberg_by_hand():
    p = np.array([0.01, np.nan, 0.04, 0.03, 0.02, 0.5, np.nan])
    # ranks of the five: .01*5/1, .02*5/2, .03*5/3, .04*5/4, .5*5/5 = .05 .05 .05 .05 .5
    np.testing.assert_allclose(benjamini_hochberg(p), [0.05, np.nan, 0.05, 0.05, 0.05, 0.5, np.nan])
    # Benjamini and Hochberg 1995, section 3.1: four of their fifteen p-values are rejected at 0.05
    paper = [0.0001, 0.0004, 0.0019, 0.0095, 0.0201, 0.0278, 0.0298, 0.0344]
    paper += [0.0459, 0.3240, 0.4262, 0.5719, 0.6528, 0.7590, 1.0]
    q = benjamini_hochberg(np.array(paper))
    assert (q < 0.05).sum() == 4
    np.testing.assert_allclose(q[:4], [0.0015, 0.003, 0.0095, 0.035625])
    assert q[4] == pytest.approx(0.0201 * 15 / 5)


def test_benjamini_hochberg_of_nothing():
    assert benjamini_hochberg(np.array([])).tolist() == []
    assert np.isnan(benjamini_hochberg(np.array([np.nan, np.nan]))).all()
