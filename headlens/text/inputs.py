"""What a model reads of a corpus: one sentence at a time, or consecutive sentences of a document."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from itertools import accumulate
from typing import Any

from headlens.text.corpus import Corpus, Document, Sentence, Word
from headlens.text.words import AlignmentError, Encoded, encode_words

MIN_DOCUMENTS = 10  # with fewer, inputs instead of documents are resampled


@dataclass(frozen=True, slots=True)
class GoldMention:
    """A mention, in the words of its input.

    Args:
        entity: id of its entity.
        head: index of its head word in the input.
        kind: "pronoun", "proper" or "nominal".
    """

    entity: str
    head: int
    kind: str


@dataclass(frozen=True, slots=True)
class Item:
    """One input with what is known about its words.

    Args:
        encoded: the input.
        unit: what it belongs to when units are resampled.
        words: its words, as many as `encoded.forms`; their heads are indices within their own sentence.
        starts: index of the first word of each sentence.
        mentions: the mentions inside, in order of their head words.
        place: number of the sentence in the corpus, where it is one sentence.
    """

    encoded: Encoded
    unit: int
    words: tuple[Word, ...]
    starts: tuple[int, ...] = (0,)
    mentions: tuple[GoldMention, ...] = ()
    place: int = 0


@dataclass(slots=True)
class Inputs:
    """All inputs made from a corpus, and what was left out of them.

    Args:
        items: in corpus order.
        n_units: number of units.
        unit: "document", "sentence" or "window": what a unit is.
        left_out: how many sentences were left out, by reason.
    """

    items: list[Item]
    n_units: int
    unit: str
    left_out: Counter[str] = field(default_factory=Counter)


def sentence_inputs(corpus: Corpus, tokenizer: Any, max_length: int) -> Inputs:
    """Make one input of every sentence.

    Args:
        corpus: the corpus.
        tokenizer: a tokenizer of `transformers`.
        max_length: longest input in tokens, special ones included.

    Returns:
        The inputs; sentences that are too long, or whose words lose their pieces, are left out and counted.
    """
    by_document = len(corpus.documents) >= MIN_DOCUMENTS
    made = Inputs([], 0, "document" if by_document else "sentence")
    for place, (index, sentence) in enumerate(corpus.sentences):
        encoded = _encode(tokenizer, [sentence], max_length, made.left_out)
        if encoded is not None:
            unit = index if by_document else len(made.items)
            made.items.append(Item(encoded, unit, sentence.words, place=place))
    made.n_units = len(corpus.documents) if by_document else len(made.items)
    return made


def window_inputs(corpus: Corpus, tokenizer: Any, max_length: int) -> Inputs:
    """Pack consecutive whole sentences of one document into inputs (Clark et al. 2019: 128 tokens).

    Args:
        corpus: the corpus.
        tokenizer: a tokenizer of `transformers`.
        max_length: longest input in tokens, special ones included.

    Returns:
        The inputs, with their mentions; sentences that do not fit alone are left out and counted.
    """
    by_document = len(corpus.documents) >= MIN_DOCUMENTS
    made = Inputs([], 0, "document" if by_document else "window")
    for index, document in enumerate(corpus.documents):
        for window in _windows(document, tokenizer, max_length, made.left_out):
            for part, encoded in _fitting(document, window, tokenizer, max_length, made.left_out):
                unit = index if by_document else len(made.items)
                made.items.append(_window_item(document, part, encoded, unit))
    made.n_units = len(corpus.documents) if by_document else len(made.items)
    return made


def _windows(
    document: Document, tokenizer: Any, max_length: int, left_out: Counter[str]
) -> Iterator[list[int]]:
    """Indices of sentences that go together; a sentence that cannot be read ends a window."""
    added = tokenizer.num_special_tokens_to_add()
    window: list[int] = []
    length = added
    for index, sentence in enumerate(document.sentences):
        encoded = _encode(tokenizer, [sentence], max_length, left_out)
        pieces = max_length if encoded is None else len(encoded) - sum(encoded.special)
        if window and length + pieces > max_length:
            yield window
            window, length = [], added
        if encoded is not None:
            window.append(index)
            length += pieces
    if window:
        yield window


def _fitting(
    document: Document, window: list[int], tokenizer: Any, max_length: int, left_out: Counter[str]
) -> Iterator[tuple[list[int], Encoded]]:
    """Tokenize sentences side by side; together they can have more pieces than alone, and are then parted."""
    alone = Counter[str]()
    encoded = _encode(tokenizer, [document.sentences[i] for i in window], max_length, alone)
    if encoded is not None:
        yield window, encoded
    elif len(window) > 1:
        half = len(window) // 2
        for part in (window[:half], window[half:]):
            yield from _fitting(document, part, tokenizer, max_length, left_out)
    else:
        left_out.update(alone)


def _window_item(document: Document, window: Sequence[int], encoded: Encoded, unit: int) -> Item:
    sentences = [document.sentences[index] for index in window]
    starts = list(accumulate((len(s.words) for s in sentences[:-1]), initial=0))
    place = dict(zip(window, starts, strict=True))
    mentions = [
        GoldMention(mention.entity, place[mention.sentence] + mention.head, mention.kind)
        for mention in document.mentions
        if mention.sentence in place
    ]
    words = tuple(word for sentence in sentences for word in sentence.words)
    return Item(encoded, unit, words, tuple(starts), tuple(sorted(mentions, key=lambda m: m.head)))


def _encode(
    tokenizer: Any, sentences: Sequence[Sentence], max_length: int, left_out: Counter[str]
) -> Encoded | None:
    forms = [word.form for sentence in sentences for word in sentence.words]
    blanks = any(word.space_after for sentence in sentences for word in sentence.words[:-1])
    try:
        encoded = encode_words(tokenizer, forms, blanks or len(forms) == 1)
    except AlignmentError:
        left_out["words without pieces"] += len(sentences)
        return None
    if len(encoded) > max_length:
        left_out[f"longer than {max_length} tokens"] += len(sentences)
        return None
    return encoded
