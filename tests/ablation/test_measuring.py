"""Every kind of benchmark under every mode: what is not computed again changes no number."""

from __future__ import annotations

import json

import numpy as np
import pytest
import torch
import transformers

import headlens
from headlens.ablation.measure import Measuring, Units
from headlens.ablation.plan import Choice, Condition, each
from headlens.ablation.prefix import NOTHING
from headlens.benchmarks.base import BenchmarkOptions
from headlens.benchmarks.registry import open_benchmark
from support import toytasks
from support.families import ALL, build
from support.toytext import toy_pairs, toy_text, toy_tokenizer, write_lines, write_pairs


def texts(n, seed):
    return [toy_text(2 + i % 7, seed + i) for i in range(n)]


def classifier(path):
    labels = {"id2label": {0: "no", 1: "yes"}}
    config = transformers.BertConfig(**{**ALL["bert"][2], **labels})
    torch.manual_seed(0)
    lens = headlens.load(transformers.BertForSequenceClassification(config).eval(), toy_tokenizer())
    lines = ["text,label", *(f"{text},{'no' if i % 3 else 'yes'}" for i, text in enumerate(texts(14, 0)))]
    (path / "c.csv").write_text("\n".join(lines))
    return lens, f"classification:{path / 'c.csv'}"


def probe(path):
    for name, seed in (("train", 0), ("test", 50)):
        lines = [f"{text},{'ab'[i % 2]}" for i, text in enumerate(texts(16, seed))]
        (path / f"{name}.csv").write_text("\n".join(["text,label", *lines]))
    spec = f"probe:{path / 'train.csv'},{path / 'test.csv'}"
    return headlens.load(build("deberta_v2"), toy_tokenizer()), spec


def pairs(family):
    def made(path):
        lines = zip(texts(12, 0), texts(12, 80), strict=True)
        rows = [json.dumps({"sentence_good": good, "sentence_bad": bad}) for good, bad in lines]
        (path / "p.jsonl").write_text("\n".join(rows))
        frame = ("[CLS]", "[SEP]") if family == "bert" else ("[CLS]",)
        return headlens.load(build(family), toy_tokenizer(frame)), f"pairs:{path / 'p.jsonl'}"

    return made


def translation(path):
    rows = ["source\treference", *("\t".join(pair) for pair in zip(texts(12, 0), texts(12, 30), strict=True))]
    (path / "t.tsv").write_text("\n".join(rows))
    return headlens.load(build("bart"), toy_tokenizer()), f"translation:{path / 't.tsv'}"


MADE = {
    "classification": classifier,
    "probe": probe,
    "pairs, causal": pairs("llama"),
    "pairs, masked": pairs("bert"),
    "translation": translation,
    "language": lambda path: (
        headlens.load(build("gpt2"), toy_tokenizer(())),
        write_lines(path / "t.txt", 40),
    ),
    "similarity": lambda path: (
        headlens.load(build("albert"), toy_tokenizer()),
        write_pairs(path / "s.tsv", toy_pairs()),
    ),
    "harness": lambda path: (toytasks.lens_of(), f"harness:{toytasks.task(path)}"),
}


@pytest.mark.parametrize("mode", ["zero", "mean", "resample", "uniform"])
@pytest.mark.parametrize("kind", MADE)
def test_reuse_changes_no_number(tmp_path, kind, mode):
    if kind in ("translation", "harness"):
        pytest.importorskip({"translation": "sacrebleu", "harness": "lm_eval"}[kind])
    if (kind, mode) in (("translation", "resample"), ("probe", "uniform")):
        pytest.skip("refused, as other tests hold")
    lens, spec = MADE[kind](tmp_path)
    benchmark = open_benchmark(spec, lens, BenchmarkOptions(max_length=20))
    heads = lens.anatomy.heads
    conditions = [*each(Choice(lens.anatomy, heads))[1::3], Condition("some", heads[2::4])]
    plain, reusing = (Measuring(lens, benchmark, mode, prefix_memory=memory) for memory in (0, 2**30))
    expected, found = plain.values(conditions), reusing.values(conditions)
    for one, other in zip(expected, found, strict=True):
        np.testing.assert_allclose(other, one, atol=1e-5, rtol=1e-6)
    assert plain.facts == {"passes": 0, "reused": 0, "level": NOTHING}
    assert reusing.facts["level"] > NOTHING
    if kind != "translation":  # a model that writes word by word repeats no pass but those of its encoder
        assert reusing.facts["reused"] == reusing.facts["passes"] > 0
    assert reusing.note == ""
    assert any(not np.array_equal(values, plain.baseline()) for values in expected)


@pytest.mark.parametrize("mode", ["mean", "resample"])
def test_batches_change_no_number(tmp_path, mode):
    lens, spec = MADE["classification"](tmp_path)
    conditions = each(Choice(lens.anatomy, lens.anatomy.heads))
    found = [
        np.stack(
            Measuring(lens, open_benchmark(spec, lens, BenchmarkOptions(batch_size=size)), mode).values(
                conditions
            )
        )
        for size in (1, 3, None)
    ]
    np.testing.assert_allclose(found[1], found[0], atol=1e-6)
    np.testing.assert_allclose(found[2], found[0], atol=1e-6)


@pytest.mark.parametrize("mode", ["zero", "mean", "resample"])
@pytest.mark.parametrize("kind", ["classification", "probe", "language", "similarity", "pairs, masked"])
def test_parts_change_no_number(tmp_path, monkeypatch, kind, mode):
    lens, spec = MADE[kind](tmp_path)
    benchmark = open_benchmark(spec, lens, BenchmarkOptions(max_length=20))
    heads = lens.anatomy.heads
    conditions = [*each(Choice(lens.anatomy, heads))[::3], Condition("some", heads[1::4])]
    whole = Measuring(lens, benchmark, mode, prefix_memory=2**30)
    expected = whole.values(conditions)
    n = benchmark.facts["examples"]
    monkeypatch.setattr("headlens.ablation.measure.PART", n // 3)  # three parts, and what is left over
    units = Units(tmp_path / "run", {"key": 1})
    parted = Measuring(lens, benchmark, mode, units, prefix_memory=2**30)
    for one, other in zip(parted.values(conditions), expected, strict=True):
        np.testing.assert_allclose(one, other, atol=1e-6)
        assert len(one) == n
    np.testing.assert_allclose(parted.baseline(), whole.baseline(), atol=1e-6)
    assert parted.facts["reused"] == parted.facts["passes"] > 0
    again = Measuring(lens, benchmark, mode, Units(tmp_path / "run", {"key": 1}))
    np.testing.assert_array_equal(again.values(conditions), parted.values(conditions))
    assert again.reused == len(conditions)
