"""What a scorer is, and what it is shown."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, Literal, TypeVar, cast

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from headlens.corpus.batches import Batch
from headlens.corpus.corpus import Corpus
from headlens.model.devices import moved
from headlens.model.heads import Site
from headlens.model.lens import Lens
from headlens.model.seam import Block

if TYPE_CHECKING:
    from headlens.tally import Summary, Tally

Array = NDArray[np.float64]
T = TypeVar("T")


@dataclass(frozen=True)
class Context:
    """What a scorer may be made from.

    Args:
        lens: the model.
        corpus: the corpus.
        relations: file of related words for semantic heads; the model's own embeddings by default.
        frequencies: file of word frequencies; those of the corpus by default.
        seed: of everything drawn at random.
    """

    lens: Lens
    corpus: Corpus
    relations: Path | None = None
    frequencies: Path | None = None
    seed: int = 0


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
        chance: a baseline that differs from head to head, [input, measure, head], where there is one.
    """

    score: Tensor
    gold: Gold | None = None
    chance: Tensor | None = None


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
        return cast(Tensor, self.batch.on(self.pattern.device, "real"))[:, self.block.start : self.block.stop]

    @cached_property
    def visible(self) -> Tensor:
        """Which keys each query may see, bool [input, query, key]."""
        visible = self.block.visible[:, 0]
        return visible.expand(len(self.pattern), -1, -1)

    @cached_property
    def n_visible(self) -> Tensor:
        """How many keys each query may see, [input, query]."""
        return self.once(_count_visible)

    def once(self, make: Callable[[TokenView], T]) -> T:
        """Work out what depends on the batch and on what these queries may see, but not on their weights.

        Layers mostly see alike, so this is done once for all of them.

        Args:
            make: called with the view the first time; what it returns must not hold the view.

        Returns:
            What it returned.
        """
        known = self.batch.known_of(self.block.visible)
        if make not in known:
            known[make] = make(self)
        return cast(T, known[make])

    def keys(self, mask: Tensor) -> Tensor:
        """Cut what is known of all tokens down to the block's keys, [input, ..., key]."""
        return moved(mask[..., : self.pattern.shape[-1]], self.pattern.device)


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


@dataclass(frozen=True, slots=True)
class Rule:
    """What a measure must reach to be a ground for a tag, besides an interval above 0 and q below 0.05.

    Args:
        on: whether the score itself or its effect over the baseline is held against the margin.
        margin: a share, 0..1.
        ground: whether the measure is a ground for the tag at all.
        strict: whether the margin must be passed, not only reached.
        besides: another measure of the tag that must be above 0, where it can be taken.
    """

    on: Literal["score", "effect"]
    margin: float
    ground: bool = True
    strict: bool = False
    besides: str | None = None

    def met(self, score: Array, effect: Array) -> NDArray[np.bool_]:
        """Tell which heads reach the margin, [head]; NaN reaches nothing."""
        value = score if self.on == "score" else effect
        reached = value > self.margin if self.strict else value >= self.margin
        return reached & self.ground


class Scorer(ABC):
    """A way of scoring heads: a frozen record of parameters that is called with what a head attends to.

    A subclass says at least `tag`, `rules` and `measures`, and how it counts.

    Attributes:
        tag: the tag that its measures are evidence for.
        rules: what each measure must reach, by its name before any @ or :, or one rule by the tag's name.
        reads: what it is shown: "sentences", "windows" of several sentences, or "repeats" (random tokens,
            repeated).
        anywhere: whether what it counts needs no sentences, so that it can be shown whole documents instead.
        level: whether it is called with a `TokenView` for every block or a `WordView` for every site.
        stacks: which stacks of attention it makes sense for.
        needs: what the corpus must have for it: "trees", "entities", "parts of speech".
        n_baselines: how many baselines its scores are held against; the best is chosen by cross-fitting.
        beats_all: whether a head must beat every baseline by the margin, not only the chosen one.
        beats_chance: whether its own chance (see `Counts`) is beaten besides, not added to the baseline.
    """

    tag: ClassVar[str]
    rules: ClassVar[Mapping[str, Rule]]
    reads: ClassVar[Literal["sentences", "windows", "repeats"]] = "sentences"
    anywhere: ClassVar[bool] = False
    level: ClassVar[Literal["tokens", "words"]] = "tokens"
    stacks: ClassVar[tuple[str, ...]] = ("encoder", "decoder")
    needs: ClassVar[tuple[str, ...]] = ()
    n_baselines: ClassVar[int] = 1
    beats_all: ClassVar[bool] = False
    beats_chance: ClassVar[bool] = False

    @classmethod
    def make(cls, context: Context) -> Scorer:
        """Make the scorer for a model and a corpus."""
        return cls()

    def bound(self, lens: Lens) -> Scorer:
        """Take what is needed of a model from this process' copy of it, where nothing of one is held."""
        return self

    @property
    @abstractmethod
    def measures(self) -> tuple[str, ...]:
        """Names of what it measures, in order."""

    def rule(self, measure: str) -> tuple[str, Rule]:
        """Find the rule of a measure, and its name."""
        stem = measure.partition("@")[0].partition(":")[0]
        name = stem if stem in self.rules else self.tag
        return name, self.rules[name]

    def gold(self, batch: Batch) -> Gold | None:
        """Count the decisions of a batch, where they are the same for every site; else None."""
        return None

    @abstractmethod
    def __call__(self, view: Any) -> Counts:
        """Score the heads of one site on one batch, or on one block of its queries."""

    def summarise(self, tally: Tally) -> list[Summary]:
        """Turn the sums of a whole corpus into what evidence is drawn from, one entry per measure."""
        return tally.summaries()


def _count_visible(view: TokenView) -> Tensor:
    return view.visible.sum(-1)
