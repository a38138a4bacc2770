"""Random tokens, repeated: what induction and duplicate-token heads are found on."""

from __future__ import annotations

from typing import Any

import numpy as np

from headlens.errors import InputError
from headlens.text.inputs import Inputs, Item
from headlens.text.words import Encoded

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
    """Find the special tokens that a tokenizer puts before and after a text.

    Args:
        tokenizer: a tokenizer of `transformers`.

    Returns:
        Ids before, and ids after.
    """
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
