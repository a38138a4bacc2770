"""What a run keeps of single inputs, for its report."""

import base64
import json
import zlib

import numpy as np
import pytest

import headlens
from headlens.benchmarks.registry import sample_benchmark
from headlens.corpus.inputs import sentence_inputs
from headlens.errors import InputError
from headlens.model.heads import Head
from headlens.report import viewer as examples
from headlens.runs.read import Marks
from headlens.runs.result import EXAMPLES
from headlens.scoring.classify import read_corpus
from support import families, toys


def test_sentences_that_show_many_relations_and_repeated_tokens():
    lens, corpus = toys.minilm(), read_corpus(None)
    found = examples.of_corpus(lens, corpus)
    sentences = [sentence for _, sentence in corpus.sentences]
    texts = [sentence.text for sentence in sentences]
    assert len(found) == examples.COUNT + 1
    chosen = [texts.index(title) for title, _ in found[:-1]]
    fits = [i for i, text in enumerate(texts) if len(lens.tokenizer(text)["input_ids"]) <= examples.LONGEST]
    kinds = [{word.deprel for word in sentence.words} for sentence in sentences]
    assert len(kinds[chosen[0]]) == max(len(kinds[i]) for i in fits)
    shown = set.union(*(kinds[i] for i in chosen))
    assert len(shown) > 1.5 * len(kinds[chosen[0]])
    title, repeated = found[-1]
    assert title == "Random tokens, repeated once"
    assert repeated.tokens[1:9] == repeated.tokens[9:17]
    assert len(set(repeated.tokens[1:9])) == 8


def test_a_large_corpus_is_not_tokenized_again_for_examples(monkeypatch):
    corpus = read_corpus(None)
    monkeypatch.setattr(examples, "CHOSEN_FROM", 30)
    read = []
    monkeypatch.setattr(
        examples, "sentence_inputs", lambda made, *rest: read.append(made) or sentence_inputs(made, *rest)
    )
    found = examples.of_corpus(toys.minilm(), corpus)
    assert sum(len(document.sentences) for document in read[0].documents) == 30
    first = [sentence.text for _, sentence in corpus.sentences][:30]
    assert all(title in first for title, _ in found[:-1])


def test_weights_are_those_of_the_text_alone():
    lens = toys.minilm()
    made = examples.of_corpus(lens, read_corpus(None))[:-1]
    alone = [(maps, lens.attention(title)) for title, maps in made]
    same = [(maps, whole) for maps, whole in alone if maps.tokens == whole.tokens]
    assert len(same) >= 2  # of the others some words are written apart: "do" and "n't"
    for maps, whole in same:
        for head in (Head("encoder", 0, 0), Head("encoder", 5, 11)):
            assert (maps.pattern(head) - whole.pattern(head)).abs().max() < 1e-6


def test_inputs_of_a_benchmark_with_their_words():
    lens = toys.minilm()
    benchmark = sample_benchmark(lens)
    found = examples.of_benchmark(lens, benchmark)
    assert len(found) == examples.COUNT
    for (_, maps), ids in zip(found, [row for row in benchmark.to_show if len(row) <= 40], strict=False):
        assert len(maps.tokens) == len(ids)
        assert len(maps.to_words().tokens) <= len(ids)
        assert maps.axes["encoder"][0].special[0]


def test_a_benchmark_without_single_inputs_has_no_examples():
    assert examples.of_benchmark(toys.minilm(), object()) == []


def test_the_encoder_alone_of_an_encoder_decoder_model():
    lens = headlens.load(families.build("t5"), toys.word_tokenizer())
    found = examples.of_corpus(lens, read_corpus(None))
    assert {head.stack for _, maps in found for head in maps.heads} == {"encoder"}


def test_the_file_holds_the_weights_and_the_tags(tmp_path):
    lens = toys.minilm()
    made = examples.of_corpus(lens, read_corpus(None))
    examples.save_examples(tmp_path, made, Marks({Head("encoder", 2, 0): ("syntactic",)}))
    data = json.loads((tmp_path / EXAMPLES).read_text())
    assert [text["title"] for text in data["texts"]] == [title for title, _ in made]
    assert next(head for head in data["heads"] if head["name"] == "2.0")["tags"] == ["syntactic"]
    text, maps = data["texts"][0], made[0][1]
    codes = np.frombuffer(zlib.decompress(base64.b64decode(text["maps"]["2.0"])), np.uint8)
    n = len(maps.tokens)
    weights = np.array(text["levels"])[codes].reshape(n, n).T  # they stand key by key
    assert np.abs(weights - maps.pattern(Head("encoder", 2, 0)).numpy()).max() < 0.003
    examples.save_examples(tmp_path / "none", [], Marks())
    assert not (tmp_path / "none").exists()


def test_a_run_is_not_lost_over_its_examples():
    def refuse(*_):
        raise InputError("Too large.", "Choose fewer.")

    assert examples.attempt(refuse) == []
    with pytest.raises(ZeroDivisionError):  # a fault of ours is not hidden
        examples.attempt(lambda: 1 / 0)
