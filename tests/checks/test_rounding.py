"""How far numbers may lie apart: by how much the model itself makes more of a rounding error."""

from __future__ import annotations

import pytest
import torch
import transformers

import headlens
from headlens.checks.inputs import Subject, amplified, gap, last_place, look, rounding
from support.families import build


def amplification(model) -> float:
    lens = headlens.load(model)
    with torch.no_grad(), lens.seam.alone():
        return Subject(lens).rounding


@pytest.mark.parametrize(("dtype", "least"), [("float64", 1e-5), ("float16", 2**-7), ("bfloat16", 2**-4)])
def test_other_precisions(dtype, least):
    assert rounding(headlens.load(build("gpt2").to(getattr(torch, dtype)))) == least


def mobilebert(seed: int):
    """A model without norms, in which numbers grow from layer to layer."""
    torch.manual_seed(seed)
    sizes = {"hidden_size": 32, "num_hidden_layers": 2, "intermediate_size": 48, "embedding_size": 16}
    config = transformers.MobileBertConfig(vocab_size=61, num_attention_heads=4, **sizes)
    model = transformers.MobileBertModel(config).eval()
    with torch.no_grad():
        for name, weight in model.named_parameters():
            if weight.ndim > 1 and "embed" not in name:
                weight.normal_(0, 0.2)
    return model


@pytest.mark.parametrize("seed", range(4))
def test_a_model_that_makes_more_of_rounding(seed):
    lens = headlens.load(mobilebert(seed))
    with torch.no_grad(), lens.seam.alone():
        subject = Subject(lens)
        together = look(lens, subject.together)
        gaps = [gap(alone, together, row) for row, alone in enumerate(subject.alone)]
        figure = max(max(one.weights.values()) for one in gaps)
        assert 1e-5 < figure <= subject.rounding <= 1e-4 * (1 + 1e-9)
    assert amplification(build("gpt2")) == 1e-5


def test_a_model_that_draws_at_random_is_not_taken_for_one_that_rounds():
    model = build("bert")
    model.bert.encoder.layer[0].register_forward_hook(lambda m, x, y: y + 0.01 * torch.randn_like(y))
    assert amplification(model) == pytest.approx(1e-4)
    failed = {one.name for one in headlens.check(headlens.load(model)) if one.passed is False}
    assert {"observing", "no-op", "padding", "batch", "own-patterns", "ablation"} <= failed


@pytest.mark.parametrize("family", ["t5", "bart", "roberta"])
def test_embeddings_are_changed_in_every_family(family):
    lens = headlens.load(build(family))
    with torch.no_grad(), lens.seam.alone():
        seen = Subject(lens).alone[-1]
        hooks = [len(module._forward_hooks) for module in lens.model.modules()]
        amplified(lens, seen)
        assert [len(module._forward_hooks) for module in lens.model.modules()] == hooks
        with last_place(lens.model):
            changed = gap(seen, look(lens, seen.fed), row=0)
    assert all(changed.weights.values())
    assert max(changed.weights.values()) < 1e-5
