"""Tokens and words, with tokenizers that lose, double or shift them."""

from __future__ import annotations

from typing import Any

import torch
from tokenizers import Tokenizer, models, normalizers, pre_tokenizers, processors
from transformers import PreTrainedTokenizerFast

import headlens
from families import build
from headlens.checks import CHECKS
from headlens.checks.checking import finding_of
from headlens.checks.subject import Subject
from headlens.checks.texts import TEXTS, sample, unknown_ids
from headlens.text.words import word_spans
from toytext import toy_tokenizer


def english(lost: str | None = None, n_words: int = 200) -> PreTrainedTokenizerFast:
    """A tokenizer that knows the words of the sample; one of them it can lose."""
    forms = sorted({text[a:b] for text in TEXTS for a, b in word_spans(text)})[:n_words]
    vocabulary = {word: i for i, word in enumerate(["[PAD]", "[UNK]", "[BOS]", *forms])}
    inner = Tokenizer(models.WordLevel(vocabulary, unk_token="[UNK]"))
    inner.pre_tokenizer = pre_tokenizers.Split(" ", "removed")
    if lost is not None:
        inner.normalizer = normalizers.Replace(lost, "")
    inner.post_processor = processors.TemplateProcessing(single="[BOS] $A", special_tokens=[("[BOS]", 2)])
    return PreTrainedTokenizerFast(
        tokenizer_object=inner, pad_token="[PAD]", unk_token="[UNK]", bos_token="[BOS]", model_max_length=60
    )


class Told:
    """A tokenizer that does something else when it is asked for more than ids."""

    def __init__(self, inner: Any, change: Any) -> None:
        self._inner, self._change = inner, change

    def __call__(self, *texts: Any, **options: Any) -> Any:
        coded = self._inner(*texts, **options)
        return self._change(coded) if options else coded

    def __getattr__(self, name: str) -> Any:
        return getattr(self._inner, name)


def found(tokenizer, name, vocabulary=200):
    lens = headlens.load(build("bert"), tokenizer)
    lens.model.resize_token_embeddings(vocabulary)
    subject = Subject(lens)
    with torch.no_grad(), lens.seam.alone():
        return finding_of(name, CHECKS[name], subject)


def test_tokens_and_words_of_the_sample():
    assert found(english(), "tokens").passed
    words = found(english(), "words")
    n = sum(len(sentence.forms) for _, sentence in sample().sentences)
    assert (words.passed, words.said) == (True, f"the pieces of {n} words spell them")


def test_words_that_are_unknown():
    finding = found(english(n_words=20), "words")
    assert finding.passed
    assert "more are unknown to the tokenizer" in finding.said
    assert unknown_ids(toy_tokenizer()) == {4}  # which does not say that it has any


def test_sentences_are_read_where_the_tokenizer_knows_them():
    lens = headlens.load(build("bert"), english())
    lens.model.resize_token_embeddings(200)
    assert [bool(source.encoded.forms) for source, _ in Subject(lens).pairs] == [True] * 3
    lens = headlens.load(build("bert"), toy_tokenizer())
    assert not any(source.encoded.forms for source, _ in Subject(lens).pairs)


def test_a_token_that_is_doubled():
    def double(coded):
        for name in list(coded):
            coded[name] = [coded[name][0], *coded[name]]
        sequence = [None, *coded.sequence_ids()]
        coded.sequence_ids = lambda: sequence
        coded.word_ids = lambda: sequence
        return coded

    finding = found(Told(english(), double), "tokens")
    assert not finding.passed
    assert finding.said.startswith("'It had paid a lower price for it.' is read as ")
    assert "from token 0 on they are [2, 2, " in finding.said


def test_tokens_that_the_model_does_not_know():
    finding = found(english(), "tokens", vocabulary=30)
    assert not finding.passed
    assert finding.said.endswith("the model knows ids below 30")
    assert found(english(), "padding", vocabulary=30).passed  # random tokens are read instead


def test_a_word_that_is_lost():
    finding = found(english(lost="torch"), "words")
    assert not finding.passed
    assert finding.said.endswith("The tokenizer makes no piece for the word 'torch'.")


def test_pieces_of_another_word():
    def shift(coded):
        words = coded.word_ids()
        coded.word_ids = lambda: [None, *words[:0:-1]]
        return coded

    tokenizer = Told(english(), shift)
    finding = found(tokenizer, "words")
    assert not finding.passed
    assert finding.said == "the pieces of 'It' in 'It had paid a lower price for it.' spell '.'"
