"""Batches and patterns made by hand, and scores added up by plain loops over them."""

from __future__ import annotations

import torch

from headlens.corpus.batches import Batch, make_batches
from headlens.corpus.corpus import Word
from headlens.corpus.inputs import GoldMention, Item
from headlens.corpus.words import Encoded
from headlens.model.heads import Site
from headlens.model.seam import Block
from headlens.scoring.base import Scorer, Tally
from headlens.scoring.passes import Reader


def site(n_heads: int, causal: bool = False) -> Site:
    return Site(0, "decoder" if causal else "encoder", 0, "layer.0", n_heads, n_heads, 4, causal)


def item(
    words: list[tuple[str, int, str]],
    pieces: list[int | None] | None = None,
    unit: int = 0,
    mentions: list[tuple[str, int, str]] | None = None,
) -> Item:
    """An input from (form, head, deprel) with heads from 0, -1 a root; pieces give each token's word.

    Without `pieces` it is [CLS] words [SEP], a piece each. PUNCT is the part of speech of ".".
    """
    if pieces is None:
        pieces = [None, *range(len(words)), None]
    encoded = Encoded(
        inputs={"input_ids": [5] * len(pieces)},
        tokens=tuple("x" for _ in pieces),
        words=tuple(pieces),
        special=tuple(piece is None for piece in pieces),
        forms=tuple(form for form, _, _ in words),
    )
    made = tuple(
        Word(form, form.lower(), "PUNCT" if form == "." else "NOUN", head, deprel, True)
        for form, head, deprel in words
    )
    return Item(encoded, unit, made, (0,), tuple(GoldMention(*mention) for mention in mentions or ()))


def one_batch(items: list[Item], left: bool = False) -> Batch:
    (batch,) = make_batches(items, 0, len(items), left)
    return batch


def visibility(batch: Batch, causal: bool) -> torch.Tensor:
    """Which key each query may see, [input, 1, query, key]."""
    length = batch.real.shape[1]
    seen = batch.real[:, None, :].expand(-1, length, -1)
    if causal:
        seen = seen & torch.ones(length, length, dtype=torch.bool).tril()
    return seen[:, None]


def tally(
    scorer: Scorer,
    where: Site,
    batch: Batch,
    pattern: torch.Tensor,
    causal: bool = False,
    size: int | None = None,
) -> Tally:
    """Show a pattern [input, head, query, key] to a scorer, in blocks of some queries."""
    reader = Reader([scorer], [where], 1 + max(item.unit for item in batch.items))
    reader.begin(batch)
    length = pattern.shape[2]
    seen = visibility(batch, causal)
    for start in range(0, length, size or length):
        stop = min(start + (size or length), length)
        reach = stop if causal else length
        block = Block(
            pattern[:, :, start:stop, :reach], seen[:, :, start:stop, :reach], start, stop, length, length
        )
        reader.see(where, block, batch)
    return reader.tallies[0]


def shares(tally: Tally, measure: str) -> list[float]:
    """Score of each head over all units, NaN where nothing was counted."""
    index = tally.scorer.measures.index(measure)
    n = tally.n[:, index].sum(0)[tally.site_of_head]
    return (tally.score[:, index].sum(0) / n).tolist()


def baselines(tally: Tally, measure: str) -> list[float]:
    index = tally.scorer.measures.index(measure)
    n = tally.n[:, index].sum(0)
    return (tally.baseline[:, index].sum(0) / n[:, None])[0].tolist()


def random_pattern(batch: Batch, n_heads: int, causal: bool, seed: int = 0) -> torch.Tensor:
    """A pattern with weights where they may be, [input, head, query, key]; padded queries get anything."""
    generator = torch.Generator().manual_seed(seed)
    length = batch.real.shape[1]
    logits = 3 * torch.randn(len(batch.items), n_heads, length, length, generator=generator)
    seen = visibility(batch, causal)
    return logits.masked_fill(~seen, torch.finfo(torch.float32).min).softmax(-1)
