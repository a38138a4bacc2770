"""Delimiter heads: those that rest on special tokens, punctuation or the first token."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, Literal

import torch

from headlens.scorers.base import Counts, Gold, TokenView, WordView
from headlens.text.batches import Batch


@dataclass(frozen=True, slots=True)
class Delimiter:
    """Mean weight on special tokens, on punctuation, and on the first token (the attention sink).

    A query counts for a kind of token where it may see at least one. Baseline: the share of those tokens
    among the keys that the query may see. Clark et al. 2019 found heads of BERT with over half of their
    weight on [SEP] and punctuation; the weight on the first token is alpha_1 of Gu et al. 2024. Resting
    there is often a way of doing nothing, so the tag does not say that the head matters.
    """

    tag = "delimiter"
    measures = ("special", "punctuation", "first-token")
    reads: ClassVar[Literal["sentences"]] = "sentences"
    level: ClassVar[Literal["tokens"]] = "tokens"
    n_baselines = 1

    def gold(self, batch: Batch) -> Gold | None:
        """None: what a query may see depends on the site."""

    def __call__(self, view: TokenView | WordView) -> Counts:
        """Score one block."""
        assert isinstance(view, TokenView)
        batch = view.batch
        kinds = torch.stack(
            [view.keys(mask) for mask in (batch.special, batch.punctuation, batch.first)], dim=-1
        ).to(view.pattern.dtype)  # [input, key, kind]
        mass = view.pattern @ kinds[:, None]  # [input, head, query, kind]
        seen = view.visible.to(kinds.dtype) @ kinds  # [input, query, kind]
        valid = (seen > 0) & view.counted[..., None]
        uniform = seen / view.n_visible.clamp(min=1)[..., None]
        return Counts(
            score=(mass * valid[:, None]).sum(2).transpose(1, 2),  # [input, kind, head]
            gold=Gold(valid.sum(1).float(), (uniform * valid).sum(1)[..., None]),
        )
