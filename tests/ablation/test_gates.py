from __future__ import annotations

import math

import numpy as np
import pytest
import torch

import headlens
from headlens.ablation.gates import ROLES, Fit, Learned, _batches, _slope, draw, learn_gates, open_probability
from headlens.ablation.importance import ImportanceSettings, estimate
from headlens.benchmarks.registry import open_benchmark
from headlens.errors import InputError
from headlens.model.heads import Head
from support.carriers import (
    CARRIER,
    DEAD,
    NOISE,
    backup_pair,
    benchmark_of,
    carrier_and_noise,
    losses_of,
    rows,
)
from support.families import build
from support.toytext import toy_pairs, toy_tokenizer, write_pairs

IDS = [[5, 9, 30], [17, 8, 22, 41, 6], [7, 12], [33, 9, 50, 12]]
FIT = Fit(steps=120, learning_rate=0.2, examples_at_once=10)


def test_samples_are_open_as_often_as_is_said():
    generator = torch.Generator().manual_seed(0)
    for place in (-3.0, -1.0, 0.0, 2.0):
        gates = draw(torch.full((20_000,), place, dtype=torch.float64), generator)
        said = float(open_probability(torch.tensor(place)))
        assert float((gates > 0).double().mean()) == pytest.approx(said, abs=0.015)
        assert said == pytest.approx(1 / (1 + math.exp(-place + 2 / 3 * math.log(0.1 / 1.1))))
        # symmetric: a gate is 1 as often as one at the opposite place is 0
        opposite = float(open_probability(torch.tensor(-place)))
        assert float((gates < 1).double().mean()) == pytest.approx(opposite, abs=0.015)
    assert (gates.min(), gates.max()) == (0, 1)


def test_samples_are_differentiable_by_their_places():
    place = torch.linspace(-2, 2, 50, dtype=torch.float64).requires_grad_()
    gates = draw(place, torch.Generator().manual_seed(4))
    gates.sum().backward()
    with torch.no_grad():
        up, down = (draw(place + step, torch.Generator().manual_seed(4)) for step in (1e-6, -1e-6))
    torch.testing.assert_close(place.grad, (up - down) / 2e-6, atol=1e-6, rtol=1e-4)
    assert (place.grad > 0).any()


@pytest.mark.parametrize("size", [1, 3])
@pytest.mark.parametrize("family", ["bert", "bart", "gpt2"])
def test_slopes_by_central_differences(family, size):
    lens = headlens.load(build(family).double(), toy_tokenizer())
    benchmark = rows([0, 1, 1, 2], IDS, size=size)
    heads = lens.anatomy.heads[1::2]
    gates = torch.linspace(0.1, 0.9, len(heads), dtype=torch.float64)
    found = _slope(lens, benchmark, heads, gates)
    for i in range(len(heads)):
        up, down = (_gated(lens, benchmark, heads, gates, i, step) for step in (1e-5, -1e-5))
        assert float(found[i]) == pytest.approx((up - down) / 2e-5, rel=1e-5, abs=1e-8)


def _gated(lens, benchmark, heads, gates, i, step) -> float:
    """The mean loss under fixed gates, by a plain edit."""

    def change(site, output):
        output = output.clone()
        for j, head in enumerate(heads):
            if (site.stack, site.layer) == (head.stack, head.layer):
                output[:, :, head.head] *= gates[j] + step * (i == j)
        return output

    with lens.edit(change):
        return float(losses_of(lens, benchmark).mean())


def test_examples_come_in_turn():
    drawn = _batches(7, 3, seed=0)
    rounds = [next(drawn) + next(drawn) for _ in range(30)]
    assert all(len(set(seen)) == 6 for seen in rounds)  # none twice in a round, above all not in a batch
    counts = np.bincount(np.concatenate(rounds), minlength=7)
    assert counts.sum() == 180
    assert counts.min() > 18  # and none left out for long
    drawn = _batches(4, 9, seed=0)  # more than there are: all of them, each once
    assert [sorted(next(drawn)) for _ in range(3)] == [[0, 1, 2, 3]] * 3


def test_roles_by_hand():
    made = Learned(np.array([0.9, 0.1, 0.1, 0.9, 0.4]), np.array([0.9, 0.9, 0.1, 0.2, 0.9]), 0.1, 0.0, 1.0)
    assert made.roles == ["facilitating", "irrelevant", "interfering", "facilitating", "irrelevant"]
    np.testing.assert_allclose(made.importance, [0.8, 0, -0.8, 0.1, 0.3], atol=1e-12)


def test_a_carrier_noise_and_the_dead(tmp_path):
    lens = carrier_and_noise()
    benchmark = benchmark_of(lens, tmp_path, without=[NOISE])
    made = estimate(lens, benchmark, lens.anatomy.heads, "gates", ImportanceSettings(fit=FIT))
    roles = made.roles.set_index(["layer", "head"])
    assert tuple(roles.columns) == ("stack", "open_closing", "open_opening", "role")
    assert roles.loc[(0, 1), "role"] == "facilitating"
    assert roles.loc[(0, 2), "role"] == "interfering"
    others = roles.drop([(0, 1), (0, 2)])
    assert set(others["role"]) == {"irrelevant"}
    assert set(roles["role"]) == set(ROLES)
    assert made.values[1] > 0.8
    assert made.values[2] < -0.8
    assert np.abs(np.delete(made.values, [1, 2])).max() < 0.1
    assert (others["open_closing"] < 0.1).all()
    assert (others["open_opening"] > 0.9).all()
    lost = made.facts["all_off"] - made.facts["all_on"]
    assert made.facts["price"] == pytest.approx(0.5 * lost / 8)
    assert made.importance["rank"].tolist()[1:3] == [1, 8]


def test_of_a_backup_pair_one_stays_open(tmp_path):
    lens = backup_pair(gain=10)
    benchmark = benchmark_of(lens, tmp_path)
    made = learn_gates(lens, benchmark, [CARRIER, NOISE, DEAD], FIT)
    assert made.open_closing[:2].max() > 0.9
    assert made.open_closing[2] < 0.1
    assert made.open_opening.min() > 0.9


def test_the_scale_of_a_loss_says_nothing():
    """Ten times the loss, ten times the price: the same gates."""
    lens = headlens.load(build("bert"), toy_tokenizer())
    heads, fit = lens.anatomy.heads, Fit(steps=15, examples_at_once=2)
    made = learn_gates(lens, rows([0, 1, 2, 3], IDS, factors=[1.0, 0.5, 0.2, 1.0]), heads, fit)
    other = learn_gates(lens, rows([0, 1, 2, 3], IDS, factors=[10.0, 5.0, 2.0, 10.0]), heads, fit)
    assert other.price == pytest.approx(10 * made.price, rel=1e-4)
    np.testing.assert_allclose(other.open_closing, made.open_closing, atol=1e-4)
    assert np.ptp(made.open_closing) > 0.01


def test_heads_that_carry_nothing_still_have_a_price(tmp_path):
    lens = carrier_and_noise()
    benchmark = benchmark_of(lens, tmp_path)
    made = learn_gates(lens, benchmark, lens.anatomy.select("1.*"), FIT)
    assert made.all_off == made.all_on
    assert made.price == pytest.approx(0.5 * 0.01 * abs(made.all_on) / 4)
    assert set(made.roles) == {"irrelevant"}


def test_seeds():
    lens = headlens.load(build("bert"), toy_tokenizer())
    benchmark, fit = rows([0, 1, 2, 3], IDS), Fit(steps=8, examples_at_once=2)
    made, again, other = (learn_gates(lens, benchmark, lens.anatomy.heads, fit, seed) for seed in (0, 0, 1))
    assert made.open_closing.tolist() == again.open_closing.tolist()
    assert made.open_opening.tolist() == again.open_opening.tolist()
    assert made.open_closing.tolist() != other.open_closing.tolist()


def test_examples_that_have_no_loss_alone_are_passed_over(tmp_path):
    """Of pairs with one score a correlation is not defined: 0 / 0."""
    lens = carrier_and_noise()
    pairs = [(a, b, float(i == 3)) for i, (a, b, _) in enumerate(toy_pairs(12))]
    benchmark = open_benchmark(write_pairs(tmp_path / "p.tsv", pairs), lens)
    made = learn_gates(lens, benchmark, [CARRIER, DEAD], Fit(steps=12, examples_at_once=4))
    assert np.isfinite([made.open_closing, made.open_opening]).all()
    assert made.open_closing[1] < 0.97 < made.open_opening[1]  # some steps were made


def test_a_loss_that_is_not_a_number():
    lens = headlens.load(build("bert"), toy_tokenizer())
    benchmark = rows([0, 1], IDS[:2], factors=[1.0, float("nan")])
    with pytest.raises(InputError) as caught:
        learn_gates(lens, benchmark, [Head("encoder", 0, 0)])
    assert str(caught.value) == (
        "The loss of rows is nan with all heads and nan without those under study. Gates are learned from "
        "finite losses only: choose other heads, or find importance by each."
    )


def test_half_precision(tmp_path):
    lens = carrier_and_noise()
    lens.model.bfloat16()
    benchmark = benchmark_of(lens, tmp_path, without=[NOISE])
    made = learn_gates(lens, benchmark, [CARRIER, NOISE, DEAD], FIT)
    assert made.roles == ["facilitating", "interfering", "irrelevant"]


def test_progress_is_shown_when_asked(capsys):
    lens = headlens.load(build("bert"), toy_tokenizer())
    for progress, shown in ((False, False), (True, True)):
        learn_gates(lens, rows([0, 1], IDS[:2]), lens.anatomy.heads, Fit(steps=2), progress=progress)
        assert ("4/4" in capsys.readouterr().err) == shown
