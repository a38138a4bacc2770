"""The decoder's side of encoder-decoder models: target texts, and what the decoder reads of them."""

from __future__ import annotations

import hashlib
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch

from headlens.errors import CorpusError, InputError
from headlens.text import files
from headlens.text.corpus import Corpus, Document, Sentence, Word
from headlens.text.inputs import Item
from headlens.text.lines import numbered_lines
from headlens.text.words import word_spans


class AsTarget:
    """A tokenizer that reads its text as the target: some use other pieces or language codes for it.

    Args:
        tokenizer: a tokenizer of `transformers`.
    """

    def __init__(self, tokenizer: Any) -> None:
        self._tokenizer = tokenizer

    def __call__(self, text: Any, pair: None = None, **options: Any) -> Any:
        """Tokenize a target."""
        return self._tokenizer(text_target=text, **options)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._tokenizer, name)


def decoder_ids(model: Any, labels: list[int]) -> list[int]:
    """Find the decoder's inputs for a target, as the model's own training makes them.

    Args:
        model: an encoder-decoder model.
        labels: the target's ids.

    Returns:
        As many ids: a start token, then the target without its last token (some models move a language
        code to the front instead).

    Raises:
        InputError: the model's config states no start token.
    """
    shift = getattr(model, "prepare_decoder_input_ids_from_labels", None)
    if shift is not None:
        return [int(index) for index in shift(labels=torch.tensor([labels]))[0]]
    return [start_id(model), *labels[:-1]]


def start_id(model: Any) -> int:
    """The id that a decoder begins with.

    Args:
        model: an encoder-decoder model.

    Returns:
        The id.

    Raises:
        InputError: the model's config states none.
    """
    start = model.config.decoder_start_token_id
    if start is None:
        raise InputError(
            f"The config of this {type(model).__name__} states no decoder_start_token_id, so its decoder has "
            "nothing to begin with.",
            "Set model.config.decoder_start_token_id.",
        )
    return int(start)


def as_decoder_input(model: Any, item: Item) -> Item:
    """Shift a target to what the decoder reads of it.

    Args:
        model: an encoder-decoder model.
        item: a target, as its tokenizer gives it.

    Returns:
        The same words at the places where the decoder reads them.
    """
    encoded = item.encoded
    ids = decoder_ids(model, encoded.inputs["input_ids"])
    shifted = replace(
        encoded,
        inputs={"input_ids": ids},
        tokens=("", *encoded.tokens[:-1]),
        words=(None, *encoded.words[:-1]),
        special=(True, *encoded.special[:-1]),
    )
    return replace(item, encoded=shifted)


def read_targets(path: Path, corpus: Corpus) -> Corpus:
    """Read the targets of a corpus: its translation, say, sentence by sentence.

    Args:
        path: a treebank, or plain text (``.txt``) with a sentence on each line.
        corpus: the sources.

    Returns:
        The targets, in the documents of the sources.

    Raises:
        CorpusError: it cannot be read, or has more or fewer sentences than the corpus.
    """
    if path.suffix.lower() == ".txt":
        sentences = _lines(path)
    else:
        sentences = [sentence for _, sentence in files.read_corpus(path).sentences]
    n_sources = sum(len(document.sentences) for document in corpus.documents)
    if len(sentences) != n_sources:
        raise CorpusError(
            f"Expected {n_sources} targets, one for each sentence of the corpus, found {len(sentences)} in "
            f"{path}.",
            "Give as many targets as sentences, in the same order.",
        )
    documents, place = [], 0
    for document in corpus.documents:
        mine = tuple(sentences[place : place + len(document.sentences)])
        documents.append(Document(document.name, mine, ()))
        place += len(mine)
    trees = all(sentence.has_tree for sentence in sentences)
    return Corpus(tuple(documents), (str(path),), "", trees, False, corpus.has_documents)


def _lines(path: Path) -> list[Sentence]:
    sentences = []
    for number, line in numbered_lines(path, hashlib.sha256(), "targets"):
        spans = word_spans(line)
        words = [
            Word(line[a:b], "", "", None, "", line[b : b + 1].isspace() or b == len(line)) for a, b in spans
        ]
        if words:
            sentences.append(Sentence(tuple(words), "", str(path), number))
    return sentences
