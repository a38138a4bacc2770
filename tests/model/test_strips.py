"""Masks as views of one strip, against those that `transformers` makes."""

from __future__ import annotations

import pytest
import torch
from transformers.masking_utils import (
    bidirectional_mask_function,
    causal_mask_function,
    sliding_window_causal_mask_function,
)

import headlens
from headlens.model.attention_call import Strip, additive, lazy_mask
from headlens.model.heads import Site
from support.families import VOCAB, build

CAUSAL = {"mask_function": causal_mask_function, "q_length": 12, "kv_length": 12, "batch_size": 2}
OPEN = {"mask_function": bidirectional_mask_function, "q_length": 12, "kv_length": 7, "batch_size": 2}
SINGLE, HALF = torch.empty(0), torch.empty(0, dtype=torch.float16)  # queries: only their type matters


@pytest.mark.parametrize("padding", [False, True])
@pytest.mark.parametrize("arguments", [CAUSAL, OPEN], ids=["causal", "open"])
def test_blocks_are_those_of_the_whole_mask(arguments, padding):
    real = torch.ones(2, arguments["kv_length"], dtype=torch.bool)
    mask = lazy_mask(**arguments, attention_mask=real if padding else None)
    assert Strip.of({**arguments, "attention_mask": real})
    for start, stop in ((3, 4), (0, 2), (2, 4), (9, 12), (0, 12), (4, 5), (11, 12)):  # also higher ones later
        expected = mask.visible(start, stop)  # as transformers makes it
        reach = mask.reach(start, stop)
        assert reach == 1 + int(expected.any(dim=2)[0, 0].nonzero()[-1])
        for n_keys in (reach, arguments["kv_length"]):
            visible, added = mask.block(start, stop, n_keys, SINGLE)
            assert torch.equal(visible, expected[..., :n_keys])
            assert torch.equal(added, additive(expected[..., :n_keys], torch.float32))
            assert mask.block(start, stop, n_keys, SINGLE)[0] is visible  # all layers share it
    single = {**arguments, "q_length": 1, "kv_length": 1}
    assert bool(lazy_mask(**single).block(0, 1, 1, SINGLE)[0].all())
    assert mask.block(0, 2, 2, HALF)[1].min() == torch.finfo(torch.float16).min or arguments is OPEN


def test_what_is_stored_does_not_grow_with_the_square():
    strip = Strip(True, 1, 10_000, "cpu")
    visible, added = strip.block(9_000, 9_010, 9_010, torch.float32)
    assert visible.untyped_storage().nbytes() == 10 * 2 * 10_000
    assert added.untyped_storage().nbytes() == 10 * 2 * 10_000 * 4


@pytest.mark.parametrize(
    "change",
    [
        {"attention_mask": torch.tensor([[True] * 12, [True] * 11 + [False]])},
        {"attention_mask": torch.ones(2, 11, dtype=torch.bool)},  # what is missing is padding
        {"attention_mask": torch.ones(2, 12, dtype=torch.bool, device="meta")},
        {"q_offset": 3},
        {"kv_offset": 3},
        {"q_offset": torch.tensor(0)},
        {"q_length": 5},
        {"mask_function": sliding_window_causal_mask_function(4)},
        {"mask_function": None},
    ],
    ids=[
        "padding",
        "a short mask",
        "an unknown mask",
        "later queries",
        "later keys",
        "an unknown offset",
        "fewer queries",
        "a window",
        "no function",
    ],
)
def test_other_masks_have_none(change):
    assert Strip.of({**CAUSAL, **change}) is None


def test_padding_and_windows_are_masked_as_before():
    real = torch.ones(2, 12, dtype=torch.bool)
    real[1, 8:] = False
    for arguments in (
        {**CAUSAL, "attention_mask": real},
        {**CAUSAL, "mask_function": sliding_window_causal_mask_function(4)},
    ):
        mask = lazy_mask(**arguments)
        visible, added = mask.block(5, 9, 9, SINGLE)
        assert torch.equal(visible, mask.visible(5, 9)[..., :9])
        assert torch.equal(added == 0, visible)


@torch.no_grad()
@pytest.mark.parametrize("masked", [False, True], ids=["without a mask", "with a mask of ones"])
@pytest.mark.parametrize("family", ["bert", "modernbert", "gpt2", "llama", "mistral", "gpt_oss"])
def test_patterns_of_inputs_without_padding_are_the_models_own(family, masked):
    model, lens = build(family, "eager"), headlens.load(build(family))
    ids = torch.randint(3, VOCAB, (2, 11), generator=torch.Generator().manual_seed(0))
    inputs = {"input_ids": ids, **({"attention_mask": torch.ones_like(ids)} if masked else {})}
    own = model(**inputs, output_attentions=True)
    for size in (1, 4, 11):
        parts: dict[Site, list[torch.Tensor]] = {}

        def keep(site, block, parts=parts):
            pad = (0, block.n_keys - block.pattern.shape[-1])
            parts.setdefault(site, []).append(torch.nn.functional.pad(block.pattern, pad))

        with lens.observe(keep, block_size=size):
            torch.testing.assert_close(lens.model(**inputs).logits, own.logits, atol=1e-5, rtol=0)
        for blocks, expected in zip(parts.values(), own.attentions, strict=True):
            torch.testing.assert_close(torch.cat(blocks, dim=2), expected, atol=1e-6, rtol=0)
