"""Rows, causality and evenness: models whose patterns are broken."""

from __future__ import annotations

import pytest
import torch
from transformers import masking_utils
from transformers.models.bert import modeling_bert
from transformers.models.gpt_oss import modeling_gpt_oss
from transformers.models.llama import modeling_llama

import headlens
from headlens.checks.inputs import Subject
from support.families import build
from support.findings import failed, ok


def scaled(function, by: float):
    def eager(*arguments, **options):
        output, weights = function(*arguments, **options)
        return output, weights * by

    return eager


@pytest.mark.parametrize("by", [0.9, 1.1])
def test_rows_that_do_not_sum_to_1(monkeypatch, by):
    monkeypatch.setattr(
        modeling_bert, "eager_attention_forward", scaled(modeling_bert.eager_attention_forward, by)
    )
    model = build("bert")
    for layer in model.bert.encoder.layer:  # a number for each head is no sink by itself
        layer.attention.self.register_parameter("scale", torch.nn.Parameter(torch.ones(4)))
    assert failed(model, "rows") == "rows sum to 1: largest difference 0.1, allowed 1e-05"


def test_sinks(monkeypatch):
    model = build("gpt_oss")
    lens = headlens.load(model)
    kept = [parameter.clone() for name, parameter in model.named_parameters() if name.endswith("sinks")]
    said = ok(lens, "rows")
    subject = Subject(lens)
    sums = torch.cat(
        [
            pattern.sum(-1).flatten()
            for ids in (source.encoded.inputs["input_ids"] for source, _ in subject.pairs)
            for pattern in lens.patterns(input_ids=torch.tensor([ids])).values()
        ]
    )
    assert f"less the sinks' share ({(1 - sums).min():.2g} to {(1 - sums).max():.2g})" in said
    after = [parameter for name, parameter in model.named_parameters() if name.endswith("sinks")]
    assert all(map(torch.equal, kept, after))
    eager = modeling_gpt_oss.eager_attention_forward
    monkeypatch.setattr(modeling_gpt_oss, "eager_attention_forward", scaled(eager, 0.9))
    assert failed(build("gpt_oss"), "rows").startswith("rows sum to 1: largest difference")


def test_a_mask_that_leaks(monkeypatch):
    exact = modeling_llama.create_causal_mask

    def leaking(*arguments, **options):
        return exact(*arguments, **options, or_mask_function=lambda b, h, q, k: (q == 3) & (k == 4))

    monkeypatch.setattr(modeling_llama, "create_causal_mask", leaking)
    assert "layer decoder.0 gives a later token the weight 0." in failed(build("llama"), "causality")


def test_a_causal_model_that_looks_both_ways(monkeypatch):
    monkeypatch.setattr(modeling_llama, "create_causal_mask", modeling_llama_both_ways)
    said = failed(build("llama"), "causality")
    assert said == "layer encoder.0 calls itself causal and sees later tokens"
    model = build("llama")
    model.config.is_causal = False  # as it was meant
    assert "layers that look both ways" in ok(model, "causality")


def modeling_llama_both_ways(**options):
    options.pop("position_ids", None)
    return masking_utils.create_bidirectional_mask(**options)


def test_a_leak_beside_attention():
    model = build("gpt2")
    assert "changes earlier states by 0" in ok(model, "causality")
    model.transformer.h[0].mlp.register_forward_hook(lambda m, x, y: y + 0.1 * y.mean(1, keepdim=True))
    said = failed(model, "causality")
    assert "causal layers give later tokens no weight; another last token changes earlier states" in said


def test_an_encoder_that_does_not_look_ahead(monkeypatch):
    exact = modeling_bert.eager_attention_forward

    def backwards(*arguments, **options):
        output, weights = exact(*arguments, **options)
        return output, weights.tril()

    monkeypatch.setattr(modeling_bert, "eager_attention_forward", backwards)
    said = failed(build("bert"), "causality")
    assert said == "layer encoder.0, which is not causal, gives later tokens no weight"


def test_both_stacks():
    said = ok(build("bart"), "causality")
    assert "look both ways" in said
    assert "causal layers give later tokens no weight" in said


def test_uniform_patterns():
    model = build("bert")
    with torch.no_grad():
        for layer in model.bert.encoder.layer:
            layer.attention.self.query.weight.zero_()
            layer.attention.self.query.bias.zero_()
    assert failed(model, "evenness") == (
        "the least even head, 0.0, has 1.00 of the largest entropy, allowed 0.95"
    )
    with torch.no_grad():
        model.bert.encoder.layer[1].attention.self.query.weight[8:16].normal_(0, 1)
    assert "the least even head, 1.1, has" in ok(model, "evenness")
