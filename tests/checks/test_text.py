"""Tokens and words, with tokenizers that lose, double or shift them."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from tokenizers import Tokenizer, models, normalizers, pre_tokenizers, processors
from transformers import PreTrainedTokenizerFast

import headlens
from headlens.benchmarks.registry import open_benchmark
from headlens.checks.check import CHECKS, finding_of
from headlens.checks.inputs import TEXTS, Subject, sample, unknown_ids
from headlens.corpus.words import word_spans
from headlens.errors import InputError
from headlens.model.lens import of_texts
from support.families import build
from support.toytext import toy_tokenizer


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
        return finding_of(CHECKS[name], subject)


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


def test_words_without_embedding_fail_and_added_padding_is_a_remark():
    tokenizer = english()
    n = len(tokenizer)
    tokenizer.add_special_tokens({"pad_token": "<filler>"})
    finding = found(tokenizer, "tokens", n)
    assert finding.passed
    assert finding.said.endswith(
        " tokens are those of the tokenizer (1 special token without embedding: <filler>)"
    )
    assert found(tokenizer, "padding", n).passed  # filled up with an id that the model knows
    tokenizer.add_tokens(["zebra"])
    finding = found(tokenizer, "tokens", n)
    assert (finding.passed, finding.said) == (
        False,
        f"the model has no embedding for 1 token of the tokenizer, such as 'zebra' ({n + 1}); it knows ids "
        f"below {n}",
    )
    assert found(tokenizer, "tokens", n + 2).passed


def test_texts_with_ids_that_the_model_does_not_know_are_refused_everywhere(tmp_path):
    tokenizer = english()
    n = len(tokenizer)
    tokenizer.add_tokens(["zebra"])
    lens = headlens.load(build("bert"), tokenizer)
    lens.model.resize_token_embeddings(n)
    texts, pairs = tmp_path / "t.txt", tmp_path / "p.tsv"
    texts.write_text("It had a zebra\n")
    lines = [f"It had\tIt had {'a zebra' if i == 11 else 'paid'}\t{i}" for i in range(12)]
    pairs.write_text("\n".join(["text_a\ttext_b\tscore", *lines]) + "\n")
    benchmark = open_benchmark(f"similarity:{pairs}", lens)
    for act in (
        lambda: lens.attention("It had a zebra"),
        lambda: headlens.classify(lens, str(texts), tags=["positional"]),
        lambda: headlens.similar(lens, str(texts)),
        lambda: of_texts(lens, ["It had", "a zebra"], lens.anatomy.heads),
        lambda: benchmark.measure(lens),
    ):
        with pytest.raises(InputError) as caught:
            act()
        assert str(caught.value) == (
            f"The tokenizer made the token id {n}, but the model knows only ids below {n}. Give the "
            "tokenizer that belongs to this model."
        )
