"""Batches of sources and targets, for encoder-decoder models."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from headlens.corpus.batches import TOKENS_AT_ONCE, Batch, make_batches
from headlens.corpus.inputs import Item, start_id
from headlens.model.lens import Lens
from headlens.passes import pad_id

Pair = tuple[Item, Item | None]


@dataclass(frozen=True)
class CrossBatch(Batch):
    """What cross-attention connects: queries are tokens of the target, keys are tokens of the source.

    Args:
        source: the keys.
    """

    source: Batch | None = None

    @property
    def special(self) -> Tensor:
        """Which keys the tokenizer added, bool [input, source token]."""
        return self._keys.special

    @property
    def punctuation(self) -> Tensor:
        """Which keys belong to a punctuation mark, bool [input, source token]."""
        return self._keys.punctuation

    @property
    def first(self) -> Tensor:
        """Which key is the first of its input, bool [input, source token]."""
        return self._keys.first

    @property
    def _keys(self) -> Batch:
        assert self.source is not None  # given whenever one is made
        return self.source


def pair_batches(pairs: Sequence[Pair], batch_size: int | None) -> Iterator[list[Pair]]:
    """Put pairs of like length together.

    Args:
        pairs: sources and their targets.
        batch_size: pairs in a batch; by default as many as have 1,024 tokens.

    Yields:
        Batches, short pairs first.
    """
    group: list[Pair] = []
    for pair in sorted(pairs, key=_length):
        size = batch_size or max(1, TOKENS_AT_ONCE // _length(pair))
        if len(group) >= size:
            yield group
            group = []
        group.append(pair)
    yield group


def _length(pair: Pair) -> int:
    source, target = pair
    return max(len(source.encoded), len(target.encoded) if target else 0)


def views_of(lens: Lens, pairs: Sequence[Pair]) -> tuple[Batch, dict[str, Tensor], dict[str, Batch]]:
    """Make a batch of pairs.

    Args:
        lens: the model.
        pairs: sources and their targets; all have one, or none.

    Returns:
        The sources, the decoder's inputs, and the batch that each stack looks at.
    """
    items = [source for source, _ in pairs]
    (source,) = make_batches(items, pad_id(lens), len(items), ordered=True)
    written = [target for _, target in pairs if target is not None]
    if not written:
        start = torch.full((len(items), 1), start_id(lens.model))
        return source, {"decoder_input_ids": start}, {"encoder": source}
    (target,) = make_batches(written, pad_id(lens), len(written), ordered=True)
    inputs = {
        "decoder_input_ids": target.inputs["input_ids"],
        "decoder_attention_mask": target.inputs["attention_mask"],
    }
    cross = CrossBatch(target.items, target.inputs, source=source)
    return source, inputs, {"encoder": source, "decoder": target, "cross": cross}
