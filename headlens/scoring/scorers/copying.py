"""Induction and duplicate-token heads, on repeated random tokens."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, ClassVar, Literal, cast

import torch
from torch import Tensor

from headlens.corpus.batches import Batch
from headlens.model.lens import Lens
from headlens.model.unembedding import Writing
from headlens.scoring.base import Context, Counts, Gold, Rule, Scorer, TokenView


def earlier_copies(view: TokenView) -> Tensor:
    """Find for every token the earlier tokens that are the same, special ones and padding aside.

    Args:
        view: a block of any site.

    Returns:
        0 and 1, [input, token, earlier token], on the block's device.
    """
    return cast(Tensor, view.batch.on(view.pattern.device, _copies))


def _copies(batch: Batch) -> Tensor:
    ids = batch.inputs["input_ids"]
    ordinary = batch.real & ~batch.special
    same = (ids[:, :, None] == ids[:, None, :]) & ordinary[:, :, None] & ordinary[:, None, :]
    return same.tril(-1).float()


def share_on(view: TokenView, targets: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Sum the weight that the rows of a block put on some keys.

    Args:
        view: the block.
        targets: which keys, 0 and 1, [input, token, token].

    Returns:
        Sums over rows that may see a target, [input, head]; how many rows those are, [input]; and what
        uniform weights would put there, [input].
    """
    block = view.block
    targets = targets[:, block.start : block.stop, : view.pattern.shape[-1]].to(view.pattern.dtype)
    seen = (targets * view.visible).sum(-1)  # [input, query]
    counted = (seen > 0) & view.counted
    mass = torch.einsum("bhqk,bqk->bhq", view.pattern, targets)
    uniform = seen / view.n_visible.clamp(min=1)
    return (mass * counted[:, None]).sum(-1), counted.sum(-1).float(), (uniform * counted).sum(-1)


# ---- Duplicate-token heads: those that look at earlier copies of the current token


@dataclass(frozen=True)
class DuplicateToken(Scorer):
    """Weight, summed over a row, on earlier copies of the current token, on repeated random tokens.

    A row counts where it may see such a copy. Baseline: uniform weights over the visible keys.
    """

    tag: ClassVar[str] = "duplicate-token"
    rules: ClassVar[Mapping[str, Rule]] = {"duplicate-token": Rule("score", 0.4)}
    reads: ClassVar[Literal["repeats"]] = "repeats"
    colour: ClassVar[str] = "#AA4499"
    letter: ClassVar[str] = "U"
    meaning: ClassVar[str] = (
        "On repeated random tokens, at least 40 % of the head's weight is on earlier copies of the current"
        " token. Held against uniform attention."
    )
    axis: ClassVar[str] = "mean attention weight on earlier copies (0 to 1)"
    baseline: ClassVar[str] = "uniform attention"
    words: ClassVar[Mapping[str, str]] = {"duplicate-token": "weight on earlier copies"}

    @property
    def measures(self) -> tuple[str, ...]:
        """One measure."""
        return ("duplicate-token",)

    def __call__(self, view: TokenView) -> Counts:
        """Score one block."""
        score, n, uniform = share_on(view, earlier_copies(view))
        return Counts(score[:, None], Gold(n[:, None], uniform[:, None, None]))


# ---- Induction heads: those that look at what came after an earlier copy of the current token, and copy it


COPIED = 2  # tokens of each input whose copying is measured


@dataclass(frozen=True)
class Induction(Scorer):
    """Prefix matching and copying on repeated random tokens.

    ``prefix-matching``: the weight, summed over a row, on the tokens that came just after earlier copies of
    the current token (Olsson et al. 2022); baseline: uniform weights over the visible keys. ``copying``:
    how much the head, attending to a token, raises that token's logit through W_V, W_O and the unembedding:
    its logit less the mean over the vocabulary, over the largest such difference, -1..1. Copying is not
    measured where the model has no unembedding that reads the residual stream (BERT), or does not show its
    values.

    Args:
        writing: what heads write to the logits, None where it cannot be told.
        asked: whether a model was asked for it.
    """

    writing: Writing | None = field(default=None, compare=False)
    asked: bool = field(default=False, compare=False)
    tag: ClassVar[str] = "induction"
    rules: ClassVar[Mapping[str, Rule]] = {
        "prefix-matching": Rule("score", 0.4, besides="copying"),
        "copying": Rule("score", 0.0, ground=False),
    }
    reads: ClassVar[Literal["repeats"]] = "repeats"
    colour: ClassVar[str] = "#882255"
    letter: ClassVar[str] = "I"
    meaning: ClassVar[str] = (
        "On repeated random tokens, at least 40 % of the head's weight is on what followed earlier copies "
        "of the current token, and it raises the logits of what it looks at, where that can be told. Held "
        "against uniform attention."
    )
    axis: ClassVar[str] = "score (attention weights: 0 to 1)"
    baseline: ClassVar[str] = "uniform attention"
    words: ClassVar[Mapping[str, str]] = {"prefix-matching": "weight on what followed earlier copies"}

    @classmethod
    def make(cls, context: Context) -> Induction:
        """Find out what the model's heads write to its logits."""
        return cls(Writing.of(context.lens), asked=True)

    def __getstate__(self) -> dict[str, Any]:
        """Send nothing of a model to another process, which has its own."""
        return {"writing": None, "asked": False}

    def bound(self, lens: Lens) -> Induction:
        """Find out what the model's heads write to its logits, unless that is known."""
        return self if self.asked or self.writing is not None else Induction(Writing.of(lens), asked=True)

    @property
    def measures(self) -> tuple[str, ...]:
        """Prefix matching and copying."""
        return ("prefix-matching", "copying")

    def __call__(self, view: TokenView) -> Counts:
        """Score one block."""
        after = torch.nn.functional.pad(earlier_copies(view), (1, -1))  # [input, token, token]
        score, n, uniform = share_on(view, after)
        copied, counted = self._copying(view, score.shape[1])
        return Counts(
            score=torch.stack([score, copied], dim=1),  # [input, measure, head]
            gold=Gold(
                torch.stack([n, counted], dim=1),
                torch.stack([uniform, torch.zeros_like(uniform)], dim=1)[..., None],
            ),
        )

    def _copying(self, view: TokenView, n_heads: int) -> tuple[Tensor, Tensor]:
        """Sums over a few tokens of each input, [input, head], and how many, [input]; once per site."""
        block, batch = view.block, view.batch
        raised = torch.zeros(len(batch.items), n_heads, device=view.pattern.device)
        last = block.stop == block.n_queries  # then all keys are there
        if self.writing is None or view.site not in self.writing.outputs or block.values is None or not last:
            return raised, raised[:, 0]
        ids, places = batch.on(view.pattern.device, _ordinary)
        values = block.values.repeat_interleave(n_heads // block.values.shape[1], dim=1)
        inputs = torch.arange(len(batch.items), device=ids.device)
        for place in places.T:
            held = values[inputs, :, place]  # [input, head, width]
            raised = raised + self.writing.logit_gain(view.site, held, ids[inputs, place])
        return raised, torch.full_like(raised[:, 0], COPIED)


def _ordinary(batch: Batch) -> tuple[Tensor, Tensor]:
    """Token ids [input, token], and places of the first ordinary tokens of each input, [input, COPIED]."""
    ordinary = batch.real & ~batch.special
    places = ordinary.int().argsort(dim=1, descending=True, stable=True)[:, :COPIED]
    return batch.inputs["input_ids"], places
