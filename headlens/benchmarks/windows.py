"""Cuts a long text into windows that a model can read, losing nothing but blanks at the cuts."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True, slots=True)
class Window:
    """One input of the model and what it has to predict.

    Args:
        example: the example that it belongs to.
        ids: token ids that the model reads.
        places: positions of the logits that are scored.
        gold: the token that each of them should predict.
    """

    example: int
    ids: tuple[int, ...]
    places: tuple[int, ...]
    gold: tuple[int, ...]

    @property
    def unmasked(self) -> tuple[int, ...]:
        """Its ids with the masked tokens put back, for a masked model."""
        gold = dict(zip(self.places, self.gold, strict=True))
        return tuple(gold.get(place, token) for place, token in enumerate(self.ids))


def windows(text: str, tokenizer: Any, limit: int) -> list[str]:
    """Pack whole lines of a text, in order, into windows.

    A window takes lines until the next one would not fit; a line that does not fit alone is halved, at the
    blank nearest to its middle (where there is none, in the middle), until its parts do. Blank lines stay
    inside a window and vanish at its ends.

    Args:
        text: the text.
        tokenizer: a tokenizer of `transformers`.
        limit: longest window in tokens, special ones included.

    Returns:
        The windows; every line is in them, in order.
    """
    lines = text.split("\n")
    room = limit - tokenizer.num_special_tokens_to_add()
    # the end of a line may be a token too
    lengths = [len(ids) + 1 for ids in tokenizer(lines, add_special_tokens=False)["input_ids"]]
    packed: list[str] = []
    group: list[str] = []
    used = 0
    for line, length in zip(lines, lengths, strict=True):
        if group and used + length > room:
            packed.append("\n".join(group))
            group, used = [], 0
        if group or line.strip():
            group.append(line)
            used += length
    packed.append("\n".join(group))
    return [part for window in packed for part in _fitting(window.strip("\n"), tokenizer, limit)]


def _fitting(text: str, tokenizer: Any, limit: int) -> list[str]:
    if not text.strip():
        return []
    if len(text) == 1 or len(tokenizer(text)["input_ids"]) <= limit:
        return [text]
    end, start = _cut(text)
    return _fitting(text[:end], tokenizer, limit) + _fitting(text[start:], tokenizer, limit)


def _cut(text: str) -> tuple[int, int]:
    """Where the first half ends and the second begins: at the line end, else blank, nearest the middle."""
    middle = len(text) // 2
    for mark in ("\n", " "):
        places = [i for i in range(1, len(text) - 1) if text[i] == mark]
        if places:
            place = min(places, key=lambda i: abs(i - middle))
            return place, place + 1
    return middle, middle
