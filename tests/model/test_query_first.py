"""A family whose W_O reads the query before the batch: FSMT's translators."""

from __future__ import annotations

import pytest
import torch
import transformers

import headlens
from headlens.errors import ModelError
from headlens.model.replacements import gather
from support.families import batch
from support.toytext import toy_tokenizer


@pytest.fixture
def lens():
    torch.manual_seed(0)
    sizes = {
        f"{side}_{what}": number
        for side in ("encoder", "decoder")
        for what, number in (("layers", 2), ("attention_heads", 4), ("ffn_dim", 48))
    }
    config = transformers.FSMTConfig(
        langs=["en", "de"],
        src_vocab_size=64,
        tgt_vocab_size=64,
        d_model=32,
        max_position_embeddings=64,
        tie_word_embeddings=False,
        **sizes,
    )
    model = transformers.FSMTForConditionalGeneration(config).eval()
    for parameter in model.parameters():
        if parameter.ndim == 2:
            torch.nn.init.normal_(parameter, 0, 0.2)
    return headlens.load(model, toy_tokenizer())


@torch.no_grad()
def logits(lens, inputs):
    return lens.model(**inputs, use_cache=False).logits


@torch.no_grad()
def taken(lens, inputs, part):
    """What W_O receives: [token, batch, head, width]."""
    seen = []
    layer = lens.model.get_submodule(part.projections.output)
    handle = layer.register_forward_pre_hook(lambda _, given: seen.append(given[0].unflatten(-1, (4, 8))))
    logits(lens, inputs)
    handle.remove()
    return seen[0]


@torch.no_grad()
def replaced(lens, inputs, part, head, new):
    """Logits when one head's slice is something else: `new` is [token, 1, width] or [width]."""

    def hook(_, given):
        heads = given[0].unflatten(-1, (4, 8)).clone()
        heads[:, :, head] = new
        return (heads.flatten(-2),)

    handle = lens.model.get_submodule(part.projections.output).register_forward_pre_hook(hook)
    found = logits(lens, inputs)
    handle.remove()
    return found


def rows_of(inputs):
    """Each input alone, without padding."""
    for row in range(len(inputs["input_ids"])):
        real = {name: inputs[name.replace("input_ids", "attention_mask")][row] != 0 for name in inputs}
        yield {name: inputs[name][row][real[name]][None] for name in inputs}


def test_the_dry_run_sees_it(lens):
    assert not any(part.batch_first for part in lens.anatomy.parts)
    assert lens.anatomy.stacks == ("encoder", "decoder", "cross")


@pytest.mark.parametrize("stack", ["encoder", "decoder", "cross"])
def test_mean_is_that_of_all_real_tokens(lens, stack):
    inputs = batch(lens.model)
    reference = gather(lens.seam, lambda: logits(lens, inputs), lens.anatomy.sites)
    part = [part for part in lens.anatomy.parts if part.site.stack == stack][-1]
    tokens = torch.cat([taken(lens, row, part)[:, 0] for row in rows_of(inputs)])  # [token, head, width]
    assert reference.tokens[part.site] == len(tokens)
    torch.testing.assert_close(reference.means[part.site], tokens.double().mean(dim=0), atol=1e-6, rtol=1e-4)
    with lens.ablate(f"{stack}.1.2", "mean", reference):
        found = logits(lens, inputs)
    expected = replaced(lens, inputs, part, 2, tokens[:, 2].mean(dim=0))
    torch.testing.assert_close(found, expected, atol=1e-5, rtol=1e-4)
    assert not torch.allclose(logits(lens, inputs), expected, atol=1e-4)


@pytest.mark.parametrize("stack", ["encoder", "decoder", "cross"])
def test_resample_is_the_output_on_another_input(lens, stack):
    inputs = batch(lens.model)
    rows = list(rows_of(inputs))
    reference = gather(lens.seam, lambda: logits(lens, inputs), lens.anatomy.sites, seed=2)
    part = [part for part in lens.anatomy.parts if part.site.stack == stack][-1]
    outputs = [taken(lens, row, part)[:, :, 1] for row in rows]  # [token, 1, width] of each input
    for index, row in enumerate(rows):
        with lens.ablate(f"{stack}.1.1", "resample", reference):
            found = logits(lens, row)
        length, close = len(outputs[index]), 0
        for other in set(range(3)) - {index}:
            new = outputs[other].repeat(-(-length // len(outputs[other])), 1, 1)[:length]
            close += torch.allclose(found, replaced(lens, row, part, 1, new), atol=1e-4, rtol=1e-3)
        assert close == 1


def test_contributions_are_refused(lens):
    with pytest.raises(ModelError, match="the query before the batch"):
        lens.contributions("the cat", target="the dog")
