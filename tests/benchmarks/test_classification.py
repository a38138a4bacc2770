from __future__ import annotations

import json
import warnings

import numpy as np
import pytest
import torch
import transformers
from sklearn.metrics import accuracy_score, f1_score, matthews_corrcoef
from tokenizers import processors

import headlens
from headlens.ablation.sweep import sweep
from headlens.benchmarks.base import BenchmarkOptions
from headlens.benchmarks.registry import Differentiable, open_benchmark
from headlens.errors import InputError, ModelError
from support.families import ALL, build
from support.toytext import toy_text, toy_tokenizer

NAMES = ("good", "bad", "Mixed")


def classifier(family: str = "bert", names=NAMES, **changes):
    """A small random classifier of a family, whose labels have names."""
    config_name, _, options = ALL[family]
    kind = getattr(transformers, config_name.replace("Config", "ForSequenceClassification"))
    labels = {"id2label": dict(enumerate(names))} if names else {"num_labels": 3}
    torch.manual_seed(0)
    model = kind(getattr(transformers, config_name)(**{**options, **labels, **changes})).eval()
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            if parameter.ndim >= 2 and "embed" not in name:
                parameter.normal_(0, 0.2)
    tokenizer = toy_tokenizer(pad=1 if family == "roberta" else 0)
    special = [("[CLS]", tokenizer.cls_token_id), ("[SEP]", 2)]
    tokenizer.backend_tokenizer.post_processor = processors.TemplateProcessing(
        single="[CLS] $A [SEP]", pair="[CLS] $A [SEP] $B:1 [SEP]:1", special_tokens=special
    )
    if family == "bert":
        tokenizer.model_input_names = ["input_ids", "token_type_ids", "attention_mask"]
    return headlens.load(model, tokenizer)


def examples(n: int = 20, labels=NAMES) -> list[tuple[str, str, str]]:
    return [(toy_text(2 + i % 7, i), toy_text(1 + i % 4, 99 + i), labels[i % len(labels)]) for i in range(n)]


def write(path, rows) -> str:
    """Two columns or three, by the length of the rows."""
    header = ("text", "label") if len(rows[0]) == 2 else ("text_a", "text_b", "label")
    if path.suffix == ".jsonl":
        lines = [json.dumps(dict(zip(header, row, strict=True))) for row in rows]
    else:
        lines = [("," if path.suffix == ".csv" else "\t").join(map(str, row)) for row in [header, *rows]]
    path.write_text("\n".join(lines), encoding="utf-8")
    return f"classification:{path}"


@torch.no_grad()
def by_hand(lens, rows) -> tuple[list[int], list[float]]:
    """Predicted label and loss, by a plain loop over unbatched examples."""
    predicted, losses = [], []
    for *texts, label in rows:
        inputs = lens.tokenizer(*texts, return_tensors="pt")
        logits = lens.model(**inputs).logits[0].double()
        predicted.append(int(logits.argmax()))
        losses.append(float(logits.exp().sum().log() - logits[NAMES.index(label)]))
    return predicted, losses


@pytest.mark.parametrize("suffix", ["csv", "tsv", "jsonl"])
@pytest.mark.parametrize("family", ["bert", "roberta", "gpt2", "llama", "deberta_v2"])
def test_predictions_are_those_of_single_examples(tmp_path, family, suffix):
    lens = classifier(family)
    rows = examples() if family in ("bert", "gpt2") else [(a, label) for a, _, label in examples()]
    predicted, losses = by_hand(lens, rows)
    gold = [NAMES.index(row[-1]) for row in rows]
    spec = write(tmp_path / f"c.{suffix}", rows)
    for size in (1, 3, None):
        benchmark = open_benchmark(spec, lens, BenchmarkOptions(batch_size=size))
        with lens.ablate((), "zero"):
            values = benchmark.measure(lens)
        assert values[:, 0].tolist() == gold
        assert values[:, 1].tolist() == predicted
        assert values[:, 2].tolist() == [a == b for a, b in zip(gold, predicted, strict=True)]
        np.testing.assert_allclose(values[:, 3], losses, atol=1e-5)
    assert {metric.name: metric.value(values) for metric in benchmark.metrics} == pytest.approx(
        {
            "accuracy": accuracy_score(gold, predicted),
            "macro-f1": f1_score(gold, predicted, average="macro", labels=[0, 1, 2], zero_division=0),
            "matthews": matthews_corrcoef(gold, predicted),
        }
    )
    assert benchmark.facts["example"] == ("text" if len(rows[0]) == 2 else "pair of texts")
    assert (benchmark.facts["labels"], benchmark.facts["classes"]) == ("by name", 3)


def test_segment_ids_reach_the_model(tmp_path):
    """The two texts of a pair are told apart; without segment ids the same pair comes out otherwise."""
    lens = classifier()
    benchmark = open_benchmark(write(tmp_path / "c.csv", examples()), lens)
    assert set(benchmark.coded[0].types) == {0, 1}
    values = benchmark.measure(lens)
    lens.model.bert.embeddings.token_type_embeddings.weight.data[1] = torch.linspace(-1, 1, 32)
    assert np.abs(benchmark.measure(lens)[:, 3] - values[:, 3]).min() > 1e-4


@pytest.mark.parametrize("family", ["gpt2", "llama"])
def test_a_decoder_without_padding_token_reads_its_last_word(tmp_path, family):
    """By default alone; with one of its own, not the tokenizer's, padded by that."""
    rows = [(a, label) for a, _, label in examples()]
    for pad in (None, 3):
        lens = classifier(family, pad_token_id=pad)
        expected = by_hand(lens, rows)[1]
        values = open_benchmark(
            write(tmp_path / "c.csv", rows), lens, BenchmarkOptions(batch_size=8)
        ).measure(lens)
        np.testing.assert_allclose(values[:, 3], expected, atol=1e-5)


def planted(rows):
    """A BERT whose [CLS] hears of the words through head 0.2 alone, and its own predictions as gold."""
    lens = classifier(num_hidden_layers=1)
    layer = lens.model.bert.encoder.layer[0]
    with torch.no_grad():
        layer.attention.output.dense.weight[:, [i for i in range(32) if not 16 <= i < 24]] = 0
        layer.output.dense.weight.zero_()
        for linear in (lens.model.bert.pooler.dense, lens.model.classifier, layer.attention.self.value):
            linear.weight.normal_(0, 1)
        logits = [lens.model(**lens.tokenizer(text, return_tensors="pt")).logits[0] for text, _, _ in rows]
        lens.model.classifier.bias -= torch.stack(logits).mean(dim=0)  # so that all labels occur
    predicted = by_hand(lens, [(text, NAMES[0]) for text, _, _ in rows])[0]
    return (
        lens,
        [(text, NAMES[label].upper()) for (text, _, _), label in zip(rows, predicted, strict=True)],
        predicted,
    )


def test_the_one_head_that_matters_is_found(tmp_path):
    lens, rows, gold = planted(examples(40))
    assert min(gold.count(label) for label in range(2)) > 5
    result = sweep(lens, write(tmp_path / "c.csv", rows))
    table = result.table.set_index(["condition", "metric"])
    assert (table["baseline"] == 1).all()  # labels are matched without regard to case
    for head in ("0.0", "0.1", "0.3"):
        assert (table.loc[f"head {head}", "delta"] == 0).all()
        assert (table.loc[f"head {head}", "p_value"] == 1).all()
    found = table.loc["head 0.2"]
    values = result.values["head 0.2"]
    assert len(set(values[:, 1])) == 1  # every text looks the same now
    kept = gold.count(values[0, 1])
    assert found.loc["accuracy", "value"] == kept / 40
    assert found.loc["matthews", "value"] == 0
    assert found.loc["accuracy", "p_value"] == pytest.approx(2.0 ** (kept - 39))
    assert (found["p_value"] < 0.01).all()
    assert result.importance["head"].tolist()[result.importance["rank"].tolist().index(1)] == 2


def test_losses_are_cross_entropies(tmp_path):
    lens = classifier()
    benchmark = open_benchmark(write(tmp_path / "c.csv", examples()), lens, BenchmarkOptions(batch_size=6))
    assert isinstance(benchmark, Differentiable)
    found = torch.zeros(20)
    for lot in benchmark.losses(lens):
        assert lot.owners.tolist() == lot.examples.tolist()
        assert lot.losses.requires_grad
        found[lot.examples] = lot.losses.detach()
    np.testing.assert_allclose(found, benchmark.measure(lens)[:, 3], atol=1e-6)
    part = benchmark.take([4, 19, 0])
    np.testing.assert_allclose(part.measure(lens), benchmark.measure(lens)[[4, 19, 0]], atol=1e-5)
    assert part.facts["examples"] == 3


def test_labels_are_matched_by_name_or_number(tmp_path):
    rows = [(a, label) for a, _, label in examples(12)]
    spec = write(tmp_path / "c.csv", rows)
    turned = open_benchmark(spec, classifier(names=NAMES[::-1]))
    assert turned.gold == [2 - NAMES.index(label) for _, label in rows]
    both = classifier(names=("bad", "GOOD", "good"))  # an exact name goes first
    spec = write(tmp_path / "c.csv", [("w5", "good"), ("w5", "GOOD"), ("w6", "BAD")] * 4)
    assert open_benchmark(spec, both).gold == [2, 1, 0] * 4
    unnamed = classifier(names=None)
    numbered = open_benchmark(write(tmp_path / "c.jsonl", [("w5", 2), ("w6", 0)] * 5), unnamed)
    assert (numbered.gold, numbered.facts["labels"]) == ([2, 0] * 5, "by number")
    named = open_benchmark(write(tmp_path / "c.jsonl", [("w5", "label_2"), ("w6", "LABEL_0")] * 5), unnamed)
    assert (named.gold, named.facts["labels"]) == ([2, 0] * 5, "by name")


@pytest.mark.parametrize(
    ("names", "label", "known"),
    [
        (NAMES, "ugly", "good, bad, Mixed"),
        (NAMES, "0", "good, bad, Mixed"),
        (("bad", "GOOD", "good"), "Good", "bad, GOOD, good"),
        (None, "3", "LABEL_0, LABEL_1, LABEL_2"),
        ([f"n{i}" for i in range(15)], "x", "n0, n1, n2, n3, n4, n5, n6, n7, n8, n9, n10, n11 and 3 more"),
    ],
)
def test_unknown_labels_are_told_with_their_line(tmp_path, names, label, known):
    path = tmp_path / "c.csv"
    first = str((names or ["LABEL_0"])[0])
    spec = write(path, [("w5", first)] * 10 + [("w6", label)])
    with pytest.raises(InputError) as caught:
        open_benchmark(spec, classifier(names=names))
    assert str(caught.value) == (
        f"{path}, line 12: expected a label of the model, found {label!r}; it has {known}. Write the model's "
        "names into the file, or the right ones into its config.json (id2label)."
    )


FAULTS = {
    "text": ([(" ", "good")], "line 12: expected a text in the column text, found nothing."),
    "label": ([("w5", "")], "line 12: expected a label in the column label, found nothing."),
    "long": (
        [(toy_text(60, 0), "good")],
        "line 12: an example has 62 tokens, and inputs may have 60. Shorten it; headlens cuts no text off.",
    ),
}


@pytest.mark.parametrize("fault", FAULTS)
def test_bad_files_are_told_with_their_line(tmp_path, fault):
    path = tmp_path / "c.csv"
    rows, message = FAULTS[fault]
    with pytest.raises(InputError) as caught:
        open_benchmark(write(path, [("w5", "good")] * 10 + rows), classifier())
    assert str(caught.value) == f"{path}, {message}"


def test_short_files_are_refused(tmp_path):
    path = tmp_path / "c.csv"
    with pytest.raises(InputError) as caught:
        open_benchmark(write(path, [("w5", "good")] * 9), classifier())
    assert str(caught.value) == f"{path}: expected at least 10 examples, found 9. Give a longer file."


def test_worse_than_a_guess_is_noticed(tmp_path):
    lens, rows, gold = planted(examples(40))
    benchmark = open_benchmark(write(tmp_path / "c.csv", rows), lens)
    assert benchmark.warn(benchmark.measure(lens)) == ()
    shifted = [
        (text, NAMES[(label + 1) % 3]) if i % 4 else (text, NAMES[label])
        for i, ((text, _), label) in enumerate(zip(rows, gold, strict=True))
    ]
    benchmark = open_benchmark(write(tmp_path / "c.csv", shifted), lens)
    assert benchmark.warn(benchmark.measure(lens)) == (
        "Without ablation the accuracy of classification:c.csv is 0.250, below the 0.333 of a guess among 3 "
        "labels: check that the model and the file mean the same by each label.",
    )


def test_other_models_are_refused(tmp_path):
    spec = write(tmp_path / "c.csv", examples())
    with pytest.raises(ModelError) as caught:
        open_benchmark(spec, headlens.load(build("bert"), toy_tokenizer()))
    assert str(caught.value) == (
        "The benchmark classification needs a sequence classifier, but this is a BertForMaskedLM. Take a "
        "checkpoint whose class ends in ForSequenceClassification, or another benchmark: probe:TRAIN,TEST "
        "fits a classifier on any encoder or decoder."
    )
    for changes, what in (
        ({"names": ("x",)}, "gives a number"),
        ({"problem_type": "regression"}, "gives a number"),
        ({"problem_type": "multi_label_classification"}, "gives several labels at once"),
    ):
        with pytest.raises(ModelError) as caught:
            open_benchmark(spec, classifier(**changes))
        assert str(caught.value) == (
            "The benchmark classification needs a model that chooses one of several labels, but this "
            f"BertForSequenceClassification {what}. Take a checkpoint with two labels or more, one of which "
            "is right."
        )


def test_a_classifier_that_was_never_trained_is_refused(tmp_path):
    spec = write(tmp_path / "c.csv", examples())
    lens = classifier()
    lens.model.save_pretrained(tmp_path / "whole")
    lens.tokenizer.save_pretrained(tmp_path / "whole")
    open_benchmark(spec, headlens.load(str(tmp_path / "whole")))
    body = transformers.BertModel(lens.model.config, add_pooling_layer=False)
    body.save_pretrained(tmp_path / "m")
    lens.tokenizer.save_pretrained(tmp_path / "m")
    path = tmp_path / "m" / "config.json"
    path.write_text(path.read_text().replace('"BertModel"', '"BertForSequenceClassification"'))
    lens = headlens.load(str(tmp_path / "m"))
    with pytest.raises(ModelError) as caught:
        open_benchmark(spec, lens)
    assert str(caught.value) == (
        "The checkpoint lacks weights of the classifier of BertForSequenceClassification: "
        "bert.pooler.dense.bias, bert.pooler.dense.weight, classifier.bias, classifier.weight. Use a "
        "complete checkpoint, or --allow-random-weights to measure it all the same."
    )
    open_benchmark(spec, lens, BenchmarkOptions(allow_random_weights=True))


def test_an_accuracy_below_chance_is_told(tmp_path):
    """As of a file whose labels mean something else than those of the checkpoint; one above it is not."""
    lens = classifier()
    rows = [row[:2] for row in examples(24)]
    open_ = lambda rows: open_benchmark(write(tmp_path / "c.csv", rows), lens)  # noqa: E731
    said = [NAMES[int(label)] for label in open_([(text, "good") for text, _ in rows]).measure(lens)[:, 1]]
    right = [(text, label) for (text, _), label in zip(rows, said, strict=True)]
    wrong = [(text, NAMES[(NAMES.index(label) + 1) % 3]) for text, label in right]
    for labelled, accuracy in ((right, 1.0), (wrong, 0.0)):
        with warnings.catch_warnings(record=True) as noted:
            warnings.simplefilter("always")
            found = sweep(lens, open_(labelled), "set", heads="0.0")
        assert found.run["baseline"]["accuracy"] == accuracy
        told = [str(one.message) for one in noted if "below the 0.333 of a guess" in str(one.message)]
        assert told == ([] if accuracy else list(found.notes[:1]))
    assert found.notes[0] == (
        "Without ablation the accuracy of classification:c.csv is 0.000, below the 0.333 of a guess among 3 "
        "labels: check that the model and the file mean the same by each label."
    )


def test_equal_texts_are_equal_inputs_whatever_their_labels(tmp_path):
    rows = [("w5", "w6", NAMES[i % 3]) for i in range(12)]
    lens = classifier()
    assert len(set(open_benchmark(write(tmp_path / "a.csv", rows), lens).input_keys)) == 1
    rows[4] = ("w6", "w5", NAMES[0])
    keys = open_benchmark(write(tmp_path / "a.csv", rows), lens).input_keys
    assert len(keys) == 12
    assert [place for place, key in enumerate(keys) if key != keys[0]] == [4]
