"""What a scorer is, and what it is shown."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Literal, Protocol

import torch
from torch import Tensor

from headlens.attention import Block
from headlens.heads import Site
from headlens.text.batches import Batch


@dataclass(frozen=True, slots=True)
class Gold:
    """What scores are counted over and held against.

    Args:
        n: decisions (or queries) of each input and measure, [input, measure].
        baseline: what each baseline gets right of them, [input, measure, baseline].
    """

    n: Tensor
    baseline: Tensor


@dataclass(frozen=True, slots=True)
class Counts:
    """What one site's heads get right.

    Args:
        score: sums over the decisions, [input, measure, head].
        gold: the decisions, where they depend on what this site may see; None where `Scorer.gold` knows.
    """

    score: Tensor
    gold: Gold | None = None


@dataclass(frozen=True)
class TokenView:
    """A block of one site's pattern, token by token.

    Args:
        site: where.
        block: the block.
        batch: the inputs.
    """

    site: Site
    block: Block
    batch: Batch

    @property
    def pattern(self) -> Tensor:
        """Attention weights, [input, head, query, key]."""
        return self.block.pattern

    @cached_property
    def queries(self) -> Tensor:
        """Positions of the block's queries, [query]."""
        return torch.arange(self.block.start, self.block.stop, device=self.pattern.device)

    @cached_property
    def counted(self) -> Tensor:
        """Which queries are no padding, bool [input, query]."""
        return self.batch.real[:, self.block.start : self.block.stop].to(self.pattern.device)

    @cached_property
    def visible(self) -> Tensor:
        """Which keys each query may see, bool [input, query, key]."""
        visible = self.block.visible[:, 0]
        return visible.expand(len(self.pattern), -1, -1)

    @cached_property
    def n_visible(self) -> Tensor:
        """How many keys each query may see, [input, query]."""
        return self.visible.sum(-1)

    def keys(self, mask: Tensor) -> Tensor:
        """Cut what is known of all tokens down to the block's keys, [input, key]."""
        return mask[:, : self.pattern.shape[-1]].to(self.pattern.device)


@dataclass(frozen=True)
class WordView:
    """One site's pattern, word by word, whole.

    Args:
        site: where.
        weights: attention from word to word, [input, head, word, word]: to a word the sum over its pieces,
            from a word the mean over its pieces (Clark et al. 2019). 0 at words that an input does not have.
        batch: the inputs.
    """

    site: Site
    weights: Tensor
    batch: Batch


class Scorer(Protocol):
    """A way of scoring heads: a frozen record of parameters that is called with what a head attends to.

    Attributes:
        tag: the tag that its measures are evidence for.
        measures: names of what it measures, in order.
        reads: whether it is shown sentences or windows of several sentences.
        level: whether it is called with a `TokenView` for every block or a `WordView` for every site.
        n_baselines: how many baselines its scores are held against; the best is chosen by cross-fitting.
    """

    @property
    def tag(self) -> str: ...  # noqa: D102
    @property
    def measures(self) -> tuple[str, ...]: ...  # noqa: D102
    @property
    def reads(self) -> Literal["sentences", "windows"]: ...  # noqa: D102
    @property
    def level(self) -> Literal["tokens", "words"]: ...  # noqa: D102
    @property
    def n_baselines(self) -> int: ...  # noqa: D102

    def gold(self, batch: Batch) -> Gold | None:
        """Count the decisions of a batch, where they are the same for every site; else None."""

    def __call__(self, view: TokenView | WordView) -> Counts:
        """Score the heads of one site on one batch."""


def unique_argmax(weights: Tensor) -> Tensor:
    """Find the place of the largest weight of each row.

    Args:
        weights: [..., column], not negative where a column may be chosen.

    Returns:
        Indices [...]; -1, an abstention, where several columns share the largest weight or none is above 0.
    """
    largest, place = weights.max(dim=-1)
    shared = (weights == largest[..., None]).sum(dim=-1) > 1
    return place.masked_fill(shared | (largest <= 0), -1)
