"""Sums and counts per unit: what scorers add to, batch by batch, and what evidence is drawn from."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from headlens.heads import Head, Site
from headlens.scorers.base import Counts, Gold, Scorer
from headlens.text.batches import Batch


@dataclass(slots=True)
class Tally:
    """Sums of one scorer over a corpus. Merging two tallies is adding their tensors.

    Args:
        scorer: whose sums these are.
        sites: the sites that were scored, in order.
        score: sums of scores, [unit, measure, head], heads of all sites side by side.
        n: decisions, [unit, measure, site]; one site stands for all where they are the same everywhere.
        baseline: what each baseline gets right, [unit, measure, site, baseline].
    """

    scorer: Scorer
    sites: tuple[Site, ...]
    score: Tensor
    n: Tensor
    baseline: Tensor

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
        n_heads, n_sites, n_measures = sum(s.n_heads for s in sites), len(sites), len(scorer.measures)
        n_sites = 1 if shared else n_sites
        return cls(
            scorer,
            sites,
            torch.zeros(n_units, n_measures, n_heads, dtype=torch.float64),
            torch.zeros(n_units, n_measures, n_sites, dtype=torch.float64),
            torch.zeros(n_units, n_measures, n_sites, scorer.n_baselines, dtype=torch.float64),
        )

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

    def add(self, site: Site, batch: Batch, counts: Counts) -> None:
        """Add what one site's heads got right on a batch, or on a block of its queries."""
        first = sum(other.n_heads for other in self.sites[: self.sites.index(site)])
        heads = slice(first, first + site.n_heads)
        self.score[:, :, heads].index_add_(0, batch.units, counts.score.double().cpu())
        if counts.gold is not None:
            self._add_gold(self.sites.index(site), batch, counts.gold)

    def add_shared(self, batch: Batch, gold: Gold) -> None:
        """Add decisions and baselines that are the same at every site, once per batch."""
        self._add_gold(0, batch, gold)

    def _add_gold(self, site: int, batch: Batch, gold: Gold) -> None:
        self.n[:, :, site].index_add_(0, batch.units, gold.n.double().cpu())
        self.baseline[:, :, site].index_add_(0, batch.units, gold.baseline.double().cpu())
