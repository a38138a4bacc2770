"""Sums and counts per unit: what scorers add to, batch by batch, and what evidence is drawn from."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from headlens.corpus.batches import Batch
from headlens.model.devices import Carrier
from headlens.model.finite import not_numbers
from headlens.model.heads import Head, Site
from headlens.scorers.base import Counts, Gold, Scorer

Array = NDArray[np.float64]
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

    def add(self, site: Site, batch: Batch, counts: Counts, carrier: Carrier) -> None:
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

    def add_shared(self, batch: Batch, gold: Gold, carrier: Carrier) -> None:
        """Add decisions and baselines that are the same at every site, once per batch."""
        self._add_gold(0, batch, gold, carrier)

    def _add_gold(self, site: int, batch: Batch, gold: Gold, carrier: Carrier) -> None:
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
