from __future__ import annotations

import numpy as np
import pytest
import torch

import headlens
from headlens.ablation.gates import Fit, loss_without
from headlens.ablation.importance import (
    METHODS,
    NEED_LOSSES,
    ImportanceSettings,
    estimate,
    layer_norms,
    per_example,
)
from headlens.benchmarks.registry import open_benchmark
from headlens.errors import InputError, ModelError
from support.carriers import (
    CARRIER,
    DEAD,
    NOISE,
    backup_pair,
    benchmark_of,
    carrier_and_noise,
    rows,
)
from support.families import build
from support.toytext import toy_pairs, toy_tokenizer, write_pairs

IDS = [[5, 9, 30], [17, 8, 22, 41, 6], [7, 12], [33, 9, 50, 12]]


def lens_of(family: str, dtype=torch.float32):
    return headlens.load(build(family).to(dtype), toy_tokenizer(pad=1 if family == "mpnet" else 0))


def opened(lens, path):
    return open_benchmark(write_pairs(path / "p.tsv", toy_pairs()), lens)


def test_dead_heads_get_exactly_nothing(tmp_path):
    lens = carrier_and_noise()
    benchmark = benchmark_of(lens, tmp_path)
    dead = [i for i, head in enumerate(lens.anatomy.heads) if head not in (CARRIER, NOISE)]
    for method in ("gradient", "taylor", "integrated", "shapley"):
        made = estimate(
            lens, benchmark, lens.anatomy.heads, method, ImportanceSettings(steps=2, permutations=2)
        )
        assert made.values[dead].tolist() == [0] * 6, method
        assert made.values[1] > 0, method
        table = made.importance
        assert table["rank"].tolist()[1] in (1, 2)
        assert set(table["method"]) == {method}


def test_layer_norms():
    lens = carrier_and_noise()
    heads = lens.anatomy.heads
    assert layer_norms(np.array([3.0, 4, 0, 0, 0, 0, 0, 0]), heads).tolist() == [5] * 4 + [1] * 4


def test_importance_over_the_norm_of_its_layer(tmp_path):
    lens = carrier_and_noise()  # of layer 1 all heads are dead
    benchmark = benchmark_of(lens, tmp_path)
    plain = estimate(lens, benchmark, lens.anatomy.heads, "gradient").values
    made = estimate(lens, benchmark, lens.anatomy.heads, "gradient", ImportanceSettings(normalise="layer"))
    assert np.sqrt((made.values[:4] ** 2).sum()) == pytest.approx(1)
    np.testing.assert_allclose(made.values[:4], plain[:4] / np.sqrt((plain[:4] ** 2).sum()))
    assert made.values[4:].tolist() == [0] * 4
    assert made.facts == {"normalise": "layer"}
    some = estimate(lens, benchmark, [NOISE, DEAD], "gradient", ImportanceSettings(normalise="layer"))
    np.testing.assert_allclose(some.values, made.values[2:4])  # the whole layer counts


def test_signs(tmp_path):
    """The carrier's removal costs, that of noise pays; derivatives at the whole model see both."""
    lens = carrier_and_noise()
    benchmark = benchmark_of(lens, tmp_path, without=[NOISE])
    for method in ("taylor", "integrated", "shapley"):
        values = estimate(lens, benchmark, [CARRIER, NOISE, DEAD], method).values
        assert values[0] > 0.01, method
        assert values[1] < -0.01, method
        assert values[2] == 0, method
    assert (estimate(lens, benchmark, [CARRIER, NOISE], "gradient").values > 0).all()


def test_gradients_miss_backup_heads(tmp_path):
    lens = backup_pair()
    benchmark = benchmark_of(lens, tmp_path)
    made = estimate(lens, benchmark, [CARRIER, NOISE], "taylor")
    assert np.abs(made.values).max() < 1e-3 * (
        loss_without(lens, benchmark, [CARRIER, NOISE]) - loss_without(lens, benchmark)
    )


def state(lens):
    weights = list(lens.model.parameters())
    return (
        [weight.requires_grad for weight in weights],
        [None if weight.grad is None else weight.grad.clone() for weight in weights],
        [module.training for module in lens.model.modules()],
        [len(module._forward_pre_hooks) + len(module._forward_hooks) for module in lens.model.modules()],
        lens.model.config._attn_implementation,
    )


class BrokenError(Exception):
    pass


@pytest.mark.parametrize("family", ["bert", "mpnet"])
@pytest.mark.parametrize("method", METHODS)
def test_nothing_stays_behind(tmp_path, method, family):
    lens = lens_of(family)
    benchmark = opened(lens, tmp_path)
    lens.model.train()
    weights = list(lens.model.parameters())
    weights[0].requires_grad_(False)
    weights[3].grad = torch.full_like(weights[3], 7)
    before = state(lens)
    settings = ImportanceSettings(steps=2, permutations=1, fit=Fit(steps=3))
    estimate(lens, benchmark, lens.anatomy.select("0.*"), method, settings)
    assert_same(state(lens), before)
    if method == "random":
        return

    def fail(*_):
        raise BrokenError

    hook = lens.model.base_model.encoder.layer[1].register_forward_hook(fail)
    with pytest.raises(BrokenError):
        estimate(lens, benchmark, lens.anatomy.select("0.*"), method, settings)
    hook.remove()
    assert_same(state(lens), before)


def assert_same(found, expected):
    for one, other in zip(found[1], expected[1], strict=True):
        assert (one is None) == (other is None)
        assert one is None or torch.equal(one, other)
    assert (found[0], *found[2:]) == (expected[0], *expected[2:])


def test_nothing_is_kept_for_weights(monkeypatch):
    """Inside, no weight wants a gradient, and the lots still do."""
    lens = lens_of("bert")
    benchmark, seen = rows([0, 1], IDS[:2]), []
    inner = type(benchmark).losses

    def losses(self, lens):
        for lot in inner(self, lens):
            seen.append((lot.losses.requires_grad, any(w.requires_grad for w in lens.model.parameters())))
            yield lot

    monkeypatch.setattr(type(benchmark), "losses", losses)
    per_example(lens, benchmark, lens.anatomy.heads)
    assert seen == [(True, False)]


@pytest.mark.parametrize("block", [torch.no_grad, torch.inference_mode])
def test_gradients_are_taken_where_they_are_off(block):
    lens = lens_of("bert")
    benchmark = rows([0, 1], IDS[:2])
    expected = per_example(lens, benchmark, lens.anatomy.heads)
    with block():
        assert (per_example(lens, benchmark, lens.anatomy.heads) == expected).all()


@pytest.mark.parametrize("method", METHODS)
def test_the_same_twice(tmp_path, method):
    lens = lens_of("bert")
    benchmark = opened(lens, tmp_path)
    settings = ImportanceSettings(steps=3, permutations=2, fit=Fit(steps=3))
    made, again = (estimate(lens, benchmark, lens.anatomy.select("0.*"), method, settings) for _ in "ab")
    assert made.values.tolist() == again.values.tolist()
    assert made.facts == again.facts
    assert made.importance.equals(again.importance)


def test_heads_that_a_benchmark_never_runs(tmp_path):
    lens = lens_of("bart")
    benchmark = opened(lens, tmp_path)
    found = per_example(lens, benchmark, lens.anatomy.select("encoder.0.0,decoder.0.0"))
    assert (found[:, 0] != 0).any()
    assert (found[:, 1] == 0).all()
    assert (per_example(lens, benchmark, lens.anatomy.select("cross.0.0")) == 0).all()


def test_rows_that_belong_to_no_example(monkeypatch):
    lens = lens_of("bert")
    benchmark = rows([0, 1], IDS[:2])
    inner = type(benchmark).losses

    def doubled(self, lens):
        for lot in inner(self, lens):
            yield type(lot)(torch.tensor([0, 0, 1, 1]), lot.examples, lot.losses)

    monkeypatch.setattr(type(benchmark), "losses", doubled)
    with pytest.raises(ModelError) as caught:
        per_example(lens, benchmark, lens.anatomy.heads)
    assert str(caught.value) == (
        "encoder.0 was given 2 rows for 4 inputs. Find importance by each, shapley or random instead."
    )


class NoLoss:
    name, metrics, stacks, facts = "counts:x", (), ("encoder",), {"examples": 3}

    def measure(self, lens):
        raise AssertionError

    def take(self, examples):
        raise AssertionError


def test_refusals(tmp_path):
    lens = lens_of("bert")
    heads = lens.anatomy.heads
    for method in NEED_LOSSES:
        with pytest.raises(InputError) as caught:
            estimate(lens, NoLoss(), heads, method)
        assert str(caught.value) == (
            f"Importance by {method} needs a loss that can be differentiated, and counts:x has none. "
            "Choose each, shapley or random instead."
        )
    with pytest.raises(InputError) as caught:
        estimate(lens, NoLoss(), heads, "each")
    assert str(caught.value) == (
        "There is no estimate of importance 'each'. "
        "Choose one of: gradient, taylor, integrated, shapley, gates, random."
    )
    with pytest.raises(InputError) as caught:
        estimate(lens, NoLoss(), [], "random")
    assert str(caught.value) == "No heads are named. Name one at least, such as 0.0."
    for options, message in (
        ({"normalise": "l2"}, "There is no way 'l2' to normalise importance. Choose one of: layer; or none."),
        ({"steps": 0}, "Expected 1 or more steps, found 0. Write steps=1 or more."),
        ({"permutations": 0}, "Expected 1 or more permutations, found 0. Write permutations=1 or more."),
    ):
        with pytest.raises(InputError) as caught:
            ImportanceSettings(**options)
        assert str(caught.value) == message


def test_random_order():
    lens = lens_of("bert")
    orders = [
        estimate(lens, NoLoss(), lens.anatomy.heads, "random", ImportanceSettings(seed=s)).values
        for s in (0, 0, 1)
    ]
    assert sorted(orders[0]) == list(range(1, 9))
    assert orders[0].tolist() == orders[1].tolist() != orders[2].tolist()
