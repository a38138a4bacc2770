"""The weights of single heads: right slices in every family, and what is computed of them."""

import math

import numpy as np
import pytest
import torch
from torch import nn
from torch.testing import assert_close
from transformers import LlamaConfig, LlamaForCausalLM

import headlens
from headlens.errors import ModelError, SelectorError
from headlens.model.attention_call import route
from headlens.model.heads import Head
from headlens.model.weights import Factored, layouts, output_matrix
from support import families, planted


def reading(lens, inputs):
    """What each site's projections read and its attention received, in the order of the sites."""
    calls, inputs_of = [], {}
    paths = {path for part in lens.anatomy.parts for path in part.projections.paths}
    handles = [
        lens.model.get_submodule(path).register_forward_pre_hook(
            lambda module, arguments, path=path: inputs_of.setdefault(path, []).append(arguments[0])
        )
        for path in paths
    ]

    def attend(call):
        calls.append((call.query, call.key, call.value, {p: list(x)[-1] for p, x in inputs_of.items()}))
        return call.plain()

    with torch.no_grad(), route(lens.model, attend):
        lens.model(**inputs)
    for handle in handles:
        handle.remove()
    return calls


@pytest.mark.parametrize("family", families.BY_INTERFACE)
def test_slices_make_the_values_that_attention_received(family):
    lens = headlens.load(families.build(family))
    calls = reading(lens, families.batch(lens.model))
    for part, (_, _, value, inputs_of) in zip(lens.anatomy.parts, calls, strict=True):
        for head in part.site.heads:
            mine = lens.weights(head)
            x = inputs_of[part.projections.value[0]]
            found = x @ mine.value + (0 if mine.value_bias is None else mine.value_bias)
            group = part.site.n_heads // part.site.n_kv_heads
            assert_close(found, value[:, head.head // group], atol=1e-5, rtol=1e-5)


@pytest.mark.parametrize("family", [f for f in families.BY_INTERFACE if f not in ("qwen3", "gemma3")])
def test_slices_make_the_queries_and_keys_of_the_first_token(family):
    """At position 0 a rotary embedding turns nothing."""
    lens = headlens.load(families.build(family))
    calls = reading(lens, families.batch(lens.model))
    for part, (query, key, _, inputs_of) in zip(lens.anatomy.parts, calls, strict=True):
        group = part.site.n_heads // part.site.n_kv_heads
        for head in part.site.heads:
            mine = lens.weights(head)
            for role, made, number in (("query", query, head.head), ("key", key, head.head // group)):
                x = inputs_of[getattr(part.projections, role)[0]][:, 0]
                bias = getattr(mine, f"{role}_bias")
                found = x @ getattr(mine, role) + (0 if bias is None else bias)
                expected = made[:, number, 0]
                scale = (found.norm() / expected.norm()).item()  # OPT, BART and YaRN scale here
                assert_close(found / scale, expected, atol=1e-5, rtol=1e-4)
                assert family in ("opt", "bart", "marian", "gpt_oss") or scale == pytest.approx(1, abs=1e-4)


@pytest.mark.parametrize("family", ["bloom", "falcon", "gpt_neo", "deberta_v2", "mpnet"])
def test_hook_families_by_changing_weights(family):
    """Only a head's own rows change its pattern (query, key) or what it puts out (value)."""
    lens = headlens.load(families.build(family))
    inputs = {name: x[:1] for name, x in families.batch(lens.model).items()}
    before = lens.patterns(**inputs), outputs(lens, inputs)
    for part in lens.anatomy.parts[:1]:
        layout = layouts(lens)[part.site]
        for role, places in zip(("query", "key", "value"), layout.roles, strict=True):
            layer = lens.model.get_submodule(places.layer)
            for number, rows in enumerate(places.rows):
                kept = layer.weight.detach().clone()
                with torch.no_grad():
                    layer.weight[rows] += torch.randn_like(layer.weight[rows])
                patterns, written = lens.patterns(**inputs)[part.site], outputs(lens, inputs)[part.site]
                layer.weight.data.copy_(kept)
                group = 1 if role == "query" else part.site.n_heads // part.site.n_kv_heads
                mine = set(range(number * group, (number + 1) * group))
                looks = changed(patterns, before[0][part.site], (0, 2, 3))
                writes = changed(written, before[1][part.site], (0, 1, 3))
                assert (looks, writes) == (set() if role == "value" else mine, mine)


def outputs(lens, inputs):
    found = {}

    def keep(site, output):
        found[site] = output.detach().clone()
        return output

    with torch.no_grad(), lens.edit(keep):
        lens.model(**inputs)
    return found


def changed(one, other, dims):
    return {int(i) for i in ((one - other).abs().amax(dims) > 1e-6).nonzero()[:, 0]}


@pytest.mark.parametrize("family", families.ALL)
def test_outputs_are_rows_of_w_o(family):
    lens = headlens.load(families.build(family))
    for part in lens.anatomy.parts:
        whole = torch.cat([lens.weights(head).output for head in part.site.heads])
        assert_close(whole, output_matrix(lens.model.get_submodule(part.projections.output)).detach())


class TestFactored:
    def test_spectra_are_those_of_the_whole_matrix(self):
        generator = torch.Generator().manual_seed(0)
        left, right = (torch.randn(s, generator=generator).double() for s in ((9, 3), (3, 9)))
        product = Factored(left, right)
        whole = product.matrix().numpy()
        assert product.shape == (9, 9)
        assert_close(product.singular_values(), torch.tensor(np.linalg.svd(whole)[1][:3]), atol=1e-9, rtol=0)
        expected = np.linalg.eigvals(whole)
        expected = expected[np.argsort(-np.abs(expected))][:3]
        assert np.allclose(np.sort_complex(product.eigenvalues().numpy()), np.sort_complex(expected))
        assert product.copying_score() == pytest.approx(expected.sum().real / np.abs(expected).sum())

    def test_only_square_ones_have_eigenvalues(self):
        product = Factored(torch.ones(4, 2), torch.ones(2, 5))
        assert len(product.singular_values()) == 2
        with pytest.raises(ValueError, match=r"the shape \(4, 5\)"):
            product.eigenvalues()

    def test_a_map_to_nothing_has_no_copying_score(self):
        assert math.isnan(Factored(torch.zeros(4, 2), torch.ones(2, 4)).copying_score())


def ov_llama(sign):
    """A Llama whose tokens are orthonormal and whose heads write what they read, or its opposite."""
    config = LlamaConfig(
        vocab_size=16,
        hidden_size=16,
        num_hidden_layers=1,
        num_attention_heads=2,
        intermediate_size=8,
        pad_token_id=0,
    )
    model = LlamaForCausalLM(config)
    attention = model.model.layers[0].self_attn
    with torch.no_grad():
        model.model.embed_tokens.weight.copy_(torch.eye(16))
        model.lm_head.weight.copy_(torch.eye(16))
        attention.v_proj.weight.copy_(torch.eye(16))
        attention.o_proj.weight.copy_(sign * torch.eye(16))
    return headlens.load(model)


@pytest.mark.parametrize("sign", [1, -1])
def test_copying_of_plus_and_minus_identity(sign):
    head = ov_llama(sign).weights("0.1")
    assert head.ov.copying_score() == pytest.approx(sign)
    assert head.copying_score == pytest.approx(sign)


@pytest.mark.parametrize("family", ["gpt2", "llama"])
def test_the_way_from_token_to_token(family):
    """The circuit is what the model's own modules do to one token, but for the norms' scales."""
    lens = headlens.load(families.build(family))
    model = lens.model
    with torch.no_grad():
        for parameter in model.parameters():
            if parameter.ndim == 1:
                parameter.copy_(torch.rand_like(parameter) + 0.5)
    head = lens.weights("1.2")
    before, after = {
        "gpt2": ("transformer.h.1.ln_1", "transformer.ln_f"),
        "llama": ("model.layers.1.input_layernorm", "model.norm"),
    }[family]

    def linear(norm, states):
        centred = isinstance(norm, nn.LayerNorm)
        return (states - states.mean(-1, keepdim=True) * centred) * norm.weight

    with torch.no_grad():
        read = linear(model.get_submodule(before), model.get_input_embeddings().weight) @ head.value
        logits = linear(model.get_submodule(after), read @ head.output) @ model.lm_head.weight.T
    assert_close(head.token_ov.matrix(), logits, atol=1e-5, rtol=1e-3)
    found = np.linalg.eigvals(logits.double().numpy())
    assert head.copying_score == pytest.approx(found.sum().real / np.abs(found).sum(), abs=1e-4)


def test_an_embedding_is_read_through_the_norm_behind_it():
    """BLOOM norms its embeddings before the first layer; GPT-2 and Llama do not."""
    model = families.build("bloom")
    with torch.no_grad():
        for parameter in model.parameters():
            if parameter.ndim == 1:
                parameter.copy_(torch.rand_like(parameter) + 0.5)
    head = headlens.load(model).weights("1.2")
    body, layer = model.transformer, model.transformer.h[1]
    with torch.no_grad():
        states = body.word_embeddings_layernorm(body.word_embeddings.weight)
        read = (states - states.mean(-1, keepdim=True)) * layer.input_layernorm.weight @ head.value
        written = read @ head.output
        logits = (written - written.mean(-1, keepdim=True)) * body.ln_f.weight @ model.lm_head.weight.T
    assert_close(head.token_ov.matrix(), logits, atol=1e-5, rtol=1e-3)
    found = np.linalg.eigvals(logits.double().numpy())
    assert head.copying_score == pytest.approx(found.sum().real / np.abs(found).sum(), abs=1e-4)


def test_bert_has_no_way_from_token_to_token():
    head = headlens.load(families.build("bert")).weights("0.1")
    assert head.token_ov is None
    assert math.isnan(head.copying_score)
    assert -1 <= head.ov.copying_score() <= 1


def test_scores_are_made_by_qk():
    """Without biases and turning, x W_Q W_K^T x^T is what softmax sees, before the scale."""
    lens = headlens.load(families.build("t5"))
    calls = reading(lens, families.batch(lens.model))
    site = lens.anatomy.sites[0]
    query, key, _, inputs_of = calls[0]
    x = inputs_of[lens.anatomy.parts[0].projections.query[0]]
    for head in site.heads:
        expected = query[:, head.head] @ key[:, head.head].transpose(1, 2)
        assert_close(x @ lens.weights(head).qk.matrix() @ x.transpose(1, 2), expected, atol=1e-4, rtol=1e-4)


def test_a_planted_head_reads_what_it_was_told_to():
    lens = headlens.load(planted.bert({0: planted.looks_at(["."])}))
    found = lens.weights("0.0").qk.singular_values()
    assert found[0] > 10 * found[1]  # one kind of query, one kind of key


def test_errors_say_what_to_type():
    lens = headlens.load(families.build("bert"))
    with pytest.raises(SelectorError, match=r"Expected one head, found 4 in '0.\*'. Write for example 0.0."):
        lens.weights("0.*")
    with pytest.raises(SelectorError, match="There is no head"):
        lens.weights(Head("encoder", 9, 0))

    class Odd(nn.Linear):
        def forward(self, x):
            return super().forward(x).round(decimals=1)

    lens.model.bert.encoder.layer[0].attention.output.dense.__class__ = Odd
    with pytest.raises(ModelError, match="is a Odd, not a plain linear layer"):
        lens.weights("0.0")


def test_heads_made_by_several_layers_are_refused_by_name():
    import transformers

    config = transformers.DeepseekV3Config(
        vocab_size=61,
        hidden_size=32,
        num_hidden_layers=1,
        num_attention_heads=4,
        num_key_value_heads=4,
        intermediate_size=48,
        q_lora_rank=8,
        kv_lora_rank=8,
        qk_rope_head_dim=4,
        qk_nope_head_dim=4,
        v_head_dim=8,
        first_k_dense_replace=1,
        pad_token_id=0,
    )
    lens = headlens.load(transformers.DeepseekV3ForCausalLM(config))
    with pytest.raises(ModelError, match=r"heads of decoder\.0 in DeepseekV3ForCausalLM have no W_Q"):
        lens.weights("0.0")


def test_a_dry_run_leaves_nothing_behind():
    model = families.build("gpt2").train()
    lens = headlens.load(model)
    lens.weights("0.0")
    assert all(module.training for module in model.modules())
    assert all(parameter.grad is None for parameter in model.parameters())
    assert not any(module._forward_hooks or module._forward_pre_hooks for module in model.modules())
