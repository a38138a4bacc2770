"""What all heads of one stack give to the keys of some queries of one batch: all that is held at once."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

import torch
from torch import Tensor
from torch.nn.functional import pad

from headlens.corpus.batches import Batch
from headlens.model.heads import Site
from headlens.model.seam import Block

KEPT = 256 * 2**20  # bytes of patterns that are held at once


class Patterns:
    """The patterns of some heads over a span of queries, padding left out.

    Args:
        heads: the numbers of the heads at each site, sites in order.
        batch: the inputs.
        span: first query and one past the last.
        smoothing: how much of each row is mixed with the uniform row over the keys that it may see, 0..1.
        device: where they are held.
    """

    def __init__(
        self,
        heads: Mapping[Site, Sequence[int]],
        batch: Batch,
        span: tuple[int, int],
        smoothing: float,
        device: torch.device,
    ) -> None:
        self._first: dict[Site, int] = {}
        n_heads = 0
        for site, mine in heads.items():
            self._first[site] = n_heads
            n_heads += len(mine)
        self._heads = heads
        self._smoothing = smoothing
        self._start, self._stop = span
        self._cells = cells_of(batch, heads)[self._start : self._stop].to(device)  # [query, input, key]
        self._before = [0, *self._cells.flatten(1).sum(1).cumsum(0).tolist()]  # cells before each query
        self._counted = torch.zeros(self._cells.shape[:2], dtype=torch.bool, device=device)
        self.weights = torch.zeros(n_heads, self._before[-1], dtype=torch.float64, device=device)

    @property
    def n_rows(self) -> int:
        """How many of the real queries may see two keys or more, at one of the sites at least."""
        return int(self._counted.sum())

    def see(self, site: Site, block: Block) -> None:
        """Take what a block holds of the span."""
        low, high = max(block.start, self._start), min(block.stop, self._stop)
        if low >= high:
            return
        inside = slice(low - block.start, high - block.start)
        mine, device = list(self._heads[site]), self.weights.device
        missing = block.n_keys - block.pattern.shape[-1]  # keys that no query of the block may see
        pattern = pad(block.pattern[:, mine, inside].to(device).double(), (0, missing))
        visible = block.visible[:, 0, inside].to(device).expand(len(pattern), -1, -1)
        visible = pad(visible, (0, missing))  # [input, query, key]
        pattern = _smoothed(pattern, visible, self._smoothing)
        cells = self._cells[low - self._start : high - self._start]
        packed = pattern.permute(1, 2, 0, 3)[:, cells]  # [head, cell]
        place = slice(self._before[low - self._start], self._before[high - self._start])
        first = self._first[site]
        self.weights[first : first + len(mine), place] = packed
        several = (visible.transpose(0, 1) & cells).sum(-1) > 1  # [query, input]
        self._counted[low - self._start : high - self._start] |= several


def _smoothed(pattern: Tensor, visible: Tensor, smoothing: float) -> Tensor:
    """Make rows [input, head, query, key] sum to 1 exactly, and mix them with the uniform row."""
    lowest = torch.finfo(pattern.dtype).smallest_normal  # a row of nothing stays one
    pattern = pattern / pattern.sum(-1, keepdim=True).clamp(min=lowest)
    if smoothing:
        uniform = visible / visible.sum(-1, keepdim=True).clamp(min=1).double()
        pattern = (1 - smoothing) * pattern + smoothing * uniform[:, None]
    return pattern


def cells_of(batch: Batch, sites: Mapping[Site, Sequence[int]]) -> Tensor:
    """Tell which weights of a batch can be other than 0: those of real queries on real keys.

    Args:
        batch: the inputs.
        sites: of one stack.

    Returns:
        Bool [query, input, key]; keys after the query are left out where all sites are causal.
    """
    real = batch.real.T  # [token, input]
    cells = real[:, :, None] & batch.real[None]
    if all(site.causal for site in sites):
        cells &= torch.ones(len(cells), len(cells), dtype=torch.bool).tril()[:, None]
    return cells


def spans(batch: Batch, heads: Mapping[Site, Sequence[int]]) -> Iterator[tuple[int, int]]:
    """Cut the queries of a batch so that the patterns of all heads over one part stay small.

    Args:
        batch: the inputs.
        heads: the numbers of the heads at each site.

    Yields:
        First query and one past the last of each part; mostly there is one part.
    """
    most = KEPT // (8 * sum(map(len, heads.values())))
    start, held = 0, 0
    sizes = cells_of(batch, heads).flatten(1).sum(1).tolist()  # cells of each query
    for query, size in enumerate(sizes):
        if held and held + size > most:
            yield start, query
            start, held = query, 0
        held += size
    yield start, len(sizes)
