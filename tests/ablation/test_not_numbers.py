"""No benchmark, mode or estimate makes a number of what a model computes as NaN or infinity."""

from __future__ import annotations

import math
import re

import numpy as np
import pytest
import torch

import headlens
from headlens.ablation import gates
from headlens.ablation.importance import METHODS, estimate
from headlens.ablation.measure import Measuring
from headlens.ablation.sweep import sweep
from headlens.benchmarks.registry import open_benchmark
from headlens.errors import InputError, ModelError, NotNumbersError
from headlens.model import replacements as modes
from headlens.model.heads import Head
from support import notnumbers, toytasks
from support.families import build
from support.toytext import toy_pairs, toy_tokenizer, write_pairs

NAN, INF = math.nan, math.inf
KINDS = ["language", "masked", "pairs", "classification", "probe", "similarity", "translation"]
WITH_LOGITS = ["language", "masked", "pairs", "classification"]
SUFFIX = (
    "NaN or an infinite number: the model's weights or activations are not numbers. Try --dtype float32 "
    "(float16 overflows easily), or another checkpoint."
)


@pytest.mark.parametrize("value", [NAN, INF, -INF], ids=str)
@pytest.mark.parametrize("kind", WITH_LOGITS)
def test_logits_of_some_inputs(tmp_path, kind, value):
    """An argmax of NaN is a label, and NaN is not above NaN: neither becomes an accuracy."""
    lens = notnumbers.lens_for(kind)
    benchmark = open_benchmark(notnumbers.spec_for(kind, tmp_path), lens)
    notnumbers.logits(lens.model, value)
    with pytest.raises(NotNumbersError) as refused:
        sweep(lens, benchmark, "set", heads="0.0")
    said = r"The logits of the input that begins '[^']*' hold " + re.escape(SUFFIX)
    assert re.fullmatch(said, str(refused.value))


@pytest.mark.parametrize("value", [NAN, INF], ids=str)
def test_logits_of_a_translation(tmp_path, value):
    lens = notnumbers.lens_for("translation")
    benchmark = open_benchmark(notnumbers.spec_for("translation", tmp_path), lens)
    notnumbers.logits(lens.model, value)
    with pytest.raises(NotNumbersError) as refused:
        benchmark.measure(lens)
    assert str(refused.value) == f"The logits of the next token hold {SUFFIX}"


@pytest.mark.parametrize("value", [NAN, INF], ids=str)
@pytest.mark.parametrize("kind", KINDS)
def test_states_of_one_word(tmp_path, kind, value):
    """Only inputs with that word are spoilt; the first head that sees it is named."""
    lens = notnumbers.lens_for(kind)
    spec = notnumbers.spec_for(kind, tmp_path)
    notnumbers.states(lens.model, value)
    with pytest.raises(NotNumbersError) as refused:
        sweep(lens, open_benchmark(spec, lens), "set", heads=lens.anatomy.heads[:1])
    stack = lens.anatomy.stacks[0]
    assert str(refused.value) == f"The attention of head {stack}.0.0 holds {SUFFIX}"


@pytest.mark.parametrize("kind", KINDS)
def test_states_behind_all_attention(tmp_path, kind):
    lens = notnumbers.lens_for(kind)
    notnumbers.last(lens.model, NAN)
    spec = notnumbers.spec_for(kind, tmp_path)
    with pytest.raises(NotNumbersError, match=r"The (logits|last hidden states) of the (input|next)"):
        sweep(lens, open_benchmark(spec, lens), "set", heads=lens.anatomy.heads[:1])


@pytest.mark.parametrize("mode", modes.MODES)
def test_what_stands_in_a_removed_heads_place(tmp_path, monkeypatch, mode):
    """The model is sound but without one head: the condition is named, and the head that shows it."""
    lens = notnumbers.lens_for("similarity")
    benchmark = open_benchmark(notnumbers.spec_for("similarity", tmp_path), lens)

    def spoilt(seam, reference):
        return lambda site, heads, output: output.new_full((len(heads), site.head_width), NAN)

    monkeypatch.setitem(modes.MODES, mode, spoilt)
    out = tmp_path / "run"
    with pytest.raises(NotNumbersError) as refused:
        sweep(lens, benchmark, "each", mode, heads="0.1", out=out)
    assert str(refused.value) == f"Without head encoder.0.1, the attention of head encoder.1.0 holds {SUFFIX}"
    assert sorted(path.name for path in (out / "units").glob("*.npy")) == ["baseline.npy"]
    said = re.escape("Without heads encoder.1.0, encoder.1.1, encoder.1.2 and 1 more, the last hidden states")
    with pytest.raises(NotNumbersError, match=said):
        sweep(lens, benchmark, "layer", mode, heads="1.*")


@pytest.mark.parametrize("order", [name for name in METHODS if name != "random"])
@pytest.mark.parametrize("kind", ["pairs", "classification", "similarity"])
def test_importance(tmp_path, kind, order):
    lens = notnumbers.lens_for(kind)
    benchmark = open_benchmark(notnumbers.spec_for(kind, tmp_path), lens)
    notnumbers.states(lens.model, NAN)
    with pytest.raises(NotNumbersError, match=r"The attention of head (encoder|decoder)\.0\.0 holds NaN"):
        estimate(lens, benchmark, lens.anatomy.select("0.*"), order)


@pytest.mark.parametrize("order", ["gradient", "taylor", "integrated"])
def test_a_derivative_that_is_none_though_the_loss_is_one(tmp_path, order):
    """As where half precision overflows on the way back."""
    lens = notnumbers.lens_for("similarity")
    benchmark = open_benchmark(notnumbers.spec_for("similarity", tmp_path), lens)

    class Spoilt(torch.autograd.Function):
        @staticmethod
        def forward(ctx, x):
            return x.clone()

        @staticmethod
        def backward(ctx, slope):
            return slope * NAN

    module = lens.model.base_model.encoder.layer[1].output
    module.register_forward_hook(lambda m, x, y: Spoilt.apply(y))
    with pytest.raises(NotNumbersError) as refused:
        estimate(lens, benchmark, lens.anatomy.select("0.2,1.0"), order)
    assert str(refused.value) == f"The derivative of the loss by the gate of head encoder.0.2 holds {SUFFIX}"


def test_gates_are_not_learned_from_a_few_steps(tmp_path, monkeypatch):
    lens = notnumbers.lens_for("similarity")
    benchmark = open_benchmark(notnumbers.spec_for("similarity", tmp_path), lens)
    monkeypatch.setattr(gates, "_slope", lambda *_: None)
    with pytest.raises(InputError) as refused:
        gates.learn_gates(lens, benchmark, lens.anatomy.heads, gates.Fit(steps=3))
    assert str(refused.value) == (
        f"The loss of {benchmark.name} had no finite derivative in 6 of 6 steps. Try --dtype float32, choose "
        "other heads, or find importance by each."
    )
    whole = iter([None] * 3 + [torch.zeros(8, dtype=torch.float64)] * 3)
    monkeypatch.setattr(gates, "_slope", lambda *_: next(whole))
    assert gates.learn_gates(lens, benchmark, lens.anatomy.heads, gates.Fit(steps=3)).skipped == 3


@pytest.mark.parametrize("kind", ["language", "classification", "similarity", "translation"])
def test_half_precision_that_overflows(tmp_path, kind):
    """All weights are numbers of float16, and sums of them are not: in float32 the same model is sound."""
    lens = notnumbers.lens_for(kind)
    benchmark = open_benchmark(notnumbers.spec_for(kind, tmp_path), lens)
    with torch.no_grad():
        for name, weight in lens.model.named_parameters():
            if re.search(r"(mlp\.c_fc|intermediate\.dense|fc1)\.bias$", name):
                weight += 3e4
            if re.search(r"(mlp\.c_proj|output\.dense|fc2)\.weight$", name) and "attention" not in name:
                weight.fill_(1.0)
    assert np.isfinite(benchmark.measure(lens)).all()
    lens.model.half()
    with pytest.raises(ModelError, match=r"(The .* of .* holds? NaN|The last hidden states of)"):
        Measuring(lens, benchmark).baseline()


def test_a_model_in_bfloat16_with_a_broken_head(tmp_path):
    model = build("bert").bfloat16()
    notnumbers.values_of_head(model, 2)
    lens = headlens.load(model, toy_tokenizer())
    with pytest.raises(
        ModelError, match=r"The model's weight bert\.encoder\.layer\.1\.attention\.self\.value\.weight"
    ):
        sweep(lens, write_pairs(tmp_path / "p.tsv", toy_pairs()), "layer")


def test_a_metric_of_ones_own_that_is_not_defined_is_no_broken_model(tmp_path):
    """NaN that the model did not compute stays what it is: a cell that is not defined."""
    lens = notnumbers.lens_for("similarity")
    benchmark = open_benchmark(notnumbers.spec_for("similarity", tmp_path), lens)

    class Gaps:
        name, metrics, stacks, facts = benchmark.name, benchmark.metrics, benchmark.stacks, benchmark.facts

        def measure(self, lens):
            values = benchmark.measure(lens)
            values[3, 0] = NAN
            return values

    found = Measuring(lens, Gaps()).values([])
    assert found == []
    assert math.isnan(benchmark.metrics[0].value(Gaps().measure(lens)))  # not the correlation of the others
    assert Head("encoder", 0, 0) in lens.anatomy.heads


@pytest.mark.parametrize("kind", ["CHOICE", "ROLLING", "LAST_WORD", "WRITING"])
def test_answers_of_a_harness_task(tmp_path, kind):
    """lm_eval takes the likeliest of several NaN for an answer."""
    pytest.importorskip("lm_eval")
    lens = toytasks.lens_of()
    benchmark = open_benchmark(f"harness:{toytasks.task(tmp_path, getattr(toytasks, kind))}", lens)
    notnumbers.logits(lens.model, NAN)
    with pytest.raises(NotNumbersError, match=r"^The (logits of the next token|log-probability of)"):
        Measuring(lens, benchmark).baseline()
