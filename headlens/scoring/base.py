"""What a scorer is: sums over what heads look at, and the tally that they are added up in."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any, ClassVar, Literal, TypeVar, cast

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from headlens.corpus.batches import Batch
from headlens.corpus.corpus import Corpus
from headlens.model.devices import HostTransfer, moved
from headlens.model.finite import not_numbers
from headlens.model.heads import Head, Site
from headlens.model.lens import Lens
from headlens.model.seam import Block

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

    A subclass says at least `tag`, `rules` and `measures`, and how it counts. What figures, pages and help
    say of it stands on it, too.

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
        colour: of the tag, in figures and on pages.
        letter: of the tag, where there is no room for its name; by default its first one, small.
        meaning: what the tag means, with the margins by default; by default the first line of the docstring.
        figure: what shows its scores: the "best" head of each measure beside its baseline, "offsets" for
            measures ``mass@k``, or "entropy" for one of that name.
        held_against: how a sentence calls the baseline; "" where there is none.
        axis: what a score is, with its unit.
        baseline: what the baseline is.
        row: what one measure is, or what several of them that are one row of the figure have in common.
        words: measures in words, by their names before any colon; see `in_words`.
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
    colour: ClassVar[str] = "#BBBBBB"
    letter: ClassVar[str] = ""
    meaning: ClassVar[str] = ""
    figure: ClassVar[Literal["best", "offsets", "entropy"]] = "best"
    held_against: ClassVar[str] = "the baseline"
    axis: ClassVar[str] = "score (0 to 1)"
    baseline: ClassVar[str] = "baseline"
    row: ClassVar[str] = "measure"
    words: ClassVar[Mapping[str, str]] = {}

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

    @classmethod
    def in_words(cls, measure: str) -> str:
        """Say a measure in words, what follows a colon in front; without words it stays as it is."""
        name, _, detail = measure.partition(":")
        return f"{detail} {cls.words[name]}".strip() if name in cls.words else measure

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


# ---- Which key a row chooses: the largest weight, if it is the only one


def unique_max(weights: Tensor, dim: int = -1) -> Tensor:
    """Find the largest weight along an axis: a weight that equals it is the one that is chosen.

    NaN, which nothing equals and so an abstention, where several share the largest weight or none is above 0.
    """
    largest = weights.amax(dim)
    one = (_equal(weights, largest.unsqueeze(dim)).sum(dim) == 1) & (largest > 0)
    return largest.masked_fill(~one, torch.nan)


def is_unique_max(weights: Tensor, values: Tensor) -> Tensor:
    """Tell which of some weights of each row is the one that `unique_max` finds.

    Rows in which none of them is the largest are not looked through for another that is as large.
    """
    largest = weights.amax(-1, keepdim=True)
    found = (values == largest) & (largest > 0)
    if weights.device.type != "cpu":  # picking rows would wait for the device
        return found & (_equal(weights, largest).sum(-1, keepdim=True) <= 1)
    rows = found.any(-1)
    shared = _equal(weights[rows], largest[rows]).sum(-1) > 1
    found[rows] &= ~shared[:, None]
    return found


def unique_argmax(weights: Tensor, dim: int = -1) -> Tensor:
    """Find the place of the largest weight along an axis.

    -1, an abstention, where several share the largest weight or none is above 0.
    """
    largest = weights.amax(dim)
    equal = _equal(weights, largest.unsqueeze(dim))
    one = (equal.sum(dim) == 1) & (largest > 0)
    places = torch.arange(weights.shape[dim], device=equal.device)
    place = equal.mul_(places.view(-1, *[1] * (-1 - dim))).sum(dim).long()
    return place.masked_fill(~one, -1)


def _equal(weights: Tensor, value: Tensor) -> Tensor:
    """1 where equal, else 0: float numbers, since they are added up much faster than booleans."""
    return torch.eq(weights, value, out=torch.empty(weights.shape, device=weights.device))


# ---- Sums and counts per unit: what scorers add to, batch by batch, and what evidence is drawn from


Sums = tuple[Tensor, Tensor, Tensor, Tensor]  # score, n, baseline and chance of a tally


@dataclass(frozen=True, slots=True)
class Summary:
    """What one measure comes down to.

    Args:
        measure: its name.
        score: sums of scores, [unit, head].
        n: decisions, [unit, head].
        baseline: what the baseline gets, cross-fitted where it was chosen, [unit, head].
        beaten: shares that the score must pass by the margin as well, [head, any number].
    """

    measure: str
    score: Array
    n: Array
    baseline: Array
    beaten: Array


@dataclass(slots=True)
class Tally:
    """Sums of one scorer over a corpus. Merging two tallies is adding their tensors.

    Args:
        scorer: whose sums these are.
        sites: the sites that were scored, in order.
        score: sums of scores, [unit, measure, head], heads of all sites side by side.
        n: decisions, [unit, measure, site]; one site stands for all where they are the same everywhere.
        baseline: what each baseline gets right, [unit, measure, site, baseline].
        chance: a baseline of each head's own, [unit, measure, head].
    """

    scorer: Scorer
    sites: tuple[Site, ...]
    score: Tensor
    n: Tensor
    baseline: Tensor
    chance: Tensor

    @classmethod
    def empty(cls, scorer: Scorer, sites: tuple[Site, ...], n_units: int, shared: bool) -> Tally:
        """Begin to count.

        Args:
            scorer: whose sums.
            sites: what will be scored.
            n_units: number of units.
            shared: whether decisions and baselines are the same at every site.

        Returns:
            A tally of zeros, in float64.
        """
        n_heads, n_measures = sum(site.n_heads for site in sites), len(scorer.measures)
        n_sites = 1 if shared else len(sites)

        def zeros(*shape: int) -> Tensor:
            return torch.zeros(n_units, n_measures, *shape, dtype=torch.float64)

        baselines = zeros(n_sites, scorer.n_baselines)
        return cls(scorer, sites, zeros(n_heads), zeros(n_sites), baselines, zeros(n_heads))

    @classmethod
    def like(cls, scorer: Scorer, sites: tuple[Site, ...], n_units: int, sums: Sums) -> Tally:
        """Begin to count what comes as the sums of some units.

        Args:
            scorer: whose sums.
            sites: what was scored.
            n_units: number of units.
            sums: of some of them.

        Returns:
            A tally of zeros.
        """
        return cls(scorer, sites, *(part.new_zeros(n_units, *part.shape[1:]) for part in sums))

    @property
    def sums(self) -> Sums:
        """All that was added up: score, n, baseline and chance."""
        return self.score, self.n, self.baseline, self.chance

    def add_units(self, units: Tensor, sums: Sums) -> None:
        """Add the sums of some units.

        Args:
            units: which, each once, [some].
            sums: theirs, [some, ...] each.

        Raises:
            NotNumbersError: a sum of scores is no number; it names the first such head and measure.
        """
        broken = ~torch.isfinite(sums[0].sum(0))  # [measure, head]
        if bool(broken.any()):
            measure, head = broken.nonzero()[0].tolist()
            raise not_numbers(self.heads[head], f"score {self.scorer.measures[measure]!r}")
        for mine, part in zip(self.sums, sums, strict=True):
            mine.index_add_(0, units, part)

    @property
    def heads(self) -> tuple[Head, ...]:
        """The heads, in the order of `score`'s last axis."""
        return tuple(head for site in self.sites for head in site.heads)

    @property
    def site_of_head(self) -> Tensor:
        """For each head the place of its site on the axes of `n` and `baseline`, [head]."""
        if self.n.shape[2] == 1:
            return torch.zeros(len(self.heads), dtype=torch.long)
        return torch.tensor([i for i, site in enumerate(self.sites) for _ in range(site.n_heads)])

    def add(self, site: Site, batch: Batch, counts: Counts, carrier: HostTransfer) -> None:
        """Add what one site's heads got right on a batch, or on a block of its queries.

        Args:
            site: where.
            batch: the inputs.
            counts: on any device.
            carrier: brings them to the CPU, where everything is added up in float64.
        """
        first = sum(other.n_heads for other in self.sites[: self.sites.index(site)])
        heads = slice(first, first + site.n_heads)
        carrier.bring(counts.score, _adding(self.score[:, :, heads], batch))
        if counts.chance is not None:
            carrier.bring(counts.chance, _adding(self.chance[:, :, heads], batch))
        if counts.gold is not None:
            self._add_gold(self.sites.index(site), batch, counts.gold, carrier)

    def add_shared(self, batch: Batch, gold: Gold, carrier: HostTransfer) -> None:
        """Add decisions and baselines that are the same at every site, once per batch."""
        self._add_gold(0, batch, gold, carrier)

    def _add_gold(self, site: int, batch: Batch, gold: Gold, carrier: HostTransfer) -> None:
        carrier.bring(gold.n, _adding(self.n[:, :, site], batch))
        carrier.bring(gold.baseline, _adding(self.baseline[:, :, site], batch))

    def summaries(self) -> list[Summary]:
        """Sum every measure up, against the baseline that does best on the other half of the units.

        A chance of each head's own is added to it, or stands beside it as something to beat.
        """
        besides = self.scorer.beats_chance
        sites = self.site_of_head.numpy()
        found = []
        for index, measure in enumerate(self.scorer.measures):
            n = self.n[:, index].numpy()[:, sites]  # [unit, head]
            baselines = self.baseline[:, index].numpy()  # [unit, site, baseline]
            chance = self.chance[:, index].numpy()
            chosen = cross_fit(baselines)[:, sites] + (0 if besides else chance)
            beaten = baselines.sum(0)[sites] if self.scorer.beats_all else np.zeros((len(sites), 0))
            if besides:
                beaten = np.column_stack([beaten, chance.sum(0)])
            with np.errstate(invalid="ignore", divide="ignore"):
                beaten = beaten / n.sum(0)[:, None]
            found.append(Summary(measure, self.score[:, index].numpy(), n, chosen, beaten))
        return found


def _adding(sums: Tensor, batch: Batch) -> Callable[[Tensor], object]:
    """What adds the counts of a batch's inputs to the sums of their units, [unit, ...]."""
    return lambda counts: sums.index_add_(0, batch.units, counts.double())


def cross_fit(baselines: Array) -> Array:
    """Choose the best baseline on each half of the units and count it on the other half.

    Units take turns between the halves. Where a half cannot choose, because several do equally well on it or
    it has no decisions, all units do, which can only make the baseline stronger.

    Args:
        baselines: what each baseline gets right, [unit, site, baseline].

    Returns:
        What the chosen one gets right, [unit, site].
    """
    if baselines.shape[2] == 1:
        return baselines[..., 0]
    chosen = np.empty(baselines.shape[:2])
    half = np.arange(len(baselines)) % 2
    overall = baselines.sum(axis=0)
    for mine, other in ((0, 1), (1, 0)):
        sums = baselines[half == other].sum(axis=0)  # [site, baseline]
        tied = np.isclose(sums, sums.max(axis=1, keepdims=True), rtol=1e-12, atol=0)
        best = np.where(tied, overall, -1).argmax(axis=1)  # all units break a tie, which only strengthens it
        part = baselines[half == mine]
        chosen[half == mine] = np.take_along_axis(part, best[None, :, None], axis=2)[..., 0]
    return chosen
