"""From sentences to model inputs, for encoders, decoders and encoder-decoders, and repeated random tokens."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from itertools import accumulate
from pathlib import Path
from typing import Any

import numpy as np
import torch

from headlens.corpus.corpus import Corpus, Document, InputFile, Sentence, Word
from headlens.corpus.read import read_files
from headlens.corpus.words import AlignmentError, Encoded, encode_words, word_spans
from headlens.errors import CorpusError, InputError

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


# ---- The decoder's side of encoder-decoder models: target texts, and what the decoder reads of them


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
        sentences = [sentence for _, sentence in read_files(path).sentences]
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
    for number, line in InputFile(path, "targets", CorpusError).lines():
        spans = word_spans(line)
        words = [
            Word(line[a:b], "", "", None, "", line[b : b + 1].isspace() or b == len(line)) for a, b in spans
        ]
        if words:
            sentences.append(Sentence(tuple(words), "", str(path), number))
    return sentences


# ---- Random tokens, repeated: what induction and duplicate-token heads are found on


N_INPUTS = 32
BLOCK = 24  # tokens that are repeated
REPEATS = 3
FEWEST = 4  # tokens that are worth repeating


def repeated_inputs(tokenizer: Any, longest: int, seed: int, known: int | None = None) -> Inputs:
    """Draw blocks of different random tokens and repeat each block three times (Olsson et al. 2022).

    The tokens are drawn from the tokenizer's whole vocabulary, special and reserved tokens left out, none
    twice in a block; special tokens stand around the input where the tokenizer puts them.

    Args:
        tokenizer: a tokenizer of `transformers`.
        longest: longest input in tokens; the block is shortened to fit.
        seed: of what is drawn.
        known: draw ids below this alone, as many as the model has embeddings for.

    Returns:
        32 inputs, each a unit of its own.

    Raises:
        InputError: inputs are too short, or the vocabulary too small, to repeat anything.
    """
    ordinary = [index for index in ordinary_tokens(tokenizer) if known is None or index < known]
    before, after = frame(tokenizer)
    length = _block_length(longest, len(ordinary), len(before) + len(after))
    generator = np.random.default_rng(seed)
    items = []
    for unit in range(N_INPUTS):
        block = generator.choice(ordinary, size=length, replace=False).tolist()
        items.append(Item(_repeated(tokenizer, block, REPEATS), unit, ()))
    return Inputs(items, N_INPUTS, "input")


def repeated_encoded(tokenizer: Any, length: int, repeats: int, seed: int) -> Encoded:
    """Draw one block of different random tokens and repeat it.

    Args:
        tokenizer: a tokenizer of `transformers`.
        length: tokens of the block.
        repeats: how often it stands there.
        seed: of what is drawn.

    Returns:
        The input, with special tokens where the tokenizer puts them.
    """
    drawn = np.random.default_rng(seed).choice(ordinary_tokens(tokenizer), size=length, replace=False)
    return _repeated(tokenizer, drawn.tolist(), repeats)


def _repeated(tokenizer: Any, block: list[int], repeats: int) -> Encoded:
    before, after = frame(tokenizer)
    ids = [*before, *block * repeats, *after]
    special = (True,) * len(before) + (False,) * (len(block) * repeats) + (True,) * len(after)
    return Encoded(
        inputs={"input_ids": ids},
        tokens=tuple(tokenizer.convert_ids_to_tokens(ids)),
        words=(None,) * len(ids),
        special=special,
        forms=(),
    )


def _block_length(longest: int, n_ordinary: int, n_special: int) -> int:
    if n_ordinary < FEWEST:
        raise InputError(
            f"The vocabulary has {n_ordinary} tokens that stand for text, too few to repeat at random.",
            "Leave induction and duplicate-token out of --tags.",
        )
    length = min(BLOCK, (longest - n_special) // REPEATS, n_ordinary)
    if length < FEWEST:
        raise InputError(
            f"Random tokens cannot be repeated three times within {longest} tokens.",
            f"Type --max-length {FEWEST * REPEATS + n_special} or more.",
        )
    return length


def frame(tokenizer: Any) -> tuple[list[int], list[int]]:
    """Find the special tokens that a tokenizer puts before and after a text."""
    coded = tokenizer("a", return_special_tokens_mask=True)
    ids, special = list(coded["input_ids"]), list(coded["special_tokens_mask"])
    text = [place for place, flag in enumerate(special) if not flag]
    return ids[: text[0]], ids[text[-1] + 1 :]


def ordinary_tokens(tokenizer: Any) -> list[int]:
    """List the ids of tokens that stand for text.

    Args:
        tokenizer: a tokenizer of `transformers`.

    Returns:
        Ids in order, without special tokens and without what is written like one ([unused7], <extra_id_3>).
    """
    special = set(tokenizer.all_special_ids)
    marks = (("[", "]"), ("<", ">"))
    return [
        index
        for token, index in sorted(tokenizer.get_vocab().items(), key=lambda entry: entry[1])
        if index not in special
        and not any(len(token) > 2 and token.startswith(a) and token.endswith(b) for a, b in marks)
    ]
