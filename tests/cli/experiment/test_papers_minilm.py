"""The experiment files that run on minilm, here on a part of the sample, against another way to count."""

import numpy as np
import pandas as pd
import pytest
import torch
from transformers import BertModel

from support import standins, toys
from support.papers import measured_by


@pytest.fixture(scope="module")
def bert():
    """minilm as plain `transformers` runs it, with its tokenizer."""
    lens = toys.minilm()
    model = BertModel(lens.model.config, add_pooling_layer=False).eval()
    model.load_state_dict({k: v for k, v in lens.model.state_dict().items() if "pooler" not in k})
    model.set_attn_implementation("eager")
    return model, lens.tokenizer


def texts(n_documents):
    """The sentences that `standins.treebank` writes, as text: its words with blanks between them."""
    return [" ".join(s.forms) for document in standins.documents()[:n_documents] for s in document.sentences]


@torch.no_grad()
def weights_and_norms(model, known, text):
    """Weights, and weights times the length of what each key hands over: [layer, head, query, key]."""
    made = model(**known(text, return_tensors="pt"), output_attentions=True, output_hidden_states=True)
    weights = torch.cat(made.attentions).double()
    norms = []
    for layer, state, pattern in zip(model.encoder.layer, made.hidden_states, weights, strict=False):
        values = layer.attention.self.value(state[0]).double().unflatten(-1, (12, 32)).transpose(0, 1)
        output = layer.attention.output.dense.weight.double().unflatten(1, (12, 32)).permute(1, 2, 0)
        norms.append(pattern * (values @ output).norm(dim=-1)[:, None])  # [head, query, key]
    return weights.numpy(), torch.stack(norms).numpy()


@pytest.mark.slow
def test_kobayashi2020(tmp_path, bert):
    standins.treebank(tmp_path / "sample.conllu", {}, n_documents=10)
    measured = measured_by("kobayashi2020", tmp_path, "minilm", "sample.conllu")
    sums, n = np.zeros((2, 6, 12)), 0
    for text in texts(10):
        for row, found in enumerate(weights_and_norms(*bert, text)):
            shares = found / found.sum(axis=-1, keepdims=True)
            sums[row] += shares[..., [0, -1]].sum(axis=(-1, -2))
        n += shares.shape[-1]
    weights, norms = sums / n
    assert measured["weight on special tokens in layers 5 to 9, on average"] == pytest.approx(
        weights[5].mean(), abs=1e-6
    )
    share = measured["special tokens: share of norms over share of weights"]
    assert share == pytest.approx(norms.mean() / weights.mean(), rel=1e-5)
    assert share < 0.5  # as on all of the sample: 0.27


@pytest.mark.slow
def test_pande2021(tmp_path, bert):
    standins.treebank(tmp_path / "sample.conllu", {}, n_documents=10)
    measured = measured_by("pande2021", tmp_path, "minilm", "sample.conllu")
    kept, even = np.zeros((6, 12)), 0.0
    for text in texts(10):
        weights, _ = weights_and_norms(*bert, text)
        places = np.arange(weights.shape[-1])
        sieve = np.abs(places[:, None] - places) <= 2
        kept += (weights * sieve).sum(axis=(-1, -2))
        even += (sieve / len(places)).sum()
    bias = kept / even
    share = measured["local: share of heads with a sieve bias above 1 for two tokens to either side"]
    assert share == pytest.approx((bias > 1).mean())
    scores = pd.read_csv(tmp_path / "out" / "classify" / "scores.csv")
    special = scores[scores["measure"] == "special"]  # the sieve of delimiters, as the file says it
    assert (special["score"] / special["baseline"]).max() > 3
    assert 0.3 < share < 0.9
