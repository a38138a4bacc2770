"""The attention mask decides what is padding, and nothing else: not the id, and not the end of a text."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest

import headlens
from headlens.benchmarks.base import BenchmarkOptions
from headlens.benchmarks.registry import open_benchmark
from headlens.corpus.read import read_files
from headlens.scoring.classify import classify
from headlens.scoring.passes import RunOptions
from headlens.similarity.similar import similar
from support.families import build
from support.toytext import toy_text, toy_tokenizer


def lens_of(family, pad):
    """The padding token is a token of its own, or the one that ends every text and stands inside some."""
    tokenizer = toy_tokenizer()
    tokenizer.pad_token = pad
    tokenizer.eos_token = "[SEP]"
    return headlens.load(build(family), tokenizer)


def texts():
    return [
        toy_text(2 + i % 7, i) + (" [SEP] " + toy_text(3, 50 + i) if i % 3 == 0 else "") for i in range(24)
    ]


@pytest.fixture
def corpus(tmp_path):
    lines = []
    for text in texts():
        for i, word in enumerate(text.split(), 1):
            arc = "0\troot" if i == 1 else f"{i - 1}\tobj"
            lines.append(f"{i}\t{word}\t{word}\tNOUN\t_\t_\t{arc}\t_\t_")
        lines.append("")
    (tmp_path / "x.conllu").write_text("\n".join(lines) + "\n")
    return read_files(tmp_path / "x.conllu")


@pytest.mark.parametrize("family", ["bert", "gpt2"])
def test_scores_where_texts_hold_the_padding_token(corpus, family):
    tags = ["positional", "delimiter", "syntactic", "broad"]
    tables = [
        classify(
            lens_of(family, pad), corpus, tags, reading=RunOptions(batch_size=size, pad_left=left)
        ).scores
        for pad, size, left in (
            ("[PAD]", 1, False),
            ("[SEP]", 1, False),
            ("[SEP]", 8, False),
            ("[SEP]", 8, True),
        )
    ]
    for table in tables[1:]:
        pd.testing.assert_frame_equal(table, tables[0], atol=1e-5, rtol=1e-4)


@pytest.mark.parametrize("family", ["bert", "gpt2"])
def test_distances_where_texts_hold_the_padding_token(corpus, family):
    found = [
        similar(lens_of(family, pad), corpus, reading=RunOptions(batch_size=size)).distances[["js", "cka"]]
        for pad, size in (("[PAD]", 1), ("[SEP]", 8))
    ]
    np.testing.assert_allclose(found[0], found[1], atol=1e-5)


@pytest.mark.parametrize(
    ("family", "kind"), [("bert", "similarity"), ("gpt2", "similarity"), ("gpt2", "language")]
)
def test_benchmarks_where_texts_hold_the_padding_token(tmp_path, family, kind):
    mine = texts()
    if kind == "language":
        (tmp_path / "x").write_text("\n".join(mine * 2))
    else:
        rows = [f"{a}\t{b}\t{i}" for i, (a, b) in enumerate(zip(mine, reversed(mine), strict=True))]
        (tmp_path / "x").write_text("\n".join(["text_a\ttext_b\tscore", *rows]))
    found = []
    for pad, size in (("[PAD]", 1), ("[SEP]", 1), ("[SEP]", 8)):
        lens = lens_of(family, pad)
        options = BenchmarkOptions(batch_size=size, max_length=24)
        found.append(open_benchmark(f"{kind}:{tmp_path / 'x'}", lens, options).measure(lens))
    for values in found[1:]:
        np.testing.assert_allclose(values, found[0], atol=1e-5)


def test_options_hold_for_every_file_of_a_list(tmp_path, corpus):
    """Several files are what one file of all of them is, whatever else is asked for."""
    lines = (tmp_path / "x.conllu").read_text().split("\n\n")[:-1]
    halves = ["\n\n".join(["# newdoc\n" + part[0], *part[1:]]) + "\n\n" for part in (lines[:12], lines[12:])]
    for name, text in (("a", halves[0]), ("b", halves[1]), ("c", "".join(halves))):
        (tmp_path / f"{name}.conllu").write_text(text)
    lens, reading = lens_of("bert", "[PAD]"), RunOptions(max_length=8, norms=True)
    several, one = (
        classify(
            lens, [tmp_path / f"{name}.conllu" for name in names], ["delimiter", "broad"], reading=reading
        )
        for names in ("ab", "c")
    )
    pd.testing.assert_frame_equal(several.scores, one.scores)
    plain = classify(lens, tmp_path / "c.conllu", ["delimiter", "broad"])
    assert plain.scores["n"].max() > one.scores["n"].max() > 0
