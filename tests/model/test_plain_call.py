"""The textbook's attention in the place of a model's own function: only where it computes the same."""

from __future__ import annotations

from contextlib import contextmanager

import pytest
import torch
from transformers.models.llama import modeling_llama

import headlens
from headlens.model import seam as by_interface
from headlens.model.attention_call import PlainCall, plain_where_equal
from support.families import BY_INTERFACE, batch, build, goes_through_the_interface

OWN = {"t5", "gpt_oss"}  # position biases, sinks


@contextmanager
def watched(monkeypatch):
    """Collect what each call of more than one block became."""
    became = []

    def choose(call):
        became.append(plain_where_equal(call))
        return became[-1]

    monkeypatch.setattr(by_interface, "plain_where_equal", choose)
    yield became


def became_plain(monkeypatch, model, **options):
    """Which calls the textbook computes while a model is observed in blocks of three queries."""
    lens = headlens.load(model)
    with watched(monkeypatch) as became, lens.observe(lambda site, block: None, block_size=3):
        model(**batch(model), **options)
    return [isinstance(call, PlainCall) for call in became]


@torch.no_grad()
@pytest.mark.parametrize("family", [name for name in BY_INTERFACE if goes_through_the_interface(name)])
def test_families_that_differ_keep_their_own(family, monkeypatch):
    found = became_plain(monkeypatch, build(family))
    assert found
    assert set(found) == {family not in OWN}


@torch.no_grad()
def test_the_textbook_and_the_models_own_give_the_same(monkeypatch):
    model = build("llama")
    shown = []
    for choose in (plain_where_equal, lambda call: call):
        monkeypatch.setattr(by_interface, "plain_where_equal", choose)
        parts = []
        with headlens.load(model).observe(lambda s, b, p=parts: p.append(b.pattern), block_size=4):
            parts.append(model(**batch(model, left=True)).logits)
        shown.append(parts)
    for mine, own in zip(*shown, strict=True):
        torch.testing.assert_close(mine, own, atol=1e-6 if mine.ndim == 4 else 1e-5, rtol=0)


def own_function(change):
    """Llama's eager attention with logits, or the pattern, changed on the way."""

    def eager_attention_forward(module, query, key, value, attention_mask, scaling, dropout=0.0, **_):
        key, value = (modeling_llama.repeat_kv(x, module.num_key_value_groups) for x in (key, value))
        logits = change["logits"](query @ key.transpose(2, 3) * scaling)
        if attention_mask is not None:
            logits = logits + attention_mask
        pattern = change["pattern"](logits.softmax(-1))
        return (pattern @ value).transpose(1, 2).contiguous(), pattern

    return eager_attention_forward


SAME = {"logits": lambda x: x, "pattern": lambda x: x}
CHANGES = {
    "soft cap": {"logits": lambda x: 50 * torch.tanh(x / 50)},
    "clipping": {"logits": lambda x: x.clamp(-20, 20)},
    "temperatures of heads": {"logits": lambda x: x * torch.tensor([1, 1, 1, 1.01]).view(4, 1, 1)},
    "a sink": {"pattern": lambda x: x * 0.999},
}


@torch.no_grad()
@pytest.mark.parametrize("name", ["nothing", *CHANGES])
def test_a_function_that_differs_is_found_out(name, monkeypatch):
    function = own_function({**SAME, **CHANGES.get(name, {})})
    monkeypatch.setattr(modeling_llama, "eager_attention_forward", function)
    assert set(became_plain(monkeypatch, build("llama"))) == {name == "nothing"}


@torch.no_grad()
def test_what_the_textbook_does_not_know_is_left_to_the_model(monkeypatch):
    def eager_attention_forward(module, query, key, value, attention_mask, scaling, softcap=None, **_):
        return own_function(SAME)(module, query, key, value, attention_mask, scaling)

    monkeypatch.setattr(modeling_llama, "eager_attention_forward", eager_attention_forward)
    model = build("llama")
    assert set(became_plain(monkeypatch, model)) == {True}
    own = modeling_llama.LlamaAttention.forward

    def forward(self, *arguments, **named):
        return own(self, *arguments, **named, softcap=30.0)

    monkeypatch.setattr(modeling_llama.LlamaAttention, "forward", forward)
    assert set(became_plain(monkeypatch, model)) == {False}


def test_gradients_and_lower_precision_are_left_to_the_model(monkeypatch):
    assert set(became_plain(monkeypatch, build("llama"))) == {False}  # weights ask for gradients
    with torch.no_grad():
        assert set(became_plain(monkeypatch, build("llama").to(torch.bfloat16))) == {False}
        with torch.autocast("cpu", torch.bfloat16):
            assert set(became_plain(monkeypatch, build("llama"))) == {False}


def test_gradients_pass_through_blocks():
    model = build("llama")
    for parameter in model.parameters():
        parameter.requires_grad_(True)
    inputs = batch(model)
    with headlens.load(model).observe(lambda site, block: None, block_size=3):
        model(**inputs).logits.sum().backward()
    blocks = [p.grad.clone() for p in model.parameters() if p.grad is not None]
    model.zero_grad()
    model(**inputs).logits.sum().backward()
    whole = [p.grad for p in model.parameters() if p.grad is not None]
    for mine, own in zip(blocks, whole, strict=True):
        torch.testing.assert_close(mine, own, atol=1e-4, rtol=1e-3)
