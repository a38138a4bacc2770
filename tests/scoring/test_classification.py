"""Classifying whole corpora: nothing about how it is run changes a score, and bad input is told."""

from __future__ import annotations

import numpy as np
import pytest
import torch

import headlens
from headlens.corpus.conllu import read_conllu
from headlens.corpus.corpus import Corpus, Document
from headlens.errors import CorpusError, InputError
from headlens.scoring.classify import RunOptions, read_corpus
from headlens.scoring.scorers import SCORERS
from support import planted, real, toys
from support.families import build

NUMBERS = ["score", "baseline", "effect", "ci_low", "ci_high", "n"]


def small(corpus: Corpus, n_documents: int = 10, n_sentences: int = 4) -> Corpus:
    documents = tuple(
        Document(
            document.name,
            document.sentences[:n_sentences],
            tuple(mention for mention in document.mentions if mention.sentence < n_sentences),
        )
        for document in corpus.documents[:n_documents]
    )
    return Corpus(documents, corpus.paths, corpus.sha256, True, True, True)


@pytest.fixture(scope="module")
def minilm():
    return headlens.load(real.need_minilm())


@pytest.fixture(scope="module")
def sample():
    return small(read_corpus(None))


@pytest.fixture(scope="module")
def expected(minilm, sample):
    return headlens.classify(minilm, sample)


@pytest.mark.parametrize(
    "reading",
    [
        RunOptions(batch_size=1),
        RunOptions(batch_size=3),
        RunOptions(batch_size=8),
        RunOptions(batch_size=8, pad_left=True),
        RunOptions(block_size=1),
        RunOptions(block_size=5, batch_size=3, pad_left=True),
    ],
    ids=["one", "three", "eight", "eight-left", "blocks-of-one", "all-at-once"],
)
@pytest.mark.slow
def test_how_it_is_run_changes_no_score(minilm, sample, expected, reading):
    found = headlens.classify(minilm, sample, reading=reading)
    for column in NUMBERS:
        np.testing.assert_allclose(
            found.scores[column].to_numpy(float), expected.scores[column].to_numpy(float), atol=1e-5, rtol=0
        )
    assert found.tags["tags"].tolist() == expected.tags["tags"].tolist()


def test_same_answer_twice(minilm, sample, expected):
    again = headlens.classify(minilm, sample)
    assert again.scores.equals(expected.scores)
    assert again.tags.equals(expected.tags)


def test_left_padding_of_a_causal_model(tmp_path):
    path = tmp_path / "planted.conllu"
    path.write_text(planted.corpus_text(n_documents=3), encoding="utf-8")
    corpus = read_conllu([path])
    lens = headlens.load(
        planted.gpt2({0: planted.previous_token(), 2: planted.gold_arc()}), planted.tokenizer(False)
    )
    right, left = (
        headlens.classify(lens, corpus, reading=RunOptions(8, pad_left=pad)) for pad in (False, True)
    )
    for column in NUMBERS:
        np.testing.assert_allclose(
            left.scores[column].to_numpy(float), right.scores[column].to_numpy(float), atol=1e-5, rtol=0
        )


def test_few_documents_are_resampled_by_sentence(tmp_path):
    path = tmp_path / "planted.conllu"
    path.write_text(planted.corpus_text(n_documents=3), encoding="utf-8")
    lens = headlens.load(planted.bert({2: planted.gold_arc()}), planted.tokenizer())
    facts = headlens.classify(lens, path).run
    assert facts["inputs"]["sentences"]["resampled"] == "21 sentences"
    assert facts["inputs"]["windows"]["resampled"].endswith("windows")


@pytest.mark.slow
def test_known_tags_of_minilm(minilm):
    found = headlens.classify(minilm)
    tags = {(row.layer, row.head): row.tags.split(";") for row in found.tags.itertuples()}
    scores = found.scores
    assert "positional" in tags[0, 2]
    assert "syntactic" in tags[2, 0]
    row = scores[
        (scores.layer == 2) & (scores["head"] == 0) & (scores.measure == "obj:dependent->head")
    ].iloc[0]
    assert row.score > 0.75
    assert row.baseline < 0.45
    assert found.run["corpus"]["sentences"] == 219


def test_too_long_sentences_are_left_out_and_counted(minilm, sample):
    found = headlens.classify(minilm, sample, ["positional"], reading=RunOptions(max_length=14))
    inputs = found.run["inputs"]["sentences"]
    total = found.run["corpus"]["sentences"]
    assert inputs["read"] + inputs["left_out"]["longer than 14 tokens"] == total
    assert 0 < inputs["read"] < total


@pytest.mark.slow
def test_gum_in_one_go(minilm):
    path = real.data("ud_english_gum/en_gum-ud-dev.conllu")
    corpus = small(read_conllu([path]), 12, 8)
    found = headlens.classify(minilm, corpus, ["syntactic", "coreference"])
    assert set(found.scores["tag"]) == {"syntactic", "coreference"}
    assert found.scores["tagged"].any()


@pytest.mark.slow
def test_a_real_decoder(sample):
    lens = toys.smollm2()
    found = headlens.classify(lens, small(sample, 2), ["positional", "delimiter", "syntactic"])
    assert len(found.tags) == 270
    sinks = found.scores[(found.scores["measure"] == "first-token") & found.scores["tagged"]]
    assert len(sinks) > 100
    assert found.scores[found.scores["measure"] == "argmax@+1"]["score"].isna().all()


class TestErrors:
    def corpus(self, tmp_path, text):
        path = tmp_path / "x.conllu"
        path.write_text(text, encoding="utf-8")
        return path

    def test_unknown_tag(self, minilm):
        with pytest.raises(InputError) as error:
            headlens.classify(minilm, tags=["syntax"])
        assert str(error.value) == (
            "There is no tag 'syntax'. Choose from: positional, delimiter, syntactic, coreference, semantic, "
            "induction, duplicate-token, rare-token, broad."
        )

    def test_no_trees(self, minilm, tmp_path):
        path = self.corpus(tmp_path, "1\tHi\thi\tINTJ\t_\t_\t_\t_\t_\t_\n\n")
        with pytest.raises(CorpusError) as error:
            headlens.classify(minilm, path, ["syntactic"])
        assert str(error.value) == (
            f"{path} has no dependency trees, which the tag syntactic needs. Give another corpus, or leave "
            "syntactic out of --tags."
        )
        found = headlens.classify(minilm, path)  # the other tags can do without
        assert set(found.scores["tag"]) == set(SCORERS) - {"syntactic", "coreference"}

    def test_nothing_fits(self, minilm, tmp_path):
        words = "\n".join(f"{i}\tdog\tdog\tNOUN\t_\t_\t{i - 1}\troot\t_\t_" for i in range(1, 10))
        with pytest.raises(CorpusError) as error:
            headlens.classify(minilm, self.corpus(tmp_path, f"{words}\n\n"), reading=RunOptions(max_length=5))
        assert "can be used: 1 longer than 5 tokens." in str(error.value)

    def test_too_long_for_the_model(self, minilm):
        with pytest.raises(InputError) as error:
            headlens.classify(minilm, reading=RunOptions(max_length=600))
        assert str(error.value) == "The model takes at most 512 tokens, not 600. Type --max-length 512."

    def test_no_tokenizer(self, sample):
        with pytest.raises(InputError, match="came without a tokenizer"):
            headlens.classify(headlens.load(build("bert")), sample)


def test_training_mode_comes_back(sample):
    model = planted.bert({}).train()
    headlens.classify(headlens.load(model, planted.tokenizer()), small(sample, 2), ["positional"])
    assert all(module.training for module in model.modules())
    assert all(isinstance(p, torch.nn.Parameter) and p.grad is None for p in model.parameters())
