"""What checks read: a few sentences, or random tokens where there is no tokenizer."""

from __future__ import annotations

import math
from collections.abc import Sequence
from functools import cache
from typing import Any

import torch

from headlens.corpus.corpus import Corpus, Document
from headlens.corpus.inputs import AsTarget, Item, as_decoder_input, sentence_inputs
from headlens.corpus.plain import Chunk, split_sentences
from headlens.corpus.words import Encoded
from headlens.errors import InputError
from headlens.model.lens import Lens, n_known
from headlens.model.trace import token_ids

TEXTS = (
    "It had paid a lower price for it.",
    "Will her next film have a happier hero?",
    "The uncle will not let Marek repair it.",
    "He found a torch in the kitchen, but it didn't have any batteries.",
    "Last week a nurse brought him a red racer that had lost its chain.",
    "Their teacher asked them whether the machine had been tested on the stairs.",
    "They searched the woods for 2 nights, but nobody answered when they called his name.",
    '"I never touched her," Dana told a reporter, "and the man with the whistle saw everything."',
)
DRAWN = (7, 12, 22)  # lengths of random inputs

Pair = tuple[Item, Item | None]
"""What a model reads, and what its decoder reads, where it has one beside an encoder."""


@cache
def sample() -> Corpus:
    """The sentences as a corpus."""
    sentences = [next(split_sentences([Chunk(text, (0,), (1,))], "")) for text in TEXTS]
    return Corpus((Document("sample", tuple(sentences), ()),), ("sample",), "", False, False, False)


def pairs_of_text(lens: Lens, longest: int) -> list[Pair]:
    """Make inputs of a short, a middling and a long sentence.

    Args:
        lens: the model.
        longest: how many tokens they may have.

    Returns:
        Shortest first; empty where there is no tokenizer, or the model cannot read what it makes.
    """
    if lens.tokenizer is None:
        return []
    sources = _readable(lens, sentence_inputs(sample(), lens.tokenizer, longest).items)
    if not sources:
        return []
    places = dict.fromkeys((0, len(sources) // 2, len(sources) - 1))
    sources = [sources[place] for place in places]
    if not lens.model.config.is_encoder_decoder:
        return [(source, None) for source in sources]
    try:
        targets = sentence_inputs(sample(), AsTarget(lens.tokenizer), longest).items
        shifted = _readable(lens, [as_decoder_input(lens.model, item) for item in targets])
    except InputError:  # no start token
        return []
    others = shifted[-2::-1]  # others than the encoder reads, the long with the short
    return list(zip(sources, others, strict=False))


def drawn_pairs(lens: Lens, longest: int, seed: int) -> list[Pair]:
    """Make inputs of tokens that are drawn at random.

    Args:
        lens: the model.
        longest: how many tokens they may have.
        seed: of the draw.

    Returns:
        Shortest first.
    """
    drawn = torch.Generator().manual_seed(seed)
    config, cpu = lens.model.config.get_text_config(), torch.device("cpu")

    def draw(length: int) -> Item:
        return bare(token_ids(config, min(length, longest), cpu, drawn)[0].tolist())

    sources = [draw(length) for length in DRAWN]
    if not lens.model.config.is_encoder_decoder:
        return [(source, None) for source in sources]
    return [(source, draw(length)) for source, length in zip(sources, reversed(DRAWN), strict=True)]


def bare(ids: Sequence[int]) -> Item:
    """Make an input of token ids about whose words nothing is known."""
    n = len(ids)
    encoded = Encoded({"input_ids": list(ids)}, ("",) * n, (None,) * n, (False,) * n, ())
    return Item(encoded, 0, ())


def unknown_ids(tokenizer: Any) -> set[int]:
    """The ids that stand for a word that a tokenizer does not know, whether it declares them or not."""
    inner = getattr(getattr(tokenizer, "backend_tokenizer", None), "model", None)
    tokens = {getattr(tokenizer, "unk_token", None), getattr(inner, "unk_token", None)} - {None}
    return {tokenizer.convert_tokens_to_ids(token) for token in tokens}


def _count(item: Item, ids: set[int]) -> int:
    return sum(one in ids for one in item.encoded.inputs["input_ids"])


def _readable(lens: Lens, items: Sequence[Item]) -> list[Item]:
    """Inputs of tokens that the model knows, and that are not mostly the unknown one; shortest first."""
    known = n_known(lens) or math.inf
    unknown = unknown_ids(lens.tokenizer)
    ids = [item.encoded.inputs["input_ids"] for item in items]
    fit = [item for item, mine in zip(items, ids, strict=True) if max(mine) < known]
    told = [item for item in fit if 2 * _count(item, unknown) < len(item.encoded)]
    return sorted(told, key=lambda item: len(item.encoded))
