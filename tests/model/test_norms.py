"""What a key hands over: weights times |f(x)| (Kobayashi et al. 2020)."""

import pytest
import torch
from torch import nn
from torch.testing import assert_close
from transformers.pytorch_utils import Conv1D

import headlens
from headlens.errors import InputError
from headlens.model.weights import handed_over, output_matrix
from headlens.view.maps import attention_maps
from support import families, toys

TEXT = "The dog that the children found had lost its collar."


def test_by_hand_two_heads_of_one_dimension():
    output = nn.Linear(2, 2, bias=False)
    output.weight.data = torch.tensor([[3.0, 0.0], [4.0, -2.0]])  # head 0 writes (3, 4), head 1 (0, -2)
    values = torch.tensor([[[1.0], [0.0], [-2.0]], [[0.5], [1.0], [0.0]]])  # [head, key, width]
    expected = torch.tensor([[5.0, 0.0, 10.0], [1.0, 2.0, 0.0]])
    assert_close(handed_over(output, values, 2), expected)


def test_query_heads_of_a_group_share_values_but_not_what_they_write():
    output = nn.Linear(4, 3)  # its bias belongs to no head
    values = torch.randn(2, 5, 1)  # two key-value heads for four query heads
    found = handed_over(output, values, 4)
    for head in range(4):
        by_hand = (values[head // 2] * output.weight[:, head]).norm(dim=-1)
        assert_close(found[head], by_hand.detach())


def test_a_layer_of_another_making_gives_the_same_by_running_it():
    class Odd(nn.Module):
        def forward(self, x):
            return plain(x)

    torch.manual_seed(0)
    plain, odd, conv = nn.Linear(6, 4), Odd(), Conv1D(4, 6)
    conv.weight.data, conv.bias.data = plain.weight.data.T.contiguous(), plain.bias.data
    values = torch.randn(3, 7, 2)
    with torch.no_grad():
        assert_close(handed_over(odd, values, 3), handed_over(plain, values, 3))
        assert_close(handed_over(conv, values, 3), handed_over(plain, values, 3))


def test_a_layer_is_known_by_what_it_does():
    class Own(nn.Linear):  # as Falcon's
        def forward(self, x):
            return x @ self.weight.T + self.bias

    class Other(nn.Linear):
        def forward(self, x):
            return super().forward(x) * 2

    for size in ((6, 4), (4, 4)):
        layer = Own(*size)
        assert_close(output_matrix(layer), layer.weight.detach().T)
        assert output_matrix(Other(*size)) is None
    assert output_matrix(nn.Embedding(4, 4)) is None


def test_minilm_from_its_own_weights():
    lens = toys.minilm()
    maps = lens.attention(TEXT)
    inputs = lens.tokenizer(TEXT, return_tensors="pt")
    with torch.no_grad():
        states = lens.model(**inputs, output_hidden_states=True).hidden_states
    for site in maps.patterns:
        layer = lens.model.encoder.layer[site.layer].attention
        matrix, bias = layer.self.value.weight, layer.self.value.bias
        values = (states[site.layer][0] @ matrix.T + bias).view(-1, 12, 32)  # [key, head, width]
        written = layer.output.dense.weight.view(-1, 12, 32)  # [model width, head, width]
        f = torch.einsum("khw,dhw->hkd", values, written)
        assert_close(maps.norms[site], f.norm(dim=-1).detach(), rtol=1e-4, atol=1e-5)
        # and the parts add up to what the attention branch writes
        total = torch.einsum("hqk,hkd->qd", maps.patterns[site], f) + layer.output.dense.bias
        with torch.no_grad():
            branch = layer.output.dense(layer.self(states[site.layer])[0])[0]
        assert_close(total, branch, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("family", families.BY_INTERFACE)
def test_every_family_by_running_its_own_layer(family):
    lens = toys.family(family)
    target = toys.TARGET if lens.model.config.is_encoder_decoder else None
    maps = lens.attention(toys.SOURCE, target=target)
    shown = {}
    with torch.no_grad(), lens.observe(lambda site, block: shown.update({site: block.values})):
        lens.run(_inputs(lens, target))
    for part in lens.anatomy.parts:
        values, output = shown[part.site][0], lens.model.get_submodule(part.projections.output)
        group = part.site.n_heads // len(values)
        for head in range(part.site.n_heads):
            alone = torch.zeros(values.shape[1], part.site.n_heads, values.shape[-1])
            alone[:, head] = values[head // group]
            with torch.no_grad():
                f = output(alone.flatten(1)) - output(torch.zeros_like(alone.flatten(1)))
            assert_close(maps.norms[part.site][head], f.norm(dim=-1), rtol=1e-4, atol=1e-6)


def _inputs(lens, target):
    from headlens.corpus.batches import read

    return read(lens, toys.SOURCE, None, target).inputs


def test_norms_are_weights_times_lengths_and_words_sum_them():
    maps = toys.minilm().attention("Reinterpretings sleep.")
    norms = maps.to_norms()
    assert norms.measure == "norms"
    for site, pattern in norms.patterns.items():
        assert_close(pattern, torch.einsum("hqk,hk->hqk", maps.patterns[site], maps.norms[site]))
    merged = norms.to_words()
    owner = [0, *([1] * (len(maps.tokens) - 4)), 2, 3, 4]  # [CLS], the pieces, sleep . [SEP]
    first = next(iter(norms.patterns))
    by_hand = torch.stack(
        [
            norms.patterns[first][:, :, [i for i, w in enumerate(owner) if w == word]].sum(-1)
            for word in range(5)
        ],
        dim=-1,
    )
    rows = [[i for i, w in enumerate(owner) if w == word] for word in range(5)]
    by_hand = torch.stack([by_hand[:, mine].mean(1) for mine in rows], dim=1)
    assert_close(merged.patterns[first], by_hand)
    assert list(norms.to_frame().columns)[-1] == "norm"


def test_a_head_that_holds_nothing_for_a_key_hands_over_nothing():
    lens = headlens.load(families.build("bert"), toys.word_tokenizer())
    value = lens.model.get_submodule(lens.anatomy.parts[0].projections.value[0])
    with torch.no_grad():
        value.weight.zero_()
        value.bias.zero_()
    maps = lens.attention(toys.SOURCE)
    assert maps.pattern(maps.heads[0]).min() > 0
    assert torch.equal(next(iter(maps.to_norms().patterns.values())).abs().sum(), torch.tensor(0.0))


def test_norms_follow_selection_and_special_tokens():
    maps = toys.minilm().attention(TEXT)
    whole = maps.to_norms()
    chosen = attention_maps(toys.minilm(), TEXT, heads="3.1,3.7,0.2").drop_special().to_norms()
    for head in chosen.heads:
        assert_close(chosen.pattern(head), whole.pattern(head)[1:-1, 1:-1])


@pytest.mark.parametrize("family", families.BY_HOOKS)
def test_families_that_do_not_show_values_are_refused_by_name(family):
    maps = toys.family(family).attention(toys.SOURCE)
    with pytest.raises(InputError) as caught:
        maps.to_norms()
    assert str(caught.value) == (
        f"The norms of {maps.model} cannot be told: its attention does not show the values that it reads, "
        "or words were merged before. Look at the weights, or ask for norms before words."
    )
