"""Offsets for tokenizers that give none: their pieces, found again one after the other in the text."""

from __future__ import annotations

import unicodedata
from collections.abc import Sequence
from typing import Any

Span = tuple[int, int, int]  # which text, start, end

_BLANK = "\u2581"


def walk(tokenizer: Any, coded: Any, texts: Sequence[str]) -> list[Span | None]:
    """Find the pieces of texts, all of them or none: a walk that loses its way would give wrong words.

    Case and marks do not count, as some tokenizers drop them.

    Args:
        tokenizer: a tokenizer of `transformers`.
        coded: what it made of the texts, with the mask of special tokens.
        texts: the texts, in order.

    Returns:
        For each piece (which text, start, end), None for special pieces; None for all pieces where the
        text is not what the pieces say.
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
