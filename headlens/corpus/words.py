"""Which tokens make up which words."""

from __future__ import annotations

import unicodedata
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from headlens.errors import InputError

_JOINER = "\u200d"
_SKIN, _FLAG = "\U0001f3fb\U0001f3ff", "\U0001f1e6\U0001f1ff"  # tones of skin, letters of flags: from, to
_JOINED = ("Mn", "Mc", "Me", "Cf")  # combining marks, and signs without width


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
    tokens are those of the words as they are written; byte-level tokenizers that mark blanks fail the
    second test, so for them the written words are tokenized and pieces are placed by offsets.

    Args:
        tokenizer: a tokenizer of `transformers`.
        forms: the words.
        blanks: whether the language writes blanks between words; without them, words are tokenized one
            by one where the tokenizer can do that.

    Returns:
        The input, every word owning at least one piece.

    Raises:
        AlignmentError: some word owns no piece.
    """
    blank = " " if blanks else ""
    text = blank.join(forms)
    split = _split_words(tokenizer, forms)
    if (
        split is not None
        and _complete(split, len(forms))
        and (not blanks or split.inputs["input_ids"] == tokenizer(text)["input_ids"])
    ):
        return split
    placed = _place(tokenizer, (text,), _spans_of(forms, len(blank)), forms)
    if _complete(placed, len(forms)):
        return placed
    owned = set(placed.words)
    lost = next((form for index, form in enumerate(forms) if index not in owned), "")
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
        InputError: the text is empty, or the tokenizer makes nothing of it.
    """
    for name, given in (("text", text), ("second text", pair)):
        if given is not None and not given.strip():
            raise InputError(f"The {name} is empty.", "Give at least one word.")
    texts = (text,) if pair is None else (text, pair)
    spans = [(part, a, b) for part, given in enumerate(texts) for a, b in word_spans(given)]
    encoded = _place(tokenizer, texts, spans, [texts[part][a:b] for part, a, b in spans])
    if all(encoded.special):
        raise InputError("The tokenizer makes no token of the text.", "Give at least one word that it knows.")
    return encoded


def word_spans(text: str) -> list[tuple[int, int]]:
    """Find the words of running text in any script."""
    spans: list[tuple[int, int]] = []
    start: int | None = None
    for index, char in enumerate(text):
        sign = unicodedata.category(char)[0] in "PS" and not _inside_word(text, index)
        if start is not None and (sign or char.isspace()):
            spans.append((start, index))
            start = None
        if sign and spans and spans[-1][1] == index and _joins(text, spans[-1], index):
            spans[-1] = (spans[-1][0], index + 1)
        elif sign:
            spans.append((index, index + 1))
        elif start is None and unicodedata.category(char) in _JOINED and spans and spans[-1][1] == index:
            spans[-1] = (spans[-1][0], index + 1)  # an emoji's variation selector, say
        elif start is None and not char.isspace():
            start = index
    return spans if start is None else [*spans, (start, len(text))]


def _joins(text: str, sign: tuple[int, int], index: int) -> bool:
    """Whether a sign makes one with the sign before it."""
    if unicodedata.category(text[sign[0]])[0] != "S":
        return False
    flag = _FLAG[0] <= text[sign[0]] <= _FLAG[1] and sign[1] - sign[0] == 1
    return (
        (text[index - 1] == _JOINER and unicodedata.category(text[index])[0] == "S")
        or _SKIN[0] <= text[index] <= _SKIN[1]
        or (flag and _FLAG[0] <= text[index] <= _FLAG[1])
    )


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


def _complete(encoded: Encoded, n_words: int) -> bool:
    """Every word owns a piece (a tokenizer that knows no words gives all pieces the same id)."""
    return {word for word in encoded.words if word is not None} == set(range(n_words))


def _spans_of(forms: Sequence[str], gap: int) -> list[Span]:
    spans, place = [], 0
    for form in forms:
        spans.append((0, place, place + len(form)))
        place += len(form) + gap
    return spans


def _place(tokenizer: Any, texts: Sequence[str], spans: Sequence[Span], forms: Sequence[str]) -> Encoded:
    """Tokenize texts, and give each piece the word that its first character (blanks aside) lies in.

    A piece that is nothing but a blank goes to the word behind it, as `is_split_into_words` has it.
    """
    coded = tokenizer(*texts, return_special_tokens_mask=True, return_offsets_mapping=tokenizer.is_fast)
    owner = {(part, i): word for word, (part, a, b) in enumerate(spans) for i in range(a, b)}
    words: list[int | None] = []
    for place in _offsets(coded) if tokenizer.is_fast else walk(tokenizer, coded, texts):
        inside = [] if place is None else [(place[0], i) for i in range(place[1], place[2] + 1)]
        words.append(next((owner[where] for where in inside if where in owner), None))
    return _encoded(tokenizer, coded, words, forms)


def _offsets(coded: Any) -> list[Span | None]:
    """For each piece (which text, start, end), None for special pieces."""
    return [
        None if part is None else (part, start, end)
        for part, (start, end) in zip(coded.sequence_ids(), coded["offset_mapping"], strict=True)
    ]


# ---- Offsets for tokenizers that give none: their pieces, found again one after the other in the text


Span = tuple[int, int, int]  # which text, start, end

_BLANK = "\u2581"


def walk(tokenizer: Any, coded: Any, texts: Sequence[str]) -> list[Span | None]:
    """Find the pieces of texts, all of them or none: a walk that loses its way would give wrong words.

    Case and marks do not count, as some tokenizers drop them.
    """
    pieces = tokenizer.convert_ids_to_tokens(coded["input_ids"])
    own = [index for index, special in enumerate(coded["special_tokens_mask"]) if not special]
    blanks = any(_BLANK in pieces[index] for index in own)
    signs = [
        sign for part, text in enumerate(texts) for sign in _signs(text, part) if blanks or sign[0] != _BLANK
    ]
    written = "".join(letter for letter, _ in signs)
    starts = _starts(
        written, [None if pieces[i] == tokenizer.unk_token else _letters(pieces[i]) for i in own]
    )
    found: list[Span | None] = [None] * len(pieces)
    if starts is not None:
        for index, start, stop in zip(own, starts, [*starts, len(signs)][1:], strict=True):
            if start < stop:
                (part, first), last = signs[start][1], signs[stop - 1][1][1]
                found[index] = (part, first, last + 1)
    return found


def _starts(written: str, pieces: Sequence[str | None]) -> list[int] | None:
    """Where each piece begins; an unknown piece (None) reaches to where the next one is found."""
    starts: list[int] = []
    place, unknown = 0, False
    for piece in pieces:
        start = place if piece is None else written.find(piece, place + unknown)
        if start < 0 or (unknown if piece is None else start > place and not unknown):
            return None
        starts.append(start)
        place, unknown = start + len(piece or ""), piece is None
    return starts if unknown == bool(written[place:].rstrip(_BLANK)) else None


def _signs(text: str, part: int) -> list[tuple[str, tuple[int, int]]]:
    """The letters of a text with their places; blanks, also the one in front, as pieces write them."""
    signs = [(_BLANK, (part, -1))]
    for index, char in enumerate(text):
        for letter in _BLANK if char.isspace() else _letters(char):
            if letter != _BLANK or signs[-1][0] != _BLANK:
                signs.append((letter, (part, index)))
    return signs


def _letters(piece: str) -> str:
    plain = unicodedata.normalize("NFKD", piece.removeprefix("##") or piece).casefold()
    return "".join(letter for letter in plain if unicodedata.category(letter)[0] not in "MZC")
