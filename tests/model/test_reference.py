"""The textbook's attention: its two forms agree, and both are what real layers compute."""

import math

import pytest
import torch
from torch.testing import assert_close

import headlens
from support import families, toys
from support.textbook_attention import HeadMatrices, causal, fused, padding, pattern, sum_over_heads


def matrices(n_heads, n_kv_heads, dtype, width=5, value_width=3, model_width=16):
    generator = torch.Generator().manual_seed(n_heads * 10 + n_kv_heads)

    def draw(*shape):
        return torch.randn(shape, generator=generator, dtype=torch.float64).to(dtype) / 4

    return HeadMatrices(
        draw(n_heads, model_width, width),
        draw(n_kv_heads, model_width, width),
        draw(n_kv_heads, model_width, value_width),
        draw(n_heads, value_width, model_width),
    )


def turned(states):
    """Something that depends on the position: pairs of directions turned, as rotary embeddings do."""
    angle = torch.arange(states.shape[-2], dtype=states.dtype)[:, None] * 0.3
    one, other = states[..., :2].chunk(2, dim=-1)
    pair = [one * angle.cos() - other * angle.sin(), other * angle.cos() + one * angle.sin()]
    return torch.cat([*pair, states[..., 2:]], dim=-1)


@pytest.mark.parametrize(("dtype", "tolerance"), [(torch.float32, 1e-6), (torch.float64, 1e-12)])
@pytest.mark.parametrize(("n_heads", "n_kv_heads"), [(4, 4), (6, 2), (4, 1), (1, 1)])
@pytest.mark.parametrize("turn", [lambda t: t, turned])
def test_both_forms_are_equal(dtype, tolerance, n_heads, n_kv_heads, turn):
    weights = matrices(n_heads, n_kv_heads, dtype)
    x = torch.randn(2, 7, 16, generator=torch.Generator().manual_seed(1)).to(dtype)
    real_keys = torch.tensor([[1] * 7, [1] * 4 + [0] * 3]).bool()
    for visible in (causal(7, 7), padding(real_keys), causal(7, 7) & padding(real_keys)):
        results = [form(x, x, weights, visible, 5**-0.5, turn) for form in (sum_over_heads, fused)]
        assert_close(*results, atol=tolerance, rtol=0)
        assert results[0].abs().max() > 0.1


def test_by_hand_one_head_of_one_dimension():
    one = torch.ones(1, 1, 1, dtype=torch.float64)
    weights = HeadMatrices(one, one, 2 * one, 3 * one)
    x = torch.tensor([[[0.0], [math.log(3)]]], dtype=torch.float64)
    # query 1 scores key 0 with 0 and key 1 with log(3)^2
    share = 1 / (1 + math.exp(math.log(3) ** 2))
    expected = [[0.0], [(1 - share) * math.log(3) * 6]]
    for form in (sum_over_heads, fused):
        assert_close(form(x, x, weights, causal(2, 2), 1.0)[0], torch.tensor(expected, dtype=torch.float64))


def test_masks():
    assert causal(2, 3).tolist() == [[True, True, False], [True, True, True]]
    blind = pattern(torch.ones(1, 2, 3), torch.ones(1, 2, 3), torch.tensor([[True, True], [False, False]]), 1)
    assert blind.tolist() == [[[0.5, 0.5], [0, 0]]]  # who sees nothing looks nowhere


def test_cross_attention_reads_another_text():
    weights = matrices(4, 2, torch.float64)
    x, source = torch.randn(1, 3, 16).double(), torch.randn(1, 6, 16).double()
    visible = torch.ones(3, 6, dtype=torch.bool)
    assert_close(
        sum_over_heads(x, source, weights, visible, 0.5),
        fused(x, source, weights, visible, 0.5),
        atol=1e-12,
        rtol=0,
    )


def of_layer(lens, site):
    """A layer's matrices from `lens.weights`, with biases as one more row."""
    heads = [lens.weights(head) for head in site.heads]

    def stack(role, which):
        rows = [
            torch.cat(
                [getattr(w, role), zeros(w, role)[None] if bias(w, role) is None else bias(w, role)[None]]
            )
            for w in which
        ]
        return torch.stack(rows).double()

    def bias(w, role):
        return getattr(w, f"{role}_bias")

    def zeros(w, role):
        return torch.zeros(getattr(w, role).shape[1])

    shared = heads[:: site.n_heads // site.n_kv_heads]
    output = torch.stack([w.output for w in heads]).double()
    return HeadMatrices(stack("query", heads), stack("key", shared), stack("value", shared), output)


def assert_is_textbook(lens, inputs, scale, turn=lambda t: t):
    """Every layer of a model puts out what both forms say, given its weights and its input."""
    for part in lens.anatomy.parts:
        site, where = part.site, part.projections
        seen = {}
        reading = lens.model.get_submodule(where.query[0])
        writing = lens.model.get_submodule(where.output)
        handles = [
            reading.register_forward_pre_hook(lambda m, a, s=seen: s.update(x=a[0])),
            writing.register_forward_hook(lambda m, a, output, s=seen: s.update(y=output)),
        ]
        with torch.no_grad():
            lens.model(**inputs)
        for handle in handles:
            handle.remove()
        x = torch.cat([seen["x"], torch.ones(*seen["x"].shape[:2], 1)], dim=-1).double()
        real_keys = inputs["attention_mask"].bool()
        visible = padding(real_keys) & (causal(x.shape[1], x.shape[1]) if site.causal else True)
        for form in (sum_over_heads, fused):
            found = form(x, x, of_layer(lens, site), visible, scale, turn)
            if writing.bias is not None:
                found = found + writing.bias.detach().double()
            assert_close(found[real_keys], seen["y"][real_keys].double(), atol=2e-5, rtol=1e-5)


def test_every_layer_of_minilm():
    lens = toys.minilm()
    texts = ["The dog chased its tail.", "No."]
    inputs = lens.tokenizer(texts, return_tensors="pt", padding=True)
    assert_is_textbook(lens, dict(inputs), 32**-0.5)


def test_every_layer_of_a_gpt2():
    lens = headlens.load(families.build("gpt2"))
    assert_is_textbook(lens, families.batch(lens.model), 8**-0.5)


@pytest.mark.slow
def test_every_layer_of_smollm2():
    lens = toys.smollm2()
    inputs = dict(lens.tokenizer("The capital of France is Paris, and", return_tensors="pt"))
    length = inputs["input_ids"].shape[1]
    base = 1 / lens.model.config.rope_parameters["rope_theta"] ** (torch.arange(0, 64, 2).double() / 64)
    angle = torch.arange(length).double()[:, None] * base  # [position, half of the width]

    def rotary(states):
        one, other = states.chunk(2, dim=-1)
        return torch.cat(
            [one * angle.cos() - other * angle.sin(), other * angle.cos() + one * angle.sin()], dim=-1
        )

    assert_is_textbook(lens, inputs, 64**-0.5, rotary)
