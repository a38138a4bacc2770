"""Words from tokens: which pieces of a tokenizer's output belong to which word."""

from __future__ import annotations

import unicodedata
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from headlens.errors import InputError


class AlignmentError(InputError):
    """Words that cannot be found again in a tokenizer's pieces; the message says why."""


@dataclass(frozen=True, slots=True)
class Encoded:
    """One input of a model, with its words.

    Args:
        inputs: what the tokenizer returns for the model: input_ids, and token_type_ids where it has them.
        tokens: the tokenizer's own pieces, special ones included.
        words: for each piece the index of its word, None for special pieces and pieces of no word.
        special: for each piece whether the tokenizer added it ([CLS], <s>, ...).
        forms: the words.
    """

    inputs: dict[str, list[int]]
    tokens: tuple[str, ...]
    words: tuple[int | None, ...]
    special: tuple[bool, ...]
    forms: tuple[str, ...]

    def __len__(self) -> int:
        return len(self.tokens)


def encode_words(tokenizer: Any, forms: Sequence[str], blanks: bool = True) -> Encoded:
    """Tokenize a sentence that is given as words.

    The words are handed over as such (`is_split_into_words`) where that gives every word a piece and the
    tokens are those of the words written with blanks between them; byte-level tokenizers that mark blanks
    fail the second test, so for them the written words are tokenized and pieces are placed by offsets.

    Args:
        tokenizer: a tokenizer of `transformers`.
        forms: the words.
        blanks: whether the language writes blanks between words; without them, words are always
            tokenized one by one.

    Returns:
        The input, every word owning at least one piece.

    Raises:
        AlignmentError: some word owns no piece.
    """
    split = _split_words(tokenizer, forms)
    text = " ".join(forms)
    if (
        split is not None
        and _complete(split, len(forms))
        and (not blanks or split.inputs["input_ids"] == tokenizer(text)["input_ids"])
    ):
        return split
    placed = encode_text(tokenizer, text)
    placed = _with_words(placed, _by_spans(placed, _spans_of(forms), _offsets(tokenizer, text)), forms)
    if _complete(placed, len(forms)):
        return placed
    owned = set(placed.words)
    lost = next((form for index, form in enumerate(forms) if index not in owned), forms[0])
    raise AlignmentError(f"The tokenizer makes no piece for the word {lost!r}.")


def encode_text(tokenizer: Any, text: str, pair: str | None = None) -> Encoded:
    """Tokenize running text; its words are runs of letters and digits, and single signs.

    Args:
        tokenizer: a tokenizer of `transformers`.
        text: the text.
        pair: a second text, for models that read two.

    Returns:
        The input; words are counted through both texts.

    Raises:
        InputError: the text is empty.
    """
    for name, given in (("text", text), ("second text", pair)):
        if given is not None and not given.strip():
            raise InputError(f"The {name} is empty.", "Give at least one word.")
    coded = tokenizer(text, pair, return_special_tokens_mask=True)
    spans = [word_spans(text)] + ([word_spans(pair)] if pair is not None else [])
    forms = [part[a:b] for part, found in zip((text, pair), spans, strict=False) if part for a, b in found]
    blank = _encoded(tokenizer, coded, [None] * len(coded["input_ids"]), forms)
    flat = [(part, a, b) for part, found in enumerate(spans) for a, b in found]
    return _with_words(blank, _by_spans(blank, flat, _offsets(tokenizer, text, pair)), forms)


def word_spans(text: str) -> list[tuple[int, int]]:
    """Find the words of running text in any script.

    Args:
        text: the text.

    Returns:
        (start, end) of every word: a run of letters, marks and digits, or one sign.
    """
    spans: list[tuple[int, int]] = []
    start: int | None = None
    for index, char in enumerate(text):
        sign = unicodedata.category(char)[0] in "PS" and not _inside_word(text, index)
        if start is not None and (sign or char.isspace()):
            spans.append((start, index))
            start = None
        if sign:
            spans.append((index, index + 1))
        elif start is None and not char.isspace():
            start = index
    return spans if start is None else [*spans, (start, len(text))]


def _inside_word(text: str, index: int) -> bool:
    """Whether an apostrophe stands between two letters, as in "don't"."""
    around = text[index - 1 : index] + text[index + 1 : index + 2]
    return text[index] in "'\u2019" and len(around) == 2 and around.isalpha()


def _split_words(tokenizer: Any, forms: Sequence[str]) -> Encoded | None:
    try:
        coded = tokenizer(list(forms), is_split_into_words=True, return_special_tokens_mask=True)
        words = coded.word_ids()
    except (ValueError, AssertionError, NotImplementedError):  # a tokenizer that cannot take words
        return None
    return _encoded(tokenizer, coded, words, forms)


def _encoded(tokenizer: Any, coded: Any, words: Sequence[int | None], forms: Sequence[str]) -> Encoded:
    special = [bool(flag) for flag in coded["special_tokens_mask"]]
    return Encoded(
        inputs={name: list(coded[name]) for name in ("input_ids", "token_type_ids") if name in coded},
        tokens=tuple(tokenizer.convert_ids_to_tokens(coded["input_ids"])),
        words=tuple(None if flag else word for flag, word in zip(special, words, strict=True)),
        special=tuple(special),
        forms=tuple(forms),
    )


def _with_words(encoded: Encoded, words: Sequence[int | None], forms: Sequence[str]) -> Encoded:
    return Encoded(encoded.inputs, encoded.tokens, tuple(words), encoded.special, tuple(forms))


def _complete(encoded: Encoded, n_words: int) -> bool:
    """Every word owns a piece (a tokenizer that knows no words gives all pieces the same id)."""
    return {word for word in encoded.words if word is not None} == set(range(n_words))


def _spans_of(forms: Sequence[str]) -> list[tuple[int, int, int]]:
    spans, place = [], 0
    for form in forms:
        spans.append((0, place, place + len(form)))
        place += len(form) + 1
    return spans


def _by_spans(
    encoded: Encoded, spans: Sequence[tuple[int, int, int]], offsets: Sequence[tuple[int, int, int] | None]
) -> list[int | None]:
    """Give each piece the word that its first character (blanks aside) lies in, (part, start, end) each."""
    owner = {(part, i): word for word, (part, a, b) in enumerate(spans) for i in range(a, b)}
    words: list[int | None] = []
    for special, place in zip(encoded.special, offsets, strict=True):
        inside = () if special or place is None else range(place[1], place[2])
        words.append(next((owner[place[0], i] for i in inside if place and (place[0], i) in owner), None))
    return words


def _offsets(tokenizer: Any, text: str, pair: str | None = None) -> list[tuple[int, int, int] | None]:
    """For each piece (which text, start, end), None for special pieces."""
    if tokenizer.is_fast:
        coded = tokenizer(text, pair, return_offsets_mapping=True)
        parts = coded.sequence_ids()
        return [
            None if part is None else (part, start, end)
            for part, (start, end) in zip(parts, coded["offset_mapping"], strict=True)
        ]
    return _walk(tokenizer, text, pair)


def _walk(tokenizer: Any, text: str, pair: str | None) -> list[tuple[int, int, int] | None]:
    """Find the pieces of a tokenizer without offsets one after the other in the text."""
    coded = tokenizer(text, pair, return_special_tokens_mask=True)
    texts = [text] if pair is None else [text, pair]
    part, place = 0, 0
    found: list[tuple[int, int, int] | None] = []
    pieces = tokenizer.convert_ids_to_tokens(coded["input_ids"])
    for piece, special in zip(pieces, coded["special_tokens_mask"], strict=True):
        if special:
            if place > 0 and part + 1 < len(texts):
                part, place = part + 1, 0
            found.append(None)
            continue
        written = piece.replace("\u2581", "").replace("##", "").strip()
        start = texts[part].find(written, place) if written else -1
        if start < 0:
            found.append(None)
            continue
        place = start + len(written)
        found.append((part, start, place))
    return found
