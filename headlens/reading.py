"""Running a corpus through a model under observation: blocks go to scorers, scorers add to tallies."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence

import torch
from torch import Tensor

from headlens.attention import Block
from headlens.heads import Site
from headlens.lens import Lens
from headlens.scorers.base import Scorer, TokenView, WordView
from headlens.tally import Tally
from headlens.text.batches import Batch


class Reader:
    """Shows what a model attends to, batch after batch, to some scorers.

    Args:
        scorers: who is shown.
        sites: where to look.
        n_units: number of units of the corpus.
    """

    def __init__(self, scorers: Sequence[Scorer], sites: Sequence[Site], n_units: int) -> None:
        self._scorers = scorers
        self._sites = tuple(sites)
        self._n_units = n_units
        self._tallies: dict[Scorer, Tally] = {}
        self._words: dict[Site, Tensor] = {}

    @property
    def tallies(self) -> list[Tally]:
        """The sums so far, one tally per scorer."""
        return [self._tallies[scorer] for scorer in self._scorers]

    def read(
        self,
        lens: Lens,
        batches: Iterable[Batch],
        block_size: int | None = None,
        progress: Callable[[int], object] | None = None,
    ) -> None:
        """Run batches through the model.

        Args:
            lens: the model.
            batches: the corpus.
            block_size: queries per block; by default as many as keep a block small.
            progress: called with the number of inputs after each batch.
        """
        for batch in batches:
            self.begin(batch)

            def see(site: Site, block: Block, batch: Batch = batch) -> None:
                self.see(site, block, batch)

            with torch.inference_mode(), lens.observe(see, self._sites, block_size):
                lens.run(batch.inputs)
            if progress is not None:
                progress(len(batch.items))

    def begin(self, batch: Batch) -> None:
        """Make ready for a batch: count its decisions, where they are the same for every site."""
        self._words.clear()
        for scorer in self._scorers:
            gold = scorer.gold(batch)
            if scorer not in self._tallies:
                self._tallies[scorer] = Tally.empty(scorer, self._sites, self._n_units, gold is not None)
            if gold is not None:
                self._tallies[scorer].add_shared(batch, gold)

    def see(self, site: Site, block: Block, batch: Batch) -> None:
        """Show a block of one site to the scorers."""
        tokens = TokenView(site, block, batch)
        if any(scorer.level == "words" for scorer in self._scorers):
            self._gather(site, block, batch)
        for scorer in self._scorers:
            if scorer.level == "tokens":
                self._tallies[scorer].add(site, batch, scorer(tokens))
            elif block.stop == block.n_queries:
                view = WordView(site, self._words[site], batch)
                self._tallies[scorer].add(site, batch, scorer(view))
        if block.stop == block.n_queries:
            self._words.pop(site, None)

    def _gather(self, site: Site, block: Block, batch: Batch) -> None:
        """Add a block to the word-to-word attention of its site: the only thing kept between blocks."""
        pieces = batch.pieces.to(block.pattern)  # [input, token, word], 0 or 1
        to_words = block.pattern @ pieces[:, None, : block.pattern.shape[-1]]  # [input, head, query, word]
        shares = pieces / pieces.sum(1, keepdim=True).clamp(min=1)  # of a piece in its word's mean
        rows = shares[:, block.start : block.stop].transpose(1, 2)[:, None]  # [input, 1, word, query]
        words = rows @ to_words  # [input, head, word, word]
        self._words[site] = self._words[site] + words if site in self._words else words
