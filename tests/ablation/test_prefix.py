"""Prefix reuse changes no number, in any family, and computes less."""

from __future__ import annotations

import pytest
import torch

import headlens
from headlens.ablation.prefix import BLOCKS, HEADS, NOTHING, PROJECTIONS, Prefix
from headlens.model.lens import blocks_of, first_block
from headlens.model.replacements import gather
from support.families import ALL, BY_INTERFACE, batch, build


def logits(lens, inputs):
    with torch.inference_mode():
        return lens.model(
            **inputs, **({"use_cache": False} if "use_cache" in lens.model.config else {})
        ).logits


def inputs_of(lens):
    """Two batches, and one input alone."""
    whole = batch(lens.model)
    return [whole, {name: x[:1] for name, x in whole.items()}, {name: x[1:, :7] for name, x in whole.items()}]


def conditions(lens):
    """A head of every site, and heads of several."""
    heads = lens.anatomy.heads
    return [(site.heads[-1],) for site in lens.anatomy.sites] + [heads[::3], heads[-3:]]


@pytest.mark.parametrize("family", ALL)
@pytest.mark.parametrize("mode", ["zero", "mean", "resample"])
def test_outputs_are_the_same(family, mode):
    lens = headlens.load(build(family))
    inputs = inputs_of(lens)
    reference = gather(lens.seam, lambda: [logits(lens, x) for x in inputs], lens.anatomy.sites)
    expected = {}
    for heads in conditions(lens):
        with lens.ablate(heads, mode, reference):
            expected[heads] = [logits(lens, x) for x in inputs]
    prefix = Prefix(lens)
    with prefix.record(), lens.ablate(()):
        clean = [logits(lens, x) for x in inputs]
    blocks = blocks_of(lens)
    for heads in sorted(conditions(lens), key=lambda heads: first_block(blocks, heads)):
        with prefix.reuse(heads), lens.ablate(heads, mode, reference):
            for x, wanted in zip(inputs, expected[heads], strict=True):
                torch.testing.assert_close(logits(lens, x), wanted, atol=1e-6, rtol=1e-6)
    assert prefix.level == (PROJECTIONS if family in BY_INTERFACE and lens.anatomy.by_interface else BLOCKS)
    assert prefix.passes == prefix.reused == 3 * len(conditions(lens))
    for x, wanted in zip(inputs, clean, strict=True):  # and nothing stays behind
        torch.testing.assert_close(logits(lens, x), wanted, atol=1e-6, rtol=1e-6)
    assert not any("forward" in vars(module) for module in lens.model.modules())


@pytest.mark.parametrize("family", ["bert", "albert", "mistral", "t5"])
def test_uniform_patterns_are_the_same(family):
    lens = headlens.load(build(family))
    prefix = Prefix(lens)
    inputs = inputs_of(lens)
    with prefix.record():
        [logits(lens, x) for x in inputs]
    for heads in conditions(lens)[::-1]:  # down the model, too
        with lens.ablate(heads, "uniform"):
            expected = [logits(lens, x) for x in inputs]
        with prefix.reuse(heads, patterns=True), lens.ablate(heads, "uniform"):
            for x, wanted in zip(inputs, expected, strict=True):
                torch.testing.assert_close(logits(lens, x), wanted, atol=1e-6, rtol=1e-6)


def test_blocks_before_the_head_do_not_run():
    lens = headlens.load(build("bert"))
    prefix = Prefix(lens)
    inputs = batch(lens.model)
    with prefix.record():
        logits(lens, inputs)
    ran = []
    for index, layer in enumerate(lens.model.bert.encoder.layer):
        for name in (
            "attention.self.query",
            "attention.self.value",
            "attention.output.dense",
            "output.dense",
        ):
            module = layer.get_submodule(name)
            plain = module.forward
            module.forward = lambda x, plain=plain, what=(index, name): ran.append(what) or plain(x)
    heads = lens.anatomy.select("1.2")
    with prefix.reuse(heads), lens.ablate(heads):
        logits(lens, inputs)
        ran.clear()
        logits(lens, inputs)
    assert ran == [(1, "attention.output.dense"), (1, "output.dense")]


def test_unknown_inputs_run_in_full():
    lens = headlens.load(build("gpt2"))
    prefix = Prefix(lens)
    inputs = batch(lens.model)
    with prefix.record():
        logits(lens, inputs)
    other = {"input_ids": inputs["input_ids"].flip(1), "attention_mask": inputs["attention_mask"]}
    heads = lens.anatomy.select("1.2")
    with lens.ablate(heads):
        expected = logits(lens, other)
    with prefix.reuse(heads), lens.ablate(heads):
        assert torch.equal(logits(lens, other), expected)
        with torch.enable_grad():  # nor where gradients are wanted
            assert lens.model(**inputs).logits.requires_grad
    assert (prefix.passes, prefix.reused) == (2, 0)


def test_memory_is_bounded():
    lens = headlens.load(build("bert"))
    inputs = inputs_of(lens)
    heads = lens.anatomy.select("1.2")
    one = 3 * 11 * 32 * 4  # bytes of the first batch's states
    for memory, reused in ((10 * one, 3), (2 * one + 10, 1), (10, 0)):
        prefix = Prefix(lens, memory)
        with prefix.record():
            [logits(lens, x) for x in inputs]
        with lens.ablate(heads):
            expected = [logits(lens, x) for x in inputs]
        with prefix.reuse(heads), lens.ablate(heads):
            for x, wanted in zip(inputs, expected, strict=True):
                torch.testing.assert_close(logits(lens, x), wanted, atol=1e-6, rtol=1e-6)
        assert prefix.reused == reused
        assert sum(kept.size for kept in prefix._passes.values()) <= memory
    assert Prefix(lens, 0).level == NOTHING


@pytest.mark.parametrize(("gated", "level"), [("query", HEADS), ("block", NOTHING)])
def test_a_model_that_reads_more_than_its_blocks_hand_on(gated, level):
    """Attention that is gated by its query; a last block that reads what the first one left behind."""
    lens = headlens.load(build("llama"))
    first, last = lens.model.model.layers
    if gated == "query":
        for layer in (first, last):
            seen = {}
            layer.self_attn.q_proj.register_forward_hook(lambda _, __, out, seen=seen: seen.update(q=out))
            layer.self_attn.o_proj.register_forward_pre_hook(
                lambda _, taken, seen=seen: (taken[0] * torch.sigmoid(seen["q"]),)
            )
    else:
        left = {}
        plain, after = first.mlp.forward, last.mlp.forward
        first.mlp.forward = lambda x: left.update(x=x) or plain(x)
        last.mlp.forward = lambda x: after(x + left.pop("x", 0))
    prefix = Prefix(lens)
    inputs = inputs_of(lens)
    with prefix.record():
        [logits(lens, x) for x in inputs]
    for heads in conditions(lens):
        with lens.ablate(heads):
            expected = [logits(lens, x) for x in inputs]
        with prefix.reuse(heads), lens.ablate(heads):
            for x, wanted in zip(inputs, expected, strict=True):
                torch.testing.assert_close(logits(lens, x), wanted, atol=1e-6, rtol=1e-6)
    assert prefix.level == level
