"""Patterns as they are shown: some queries at a time."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from headlens.heads import Site

BLOCK_BYTES = 64 * 2**20  # a block of patterns larger than this is cut into fewer queries
CACHED_BYTES = 8 * 2**20  # a block of this size stays in the caches of a CPU
WORTH = 64  # rows that make a product worth while: no block is cut into fewer for the caches' sake


@dataclass(frozen=True, slots=True)
class Block:
    """The pattern of some consecutive queries at one site.

    Args:
        pattern: attention weights after softmax, [batch, head, stop - start, keys]. Keys past the last
            one that any of these queries may see can be missing: their weight is 0.
        visible: which keys each query may see, bool [batch, 1, stop - start, keys].
        start: first query of the block.
        stop: one past its last query.
        n_queries: number of queries of the whole input.
        n_keys: number of keys of the whole input.
        values: what each key-value head holds for each key, [batch, kv head, keys, width]; None where the
            model does not show it.
    """

    pattern: Tensor
    visible: Tensor
    start: int
    stop: int
    n_queries: int
    n_keys: int
    values: Tensor | None = None


Observer = Callable[[Site, Block], None]


@dataclass(frozen=True, slots=True)
class Watch:
    """Someone who observes.

    Args:
        observer: what is called.
        sites: where; None for everywhere.
        size: queries per block; None for as many as suit.
    """

    observer: Observer
    sites: frozenset[Site] | None
    size: int | None

    def wants(self, site: Site) -> bool:
        """Whether it looks at a site."""
        return self.sites is None or site in self.sites


def block_size(watches: Sequence[Watch], bytes_per_query: int, device: torch.device, rows: int = 1) -> int:
    """Choose how many queries a block has.

    Args:
        watches: who observes; the smallest size that is asked for is taken.
        bytes_per_query: what the weights of one query take, over all inputs and heads.
        device: where they are.
        rows: how many rows a query has in a product: the heads that are folded into one.

    Returns:
        A number of queries, at least 1.
    """
    asked = [watch.size for watch in watches if watch.size is not None]
    if asked:
        return min(asked)
    most = max(1, BLOCK_BYTES // bytes_per_query)
    if device.type != "cpu":
        return most
    return min(most, max(WORTH // rows, CACHED_BYTES // bytes_per_query, 1))
