"""Weights, heads and windows: models that are not what their config says."""

from __future__ import annotations

import pytest
import torch
import transformers
from transformers import masking_utils

import headlens
from headlens.checks.check import CHECKS
from support.families import ALL, build
from support.findings import failed, ok


def test_missing_weights(tmp_path):
    model = transformers.BertModel(build("bert").config)  # with its pooler
    model.save_pretrained(tmp_path)
    assert ok(headlens.load(str(tmp_path)), "weights") == "all 39 weights are there, and numbers"
    from safetensors.torch import load_file, save_file

    weights = load_file(tmp_path / "model.safetensors")
    gone = "encoder.layer.1.attention.self.key.weight"
    save_file(
        {k: v for k, v in weights.items() if k != gone}, tmp_path / "model.safetensors", {"format": "pt"}
    )
    lens = headlens.load(str(tmp_path), allow_random_weights=True)
    assert failed(lens, "weights") == f"the checkpoint lacks 1 weights, such as {gone}"
    no_pooler = {k: v for k, v in weights.items() if "pooler" not in k}
    save_file(no_pooler, tmp_path / "model.safetensors", {"format": "pt"})
    assert ok(headlens.load(str(tmp_path)), "weights") == (
        "all 37 weights are there, and numbers (but pooler.dense.bias and 1 more, which no head looks "
        "through: random)"
    )


def test_broken_weights_and_what_comes_of_them():
    model = build("bert")
    with torch.no_grad():
        model.bert.encoder.layer[1].attention.self.query.weight[9] = float("nan")  # width 8: head 1
    lens = headlens.load(model)
    assert "encoder.layer.1.attention.self.query.weight holds NaN" in failed(lens, "weights")
    assert failed(lens, "numbers") == "1 of 8 heads look at NaN, first 1.1"
    findings = headlens.check(lens)
    names = [one.name for one in findings]
    assert names == list(CHECKS)
    assert {one.name for one in findings if one.passed} == {"heads", "windows"}
    later = findings[names.index("numbers") + 1 :]  # each would blame masks, backends or the batch for it
    assert {one.passed for one in later} == {None}
    assert {one.said for one in later} == {"not made: it needs numbers, and the check numbers failed"}


def test_logits_that_are_no_numbers():
    model = build("bert")
    model.cls.predictions.transform.register_forward_hook(lambda m, x, y: y * float("nan"))
    n = 22 * model.config.vocab_size
    assert failed(model, "numbers") == f"no number where 0 states and {n} logits should be"


def test_a_config_that_lies_about_heads():
    model = build("llama")
    assert ok(model, "heads") == "2 layers have the heads and kv heads that the config says"
    model.config.num_key_value_heads = 4
    assert failed(model, "heads") == (
        "2 counts are not the config's: layer decoder.0 has 2 kv heads, its config says 4"
    )
    model.config.num_key_value_heads, model.config.num_attention_heads = 2, 8
    assert "layer decoder.0 has 4 heads, its config says 8" in failed(model, "heads")


def test_heads_of_both_sides():
    options = {**ALL["bart"][2], "decoder_attention_heads": 8}
    model = transformers.BartForConditionalGeneration(transformers.BartConfig(**options)).eval()
    assert ok(model, "heads") == "6 layers have the heads that the config says"
    model.config.decoder_attention_heads = 2
    assert "layer decoder.0 has 8 heads, its config says 2" in failed(model, "heads")


@pytest.mark.parametrize(
    ("family", "words"),
    [
        ("llama", "2 full layers see all"),
        ("mistral", "2 sliding layers see 3 tokens back"),
        ("gemma3", "1 sliding layer sees 3 tokens back, 1 full layer sees all"),
        ("gpt_oss", "1 sliding layer sees 3 tokens back, 1 full layer sees all"),
        ("modernbert", "2 full layers see all, 2 sliding layers see 2 tokens back"),
        ("t5", "6 full layers see all"),
    ],
)
def test_how_far_layers_see(family, words):
    assert ok(build(family), "windows") == words


def test_chunks():
    config = transformers.Llama4TextConfig(
        **{**ALL["llama"][2], "attention_chunk_size": 4, "intermediate_size_mlp": 48, "num_local_experts": 2},
        layer_types=["chunked_attention", "full_attention"],
    )
    torch.manual_seed(0)
    model = transformers.Llama4ForCausalLM(config).eval()
    assert ok(model, "windows") == "1 chunked layer sees 3 tokens back, 1 full layer sees all"


def test_a_window_that_is_off_by_one(monkeypatch):
    exact = masking_utils.sliding_window_causal_mask_function
    monkeypatch.setattr(masking_utils, "sliding_window_causal_mask_function", lambda size: exact(size + 1))
    assert failed(build("mistral"), "windows") == (
        "2 of 2 layers are wrong: layer decoder.0 sees 4 back and 0 ahead, its config says sliding (4 tokens)"
    )


def test_a_window_that_is_not_there(monkeypatch):
    from transformers.models.gemma3 import modeling_gemma3

    full = modeling_gemma3.create_causal_mask
    monkeypatch.setattr(modeling_gemma3, "create_sliding_window_causal_mask", full)
    assert "1 of 2 layers are wrong: layer decoder.0 sees all back" in failed(build("gemma3"), "windows")


def test_a_window_that_the_config_does_not_say(monkeypatch):
    near = masking_utils.sliding_window_causal_mask_function(5)
    monkeypatch.setattr(masking_utils, "causal_mask_function", near)
    said = failed(build("llama"), "windows")
    assert "layer decoder.0 sees 4 back and 0 ahead, its config says full" in said
