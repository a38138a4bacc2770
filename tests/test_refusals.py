"""Models that would be half measured are refused by name; odd ones that can be served are right."""

from __future__ import annotations

import pytest
import torch
import transformers
from torch import nn

import headlens
from headlens.errors import ModelError
from support.families import VOCAB, batch, build

SMALL = {
    "vocab_size": VOCAB,
    "hidden_size": 32,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "intermediate_size": 48,
    "max_position_embeddings": 64,
}
LONG = {
    "vocab_size": VOCAB,
    "d_model": 32,
    "d_kv": 8,
    "d_ff": 48,
    "num_layers": 2,
    "num_heads": 4,
    "decoder_start_token_id": 0,
}


@pytest.mark.parametrize(
    ("name", "options", "message"),
    [
        ("ConvBert", {**SMALL, "embedding_size": 16}, "joins its heads cannot be seen"),
        ("DiffLlama", {**SMALL, "num_key_value_heads": 4}, "attends 4 times in 2 layers, more than once"),
        ("LongT5", LONG, "The attention of LongT5Model's encoder cannot be seen."),
        ("Funnel", {"vocab_size": VOCAB, "d_model": 32, "n_head": 4, "d_head": 8}, "FunnelModel"),
    ],
)
def test_refused_by_name(name, options, message):
    config = getattr(transformers, f"{name}Config")(**options)
    model = getattr(transformers, f"{name}Model")(config).eval()
    with pytest.raises(ModelError, match=message):
        assert headlens.load(model).anatomy


def test_something_else_than_a_model():
    with pytest.raises(ModelError) as error:
        headlens.load(nn.Linear(2, 2))
    assert str(error.value) == (
        "Expected a model of transformers or a name, found Linear. Give the transformers model itself: of a "
        "PEFT model, model.base_model.model."
    )


@torch.no_grad()
@pytest.mark.parametrize("kind", ["BertLMHeadModel", "GPT2LMHeadModel"])
def test_a_decoder_that_looks_at_the_states_of_another_model(kind):
    torch.manual_seed(0)
    name = kind.partition("LM")[0]
    config = getattr(transformers, f"{name}Config")(
        vocab_size=VOCAB, hidden_size=32, num_hidden_layers=2, num_attention_heads=4, add_cross_attention=True
    )
    config.is_decoder = True
    config._attn_implementation = "eager"
    model = getattr(transformers, kind)(config).eval()
    lens = headlens.load(model)
    assert lens.anatomy.stacks == ("decoder", "cross")
    inputs = {"input_ids": torch.arange(3, 9)[None], "encoder_hidden_states": torch.randn(1, 5, 32)}
    maps = model(**inputs, output_attentions=True)
    found = lens.patterns(**inputs)
    own = [pattern for site, pattern in found.items() if site.stack == "decoder"]
    cross = [pattern for site, pattern in found.items() if site.stack == "cross"]
    for mine, expected in ((own, maps.attentions), (cross, maps.cross_attentions)):
        assert len(mine) == len(expected)
        for one, two in zip(mine, expected, strict=True):
            torch.testing.assert_close(one, two, atol=1e-6, rtol=0)
    alone = lens.patterns(input_ids=inputs["input_ids"])  # then its cross-attention does not run
    assert {site.stack for site in alone} == {"decoder"}


@torch.no_grad()
def test_a_layer_that_is_replaced_is_found_again():
    lens, other = headlens.load(build("llama")), build("llama", seed=1)
    inputs = batch(lens.model)
    assert len(lens.patterns(**inputs)) == 2
    lens.model.model.layers[0] = other.model.layers[0]
    plain = lens.model(**inputs).logits
    assert len(lens.patterns(**inputs)) == 2
    with lens.ablate("0.*"):
        assert (lens.model(**inputs).logits - plain).abs().max() > 1e-4


@torch.no_grad()
def test_albert_layers_after_an_exception_in_the_body_of_the_model():
    lens = headlens.load(build("albert"))
    inputs = batch(lens.model)
    seen = []

    def fail_once(site, block):
        seen.append(site.layer)
        if len(seen) == 2:
            raise KeyboardInterrupt

    with lens.observe(fail_once):
        with pytest.raises(KeyboardInterrupt):
            lens.run(inputs)
        lens.run(inputs)
    assert seen == [0, 1, 0, 1, 2]


@torch.no_grad()
def test_observing_twice_through_hooks():
    lens = headlens.load(build("bloom"))
    inputs = batch(lens.model)
    calls = []
    with lens.observe(lambda site, block: calls.append("outer")):
        with lens.ablate("0.1"), lens.observe(lambda site, block: calls.append("inner")):
            lens.model(**inputs)
        lens.model(**inputs)
    assert calls.count("inner") == 2
    assert calls.count("outer") == 4


@torch.no_grad()
def test_ablation_through_hooks_keeps_the_backend():
    lens = headlens.load(build("falcon", "sdpa"))
    inputs = batch(lens.model)
    plain = lens.model(**inputs).logits
    with lens.ablate([]):
        assert torch.equal(lens.model(**inputs).logits, plain)
        assert lens.model.config._attn_implementation == "sdpa"


@torch.no_grad()
def test_patterns_of_an_unknown_attention_function_are_refused():
    from transformers import AttentionInterface
    from transformers.integrations.sdpa_attention import sdpa_attention_forward

    def louder(*arguments, **options):
        output, weights = sdpa_attention_forward(*arguments, **options)
        return 1.5 * output, weights

    AttentionInterface.register("louder", louder)
    model = build("llama")
    model.set_attn_implementation("louder")
    lens, inputs = headlens.load(model), batch(model)
    plain = model(**inputs).logits
    with pytest.raises(ModelError) as error:
        lens.patterns(**inputs)
    assert str(error.value) == (
        "The attention function 'louder' is not one of transformers' own, so its patterns cannot be told. "
        "Observe under model.set_attn_implementation('eager')."
    )
    with lens.ablate([]):
        assert torch.equal(model(**inputs).logits, plain)


@torch.no_grad()
def test_a_model_whose_own_code_works_on_its_mask():
    torch.manual_seed(0)
    config = transformers.DogeConfig(**SMALL, num_key_value_heads=4, keep_window_size=64)
    config._attn_implementation = "eager"
    model = transformers.DogeForCausalLM(config).eval()
    lens, inputs = headlens.load(model), {"input_ids": torch.arange(3, 12)[None]}
    assert lens.anatomy.dense_masks
    expected = model(**inputs, output_attentions=True)
    for mine, own in zip(lens.patterns(**inputs).values(), expected.attentions, strict=True):
        torch.testing.assert_close(mine, own, atol=1e-6, rtol=0)
