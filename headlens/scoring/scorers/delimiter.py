"""Delimiter heads: those that rest on special tokens, punctuation or the first token."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor

from headlens.corpus.batches import Batch
from headlens.model.heads import STACKS
from headlens.scoring.base import Counts, Gold, Rule, Scorer, TokenView


@dataclass(frozen=True, slots=True)
class Delimiter(Scorer):
    """Mean weight on special tokens, on punctuation, and on the first token (the attention sink).

    A query counts for a kind of token where it may see at least one. Baseline: the share of those tokens
    among the keys that the query may see. Clark et al. 2019 found heads of BERT with over half of their
    weight on [SEP] and punctuation; the weight on the first token is alpha_1 of Gu et al. 2024. Resting
    there is often a way of doing nothing, so the tag does not say that the head matters.
    """

    tag: ClassVar[str] = "delimiter"
    anywhere: ClassVar[bool] = True
    stacks: ClassVar[tuple[str, ...]] = STACKS
    rules: ClassVar[Mapping[str, Rule]] = {
        "special": Rule("score", 0.6, strict=True),
        "punctuation": Rule("score", 0.6, strict=True),
        "first-token": Rule("score", 0.3, strict=True),
    }
    colour: ClassVar[str] = "#DDCC77"
    letter: ClassVar[str] = "D"
    meaning: ClassVar[str] = (
        "More than 60 % of the head's weight is on special tokens or on punctuation, or more than 30 % on "
        "the first token. Held against the share of those tokens."
    )
    axis: ClassVar[str] = "mean attention weight on these tokens (0 to 1)"
    baseline: ClassVar[str] = "uniform attention"
    words: ClassVar[Mapping[str, str]] = {
        "special": "weight on special tokens",
        "punctuation": "weight on punctuation",
        "first-token": "weight on the first token",
    }
    measures = ("special", "punctuation", "first-token")

    def __call__(self, view: TokenView) -> Counts:
        """Score one block."""
        kinds = view.keys(view.batch.once(_kinds))
        valid, gold = view.once(_asking)
        mass = valid[:, None].to(view.pattern) @ view.pattern  # [input, head, kind, key], summed over queries
        return Counts((mass * kinds[:, None]).sum(-1).transpose(1, 2), gold)


def _kinds(batch: Batch) -> Tensor:
    """Which keys are of each kind, 0 and 1, [input, kind, key]."""
    return torch.stack([batch.special, batch.punctuation, batch.first], dim=1).float()


def _asking(view: TokenView) -> tuple[Tensor, Gold]:
    """Queries that count for each kind, 0 and 1, [input, kind, query]; gold."""
    kinds = view.keys(view.batch.once(_kinds))
    seen = kinds @ view.visible.transpose(1, 2).float()  # [input, kind, query]
    valid = (seen > 0) & view.counted[:, None]
    uniform = seen / view.n_visible.clamp(min=1)[:, None]
    return valid.float(), Gold(valid.sum(-1).float(), (uniform * valid).sum(-1)[..., None])
