"""The experiment files on GPT-2 and on translation, on small models, some of their heads planted."""

import json

import numpy as np
import pandas as pd
import pytest
import torch
from transformers import AutoTokenizer, MarianMTModel

from headlens.ablation import gates
from headlens.corpus.read import read_files
from support import planted, standins
from support.papers import attention, measured_by, without


@pytest.mark.slow
def test_vig2019(tmp_path):
    standins.gpt2(tmp_path / "model", lambda: planted.gpt2({0: planted.previous_token()}), {4: {0: 11}})
    standins.plain_text(tmp_path / "wikipedia.txt")
    measured = measured_by("vig2019", tmp_path, tmp_path / "model")
    known, weights = AutoTokenizer.from_pretrained(tmp_path / "model"), attention(tmp_path / "model")
    first, n, looks = np.zeros((12, 12)), 0, []
    for line in (tmp_path / "wikipedia.txt").read_text().split("\n\n"):
        found = weights(known(line)["input_ids"])
        first += found[..., 0].sum(axis=-1)
        n += found.shape[-1]
        looks.append((found[4, 11, 1:].argmax(axis=-1) == np.arange(found.shape[-1] - 1)).all())
    assert all(looks)
    assert measured["head 4.11 looks at the previous token (1: tagged positional)"] == 1
    assert measured["mean attention to the first token, over all heads"] == pytest.approx((first / n).mean())
    assert measured["attention to the first token by the head that looks there most"] == pytest.approx(
        (first / n).max()
    )


@pytest.mark.slow
def test_induction(tmp_path):
    """Head 5.1 is planted; the others that were reported do nothing in this model."""
    standins.gpt2(tmp_path / "model", planted.induction_gpt2, {0: {}, 5: {0: 1}})
    measured = measured_by("induction", tmp_path, tmp_path / "model")
    assert measured.tolist() == [1, 0, 0, 0, 0]
    assert measured.index[0] == "head 5.1 is an induction head"
    ids = np.random.default_rng(0).permutation(np.arange(6, len(planted.WORDS)))[:12].tolist() * 2
    found = attention(tmp_path / "model")(ids)
    after = found[:, :, np.arange(12, 24), np.arange(1, 13)].mean(axis=-1)  # what followed the earlier copy
    assert np.argwhere(after > 0.4).tolist() == [[5, 1]]


def translations(place, sources, removed=""):
    """By the model's own code, without some heads of the encoder."""
    known, model = AutoTokenizer.from_pretrained(place), MarianMTModel.from_pretrained(place).eval()
    without(removed, [layer.self_attn.out_proj for layer in model.model.encoder.layers], n_heads=8)
    inputs = known(sources, padding=True, return_tensors="pt")
    made = model.generate(**inputs, num_beams=4, do_sample=False, max_new_tokens=32, max_length=None)
    return known.batch_decode(made, skip_special_tokens=True)


@pytest.mark.slow
def test_voita2019(tmp_path, monkeypatch):
    sacrebleu = pytest.importorskip("sacrebleu")
    few = gates.Fit(steps=8)  # which heads the gates choose is not what is tested here
    monkeypatch.setattr(gates, "Fit", lambda: few)
    standins.marian(tmp_path / "model")
    standins.treebank(tmp_path / "newstest-en.conllu", {}, n_documents=10)
    sentences = [sentence for _, sentence in read_files(tmp_path / "newstest-en.conllu").sentences]
    sources = [" ".join(sentence.forms[:9]) for sentence in sentences[:20]]
    with torch.no_grad():
        references = translations(tmp_path / "model", sources)
    rows = [("source", "reference"), *zip(sources, references, strict=True)]
    standins.tab_separated(tmp_path / "newstest-en-ru.tsv", rows)
    measured = measured_by("voita2019", tmp_path, tmp_path / "model")

    table = pd.read_csv(tmp_path / "out" / "pruning" / "ablation.csv")
    row = table[(table["condition"] == "least important 38 of 48") & (table["metric"] == "bleu")].iloc[0]
    assert len(row["removed"].split()) == 38
    half = json.loads((tmp_path / "out" / "pruning" / "run.json").read_text())["measured_examples"]
    with torch.no_grad():
        made = translations(tmp_path / "model", [sources[i] for i in half], row["removed"])
    bleu = sacrebleu.corpus_bleu(made, [[references[i] for i in half]], force=True).score
    assert measured["change of BLEU without 38 of the 48 encoder heads"] == pytest.approx(bleu - 100)
    assert 0 < bleu < 100

    known, weights = AutoTokenizer.from_pretrained(tmp_path / "model"), encoder(tmp_path / "model")
    looks, n, right, subjects = np.zeros((2, 6, 8)), 0, np.zeros((6, 8)), 0
    for sentence in sentences:
        found = weights(known(" ".join(sentence.forms))["input_ids"])
        places = np.arange(found.shape[-1])
        looks[0] += (found.argmax(-1)[..., 1:] == places[:-1]).sum(-1)
        looks[1] += (found.argmax(-1)[..., :-1] == places[1:]).sum(-1)
        n += len(places) - 1
        others = np.where(np.eye(len(places)), -1, found)[..., :-1]  # the end of the sentence is no word
        for i, word in enumerate(sentence.words):
            if word.deprel == "nsubj":
                right += others[..., i, :].argmax(-1) == word.head
                subjects += 1
    best = "positional: share of its largest weights that the best head puts on one neighbour"
    assert measured[best] == pytest.approx((looks / n).max())
    subject = "nsubj: accuracy of the best head, from the subject to its verb"
    assert measured[subject] == pytest.approx((right / subjects).max())


def encoder(place):
    """The weights of a translator's encoder: of ids, [layer, head, query, key]."""
    model = MarianMTModel.from_pretrained(place, attn_implementation="eager").eval()

    @torch.no_grad()
    def weights(ids):
        made = model.model.encoder(torch.tensor([ids]), output_attentions=True)
        return torch.cat(made.attentions).double().numpy()

    return weights
