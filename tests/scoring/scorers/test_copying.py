"""How much heads raise the logit of what they look at: by hand, and from the weights alone."""

from __future__ import annotations

import pytest
import torch
from transformers import GPT2Config, GPT2LMHeadModel, LlamaConfig, LlamaForCausalLM

import headlens
from headlens.corpus.batches import make_batches
from headlens.corpus.inputs import N_INPUTS, Item, frame, repeated_inputs
from headlens.corpus.words import Encoded
from headlens.lens import Lens
from headlens.model.unembedding import Writing
from headlens.scoring.passes import Reader
from headlens.scoring.scorers.copying import COPIED, Induction
from support import planted, toys
from support.families import VOCAB, build
from support.handmade import shares

WORDS, WIDTH = 12, 16  # of the models made by hand


def coded(ids: list[int], special: int | None = None) -> Item:
    """An input of tokens, one of which may be what the tokenizer adds."""
    nothing, marks = (None,) * len(ids), tuple(token == special for token in ids)
    return Item(Encoded({"input_ids": ids}, ("x",) * len(ids), nothing, marks, ()), 0, ())


def copying(
    lens: Lens, texts: list[list[int]], sites=None, size=None, batch_size=None, left=False, special=None
):
    """Copying score of every head."""
    reader = Reader([Induction(Writing.of(lens))], sites or lens.anatomy.sites, 1)
    batches = make_batches([coded(ids, special) for ids in texts], 0, batch_size, left, left)
    reader.read(lens, batches, size)
    return shares(reader.tallies[0], "copying")


def by_hand(family: str, writes: list[float], values: list[float]):
    """One layer without a feed-forward part; tokens are one-hot vectors.

    Key-value head k holds `values[k]` times the token, and head h writes `writes[h]` times what it reads.
    """
    size = WIDTH * len(writes)
    shared = {"vocab_size": WORDS, "bos_token_id": None, "eos_token_id": None}
    if family == "gpt2":
        model = GPT2LMHeadModel(
            GPT2Config(n_embd=size, n_layer=1, n_head=len(writes), n_positions=32, n_inner=8, **shared)
        )
        block = model.transformer.h[0]
        value = block.attn.c_attn.weight.detach()[:, 2 * size :].T
        output, feed = block.attn.c_proj.weight.detach().T, block.mlp.c_proj.weight.detach()
        model.transformer.wpe.weight.detach().zero_()
    else:
        model = LlamaForCausalLM(
            LlamaConfig(
                hidden_size=size,
                num_hidden_layers=1,
                num_attention_heads=len(writes),
                num_key_value_heads=len(values),
                head_dim=WIDTH,
                intermediate_size=8,
                tie_word_embeddings=True,
                **shared,
            )
        )
        block = model.model.layers[0]
        value, output = block.self_attn.v_proj.weight.detach(), block.self_attn.o_proj.weight.detach()
        feed = block.mlp.down_proj.weight.detach()
    identity = torch.eye(WORDS)
    for tensor in (value, output, feed, model.get_input_embeddings().weight.detach()):
        tensor.zero_()
    model.get_input_embeddings().weight.detach()[:, :WORDS] = identity
    for head, times in enumerate(values):
        value[WIDTH * head : WIDTH * head + WORDS, :WORDS] = times * identity
    for head, times in enumerate(writes):
        output[:WORDS, WIDTH * head : WIDTH * head + WORDS] = times * identity
    return headlens.load(model.eval())


TEXTS = [[0, 1, 2, 3, 0, 1, 2, 3], [5, 11, 7, 5, 11, 7], [4, 9, 4, 9]]


class TestByHand:
    def test_gpt2(self):
        lens = by_hand("gpt2", [1, -1, 0, 0.01], [1, 1, 1, -1])
        assert copying(lens, TEXTS) == pytest.approx([1, -1, 0, -1], abs=1e-5)

    def test_grouped_queries_of_llama(self):
        """Heads 0-2 read key-value head 0, heads 3-5 key-value head 1."""
        lens = by_hand("llama", [1, 1, 0, 1, -1, -100], [1, -1])
        assert copying(lens, TEXTS) == pytest.approx([1, 1, 0, -1, 1, 1], abs=1e-5)

    def test_another_token_than_the_one_attended_to(self):
        lens = by_hand("gpt2", [1], [1])
        output = lens.model.transformer.h[0].attn.c_proj.weight.detach()
        output[:WORDS, :WORDS] = torch.eye(WORDS).roll(1, dims=1)  # the next token of the vocabulary
        # its own logit is one of the others: -1/12 against 11/12
        assert copying(lens, TEXTS) == pytest.approx([-1 / (WORDS - 1)], abs=1e-5)

    def test_special_tokens_are_not_looked_at(self):
        lens = by_hand("gpt2", [1], [1])
        lens.model.transformer.h[0].attn.c_proj.weight.detach()[0, 0] = -1  # token 0 is lowered
        texts = [[0, 5, 11, 7, 5, 11, 7], [0, 4, 9, 4, 9]]
        assert copying(lens, texts, special=0) == pytest.approx([1], abs=1e-5)
        assert copying(lens, texts) == pytest.approx([0], abs=1e-5)  # where it is a token as others

    def test_the_bias_of_the_output_does_not_count(self):
        lens = by_hand("gpt2", [1, 0], [1, 1])
        lens.model.transformer.h[0].attn.c_proj.bias.detach()[3] = 50
        assert copying(lens, TEXTS) == pytest.approx([1, 0], abs=1e-5)


def test_bert_gets_no_number_in_the_table():
    found = headlens.classify(headlens.load(planted.bert({}), planted.tokenizer()), tags=["induction"])
    rows = found.scores[found.scores["measure"] == "copying"]
    assert len(rows) == 12
    assert rows["score"].isna().all()
    assert (rows["n"] == 0).all()


def from_weights(writing, hidden, norm_weight, unembedding, token, centred):
    """Copying score of what one head writes, reading a hidden state, from first principles, in float64."""
    written = writing(hidden).detach()
    if centred:
        written = written - written.mean()
    logits = unembedding.detach().double() @ (written * norm_weight.detach().double())
    logits = logits - logits.mean()
    return (logits[token] / logits.abs().max()).item()


def random_norms(model):
    generator = torch.Generator().manual_seed(1)
    for name, parameter in model.named_parameters():
        if parameter.ndim == 1 and name.endswith("weight"):
            parameter.data = 0.5 + torch.rand(parameter.shape, generator=generator)
    return model


@pytest.mark.parametrize(
    "how", [{}, {"size": 1}, {"size": 5, "batch_size": 1}, {"batch_size": 3, "left": True}], ids=str
)
def test_gpt2_from_its_weights(how):
    model = random_norms(build("gpt2"))
    texts = [torch.randint(3, VOCAB, (n,)).tolist() for n in (11, 7, 4)]
    found = copying(headlens.load(model), texts, **how)
    body, expected = model.transformer, []
    for layer in range(2):
        block = body.h[layer]
        for head in range(4):
            mine = slice(8 * head, 8 * head + 8)

            def writing(x, block=block, mine=mine):
                read = torch.nn.functional.layer_norm(x, (32,), block.ln_1.weight, block.ln_1.bias)
                value = (read @ block.attn.c_attn.weight + block.attn.c_attn.bias)[64:][mine]
                return (value @ block.attn.c_proj.weight[mine]).double()

            scores = []
            for ids in texts:
                with torch.no_grad():
                    hidden = model(torch.tensor([ids]), output_hidden_states=True).hidden_states[layer][0]
                scores += [
                    from_weights(writing, hidden[i], body.ln_f.weight, body.wte.weight, ids[i], True)
                    for i in range(COPIED)
                ]
            expected.append(sum(scores) / len(scores))
    assert found == pytest.approx(expected, abs=1e-5)
    assert max(map(abs, expected)) > 0.2


def test_a_head_of_smollm2_from_its_weights():
    """A real Llama: 9 heads on 3 key-value heads, of 64 numbers each; and its random tokens."""
    lens = toys.smollm2()
    made = repeated_inputs(lens.tokenizer, 64, 0)
    assert len(made.items) == N_INPUTS
    assert frame(lens.tokenizer) == ([], [])
    ids = made.items[0].encoded.inputs["input_ids"]
    assert ids == ids[:21] * 3
    assert not any(token.startswith("<|") for token in made.items[0].encoded.tokens)
    model, layer, head = lens.model, 18, 6
    found = copying(lens, [ids], [lens.anatomy.sites[layer]])[head]
    block = model.model.layers[layer]

    def writing(x):
        read = x / (x.square().mean() + 1e-5).sqrt() * block.input_layernorm.weight
        value = (block.self_attn.v_proj.weight @ read)[64 * 2 : 64 * 3]  # head 6 reads key-value head 2
        return (block.self_attn.o_proj.weight[:, 64 * head : 64 * head + 64] @ value).double()

    with torch.inference_mode():
        hidden = model(torch.tensor([ids]), output_hidden_states=True).hidden_states[layer][0]
        expected = [
            from_weights(writing, hidden[i], model.model.norm.weight, model.lm_head.weight, ids[i], False)
            for i in range(COPIED)
        ]
    assert found == pytest.approx(sum(expected) / COPIED, abs=1e-5)
    assert found > 0.1
