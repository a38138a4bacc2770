"""Which positions of an axis make up one word."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from headlens.text.reading import Axis
from headlens.util.formatting import visible


def word_groups(axis: Axis) -> tuple[list[int], Axis]:
    """Merge the pieces of each word; positions of no word stay alone.

    A word without a piece of its own has no position: its signs are shown with the word before it where
    one piece covers both (such as ``."``).

    Args:
        axis: tokens.

    Returns:
        For each position the index of its place in the new axis, and the new axis.
    """
    places: dict[tuple[str, int], int] = {}
    members: list[list[int]] = []
    owner = []
    for position, word in enumerate(axis.words):
        name = ("token", position) if word is None else ("word", word)
        if name not in places:
            places[name] = len(members)
            members.append([])
        members[places[name]].append(position)
        owner.append(places[name])
    tokens = tuple(_label(axis, positions) for positions in members)
    words = tuple(axis.words[positions[0]] for positions in members)
    special = tuple(axis.special[positions[0]] for positions in members)
    return owner, Axis(tokens, words, special, axis.forms)


def spread(owner: Sequence[int]) -> Tensor:
    """Write groups as a matrix of 0 and 1.

    Args:
        owner: for each position the index of its group; groups are counted from 0 without gaps.

    Returns:
        float64 [position, group].
    """
    return torch.nn.functional.one_hot(torch.tensor(owner)).double()


def _label(axis: Axis, positions: Sequence[int]) -> str:
    word = axis.words[positions[0]]
    if word is None:
        return axis.tokens[positions[0]]
    written = "".join(axis.tokens[position] for position in positions)
    label, owned = axis.forms[word], set(axis.words)
    for following in range(word + 1, len(axis.forms)):
        longer = label + axis.forms[following]
        if following in owned or not written.startswith(longer):
            break
        label = longer
    return visible(label)
