from __future__ import annotations

import itertools

import numpy as np
import pytest

from headlens.ablation.importance import ImportanceSettings, badness, estimate, shapley
from headlens.model.heads import Head
from support.carriers import CARRIER, NOISE, backup_pair, benchmark_of, losses_of, scaled

HEADS = [Head("encoder", 0, i) for i in range(4)]


def game(out: frozenset[Head]) -> float:
    """Each head carries something alone; 0 and 1 stand in for each other; 2 is worth more without 3."""
    off = {head.head for head in out}
    return 3.0 + 0.5 * len(off & {2}) + 2.0 * ({0, 1} <= off) - 0.25 * ({2, 3} <= off)


def exact(value, heads) -> np.ndarray:
    """The mean marginal effect over all orders, by listing them."""
    total = dict.fromkeys(heads, 0.0)
    orders = list(itertools.permutations(heads))
    for order in orders:
        for place, head in enumerate(order):
            total[head] += value(frozenset(order[: place + 1])) - value(frozenset(order[:place]))
    return np.array([total[head] / len(orders) for head in heads])


def test_many_permutations_come_to_the_exact_values():
    expected = exact(game, HEADS)
    assert expected.tolist() == [1.0, 1.0, 0.375, -0.125]
    made = shapley(HEADS, game, permutations=4000)
    assert (np.abs(made.values - expected) < 4 * made.error).all()
    assert made.error.max() < 0.02
    # of a head that costs 2 in half of the orders and else nothing
    assert made.error[0] == pytest.approx(1 / np.sqrt(4000), rel=0.01)


def test_every_permutation_adds_up():
    made = shapley(HEADS, game, permutations=7, seed=3)
    assert made.marginals.shape == (7, 4)
    assert (made.all_on, made.all_off) == (3.0, 5.25)
    assert made.marginals.sum(axis=1).tolist() == [2.25] * 7
    assert made.values.tolist() == made.marginals.mean(axis=0).tolist()
    np.testing.assert_allclose(made.error, made.marginals.std(axis=0, ddof=1) / np.sqrt(7))


def test_additive_games_need_one_permutation():
    made = shapley(HEADS, lambda out: float(sum(2**head.head for head in out)), permutations=1)
    assert made.values.tolist() == [1, 2, 4, 8]
    assert np.isnan(made.error).all()


def test_every_set_is_asked_for_once():
    asked = []

    def value(out):
        asked.append(out)
        return game(out)

    shapley(HEADS, value, permutations=50)
    assert len(asked) == len(set(asked)) == 16
    shapley(HEADS, value, permutations=1)
    assert len(asked) == 16 + 5


def test_orders_differ_and_depend_on_the_seed():
    made = shapley(HEADS, game, permutations=30)
    assert len({tuple(row) for row in made.marginals}) > 3
    assert made.marginals.tolist() == shapley(HEADS, game, permutations=30).marginals.tolist()
    assert made.marginals.tolist() != shapley(HEADS, game, permutations=30, seed=1).marginals.tolist()


def test_what_is_not_defined_is_not_measured():
    made = shapley(HEADS[:2], lambda out: float("nan") if HEADS[1] in out else 1.0, permutations=20)
    assert np.isnan(made.values).all()


def test_progress_is_shown_when_asked(capsys):
    shapley(HEADS, game, permutations=2)
    assert capsys.readouterr().err == ""
    shapley(HEADS, game, permutations=2, progress=True)
    assert "8/8" in capsys.readouterr().err


def test_a_backup_pair_shares_what_both_carry(tmp_path):
    """Each alone costs nothing, both together all: removing heads one by one cannot see them."""
    lens = backup_pair()
    benchmark = benchmark_of(lens, tmp_path)
    heads = lens.anatomy.select("0.*")
    loss = lambda *out: _without(lens, benchmark, out)  # noqa: E731
    lost = loss(CARRIER, NOISE) - loss()
    assert lost > 0.05
    for one in (CARRIER, NOISE):
        assert abs(loss(one) - loss()) < 1e-3 * lost
    made = estimate(lens, benchmark, heads, "shapley", ImportanceSettings(permutations=400))
    assert made.facts["sum"] == pytest.approx(lost, abs=1e-9)
    assert (made.facts["all_on"], made.facts["all_off"]) == pytest.approx((loss(), loss(*heads)), abs=1e-6)
    np.testing.assert_allclose(made.values[1:3], lost / 2, rtol=0.1)
    assert made.values[[0, 3]].tolist() == [0, 0]
    value = badness(lens, benchmark)
    known: dict[frozenset[Head], float] = {}
    cached = lambda out: known.setdefault(out, value(out)) if out not in known else known[out]  # noqa: E731
    expected = exact(cached, heads)
    assert (np.abs(made.values - expected) <= 4 * made.error + 1e-12).all()


def _without(lens, benchmark, out) -> float:
    """Another way: columns of W_O are 0."""
    for head in out:
        lens = scaled(lens, head, 0)
    return float(losses_of(lens, benchmark).mean())


class Scores:
    """A benchmark without losses, of which a larger value is better: how many of its heads are on."""

    name, stacks, facts = "scores:x", ("encoder",), {"examples": 1}

    def __init__(self, larger_is_better):
        self.larger_is_better = larger_is_better
        self.metrics = (self,)

    def measure(self, lens):
        seen = []
        pattern = {"input_ids": lens.tokenizer("w7 w9", return_tensors="pt")["input_ids"]}
        with lens.edit(lambda site, output: seen.append((output != 0).any(-1)[0, 0]) or output):
            lens.run(pattern)
        return np.array([[float(sum(on.sum() for on in seen))]])

    def value(self, values):
        return float(values[0, 0]) if self.larger_is_better else -float(values[0, 0])

    def take(self, examples):
        raise AssertionError


@pytest.mark.parametrize("larger_is_better", [True, False])
def test_benchmarks_without_losses(larger_is_better):
    """What removing a head costs is positive, whichever way the metric runs."""
    lens = backup_pair()
    made = estimate(
        lens, Scores(larger_is_better), lens.anatomy.heads, "shapley", ImportanceSettings(permutations=2)
    )
    assert made.values.tolist() == [1] * 8
    assert made.error.tolist() == [0] * 8
    assert made.facts["all_off"] - made.facts["all_on"] == 8
    assert made.facts["permutations"] == 2


def test_a_value_that_the_caller_keeps(tmp_path):
    lens = backup_pair()
    benchmark = benchmark_of(lens, tmp_path)
    made = estimate(lens, benchmark, HEADS, "shapley", ImportanceSettings(permutations=3, value=game))
    assert made.values.tolist() == shapley(HEADS, game, permutations=3).values.tolist()
