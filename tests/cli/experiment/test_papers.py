"""The experiment files, as they are, on models and data of the same shape, against another way to count."""

import json

import numpy as np
import pandas as pd
import pytest
import torch
from transformers import AutoModelForSequenceClassification, AutoTokenizer

from headlens.corpus.read import read_files
from support import plantedrun, standins
from support.papers import FOLDER, attention, measured_by, without


@pytest.mark.parametrize("file", sorted(FOLDER.glob("*.toml")), ids=lambda file: file.name)
def test_every_experiment_can_be_read(file, tmp_path):
    result = plantedrun.run(file, "--dry-run", "--out", tmp_path / "nothing")
    assert result.exit_code == 0, result.output
    assert result.stdout.startswith("headlens ")


@pytest.mark.slow
def test_clark2019(tmp_path):
    standins.bert(tmp_path / "model")
    standins.treebank(tmp_path / "ptb-stanford-dev.conllu", standins.STANFORD, n_documents=12)
    standins.conll2012(tmp_path / "conll-2012-dev", n_documents=14)
    measured = measured_by("clark2019", tmp_path, tmp_path / "model")
    known, weights = AutoTokenizer.from_pretrained(tmp_path / "model"), attention(tmp_path / "model")

    right, rests, n = np.zeros((2, 2)), 0.0, 0
    for _, sentence in read_files(tmp_path / "ptb-stanford-dev.conllu").sentences:
        found = weights(known(" ".join(sentence.forms))["input_ids"])
        rests += found[5:10][..., [0, -1]].sum()
        n += found[5:10].shape[0] * found.shape[1] * found.shape[2]
        for row, (layer, head, relation) in enumerate([(7, 10, "det"), (8, 5, "pobj")]):
            others = found[layer, head, 1:-1, 1:-1].copy()
            np.fill_diagonal(others, -1)
            arcs = [(i, word.head) for i, word in enumerate(sentence.words) if word.deprel == relation]
            right[row] += [sum(others[i].argmax() == j for i, j in arcs), 0]
            right[row] += [0, sum(others[:, i].argmax() == j for i, j in arcs)]
    labels = [word.deprel for d in read_files(tmp_path / "ptb-stanford-dev.conllu").documents
              for s in d.sentences for word in s.words]  # fmt: skip
    shares = right.max(axis=1) / [labels.count("det"), labels.count("pobj")]
    assert measured["det: accuracy of head 7.10"] == pytest.approx(shares[0], abs=1e-9)
    assert measured["pobj: accuracy of head 8.5"] == pytest.approx(shares[1], abs=1e-9)
    assert measured["weight on special tokens in layers 5 to 9, on average"] == pytest.approx(
        rests / n, abs=1e-6
    )

    hits = []
    for document in read_files(tmp_path / "conll-2012-dev").documents:
        starts = np.cumsum([0, *(len(s.words) for s in document.sentences)])
        mentions = [(starts[m.sentence] + m.head, m.entity, m.kind) for m in document.mentions]
        text = " ".join(form for s in document.sentences for form in s.forms)
        found = weights(known(text)["input_ids"])[4, 3, 1:-1, 1:-1]
        for head, entity, kind in mentions:
            before = {place for place, _, _ in mentions if place < head}
            same = {place for place, other, _ in mentions if place < head and other == entity}
            if same:
                hits.append((kind, max(before, key=lambda place: found[head, place]) in same))
    hits = pd.DataFrame(hits, columns=["kind", "right"])
    by_kind = hits.groupby("kind")["right"].mean()
    assert measured["antecedents of all mentions: accuracy of head 4.3"] == pytest.approx(
        hits["right"].mean()
    )
    assert measured["antecedents of pronouns: accuracy of head 4.3"] == pytest.approx(by_kind["pronoun"])
    assert measured["antecedents of proper nouns: accuracy of head 4.3"] == pytest.approx(by_kind["proper"])


@pytest.mark.slow
def test_michel2019(tmp_path):
    rows = standins.entailment(0, 60)
    standins.tab_separated(tmp_path / "mnli-dev-matched.tsv", [("text_a", "text_b", "label"), *rows])
    standins.classifier(tmp_path / "model")
    measured = measured_by("michel2019", tmp_path, tmp_path / "model")
    known = AutoTokenizer.from_pretrained(tmp_path / "model")

    def accuracy(removed, examples):
        model = AutoModelForSequenceClassification.from_pretrained(tmp_path / "model").eval()
        without(removed, [layer.attention.output.dense for layer in model.bert.encoder.layer], n_heads=4)
        with torch.no_grad():
            logits = [model(**known(*rows[i][:2], return_tensors="pt")).logits.argmax() for i in examples]
        right = [model.config.id2label[int(k)] == rows[i][2] for k, i in zip(logits, examples, strict=True)]
        return np.mean(right)

    pruning = pd.read_csv(tmp_path / "out" / "pruning" / "ablation.csv", keep_default_na=False)
    steps = pruning[(pruning["metric"] == "accuracy") & pruning["condition"].str.startswith("least")]
    half = json.loads((tmp_path / "out" / "pruning" / "run.json").read_text())["measured_examples"]
    assert steps["value"].tolist() == pytest.approx([accuracy(removed, half) for removed in steps["removed"]])
    assert steps["delta"].tolist() == pytest.approx((steps["value"] - accuracy("", half)).tolist())
    lost = (steps["delta"] < 0) & (steps["p_value"] < 0.05)
    fine = steps["n_removed"][: int(lost.to_numpy().argmax())].max()
    share = "share of heads that can go without a significant loss of accuracy"
    assert measured[share] == fine / 8
    assert 0 < fine < 8
    alone = pd.read_csv(tmp_path / "out" / "one-head" / "ablation.csv")
    alone = alone[alone["metric"] == "accuracy"]
    values = [accuracy(removed, range(60)) for removed in alone["removed"]]
    assert alone["value"].tolist() == pytest.approx(values)
    best = pd.read_csv(tmp_path / "out" / "one-head" / "best_of_layers.csv")["delta"]
    assert measured["largest loss of accuracy with one head in a layer"] == best.min()
    assert measured["largest gain of accuracy with one head in a layer"] == best.max()
