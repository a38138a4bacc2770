"""The Jensen-Shannon divergence between all pairs of heads, added up over rows of attention."""

from __future__ import annotations

import math

import torch
from torch import Tensor

LARGEST = math.log(2)  # nats: between rows that have no key in common
SAME = 1e-12  # nats: below this only the rounding of float64 tells rows apart
NOTHING = 1e-300  # in the place of a weight of 0, whose logarithm would be infinite; 0 ln 0 is 0
CELLS, AT_ONCE = 4096, 2**18  # of a tile, and of all pairs worked on together: they stay in a CPU's cache


def add_pairs(weights: Tensor, sums: Tensor) -> None:
    r"""Add the divergences of all pairs of heads on some rows.

    For rows P and Q it is ``H((P + Q) / 2) - (H(P) + H(Q)) / 2`` with the entropy H in nats: 0 for equal
    rows, ln 2 for rows without a key in common.

    Args:
        weights: what each head gives to the keys of the rows, float64 [head, cell]; rows stand one after the
            other, and each sums to 1.
        sums: what has been added up so far, float64 [head, head]; the part above the diagonal is added to.
    """
    n_heads, n_cells = weights.shape
    for start in range(0, n_cells, CELLS):
        tile = weights[:, start : start + CELLS] / 2 + NOTHING  # [head, cell]: two halves make a mixture
        _add_tile(tile, sums, max(1, min(n_heads, AT_ONCE // tile.shape[1])))


def _add_tile(tile: Tensor, sums: Tensor, size: int) -> None:
    n_heads = len(tile)
    own = _minus_entropy(2 * tile, torch.empty_like(tile))  # [head]
    room = tile.new_empty(2, size, tile.shape[1])
    for one in range(n_heads - 1):
        for first in range(one + 1, n_heads, size):
            others = tile[first : first + size]
            mixed = torch.add(others, tile[one], out=room[0, : len(others)])
            mixture = _minus_entropy(mixed, room[1, : len(others)])
            sums[one, first : first + size] += (own[one] + own[first : first + size]) / 2 - mixture


def _minus_entropy(weights: Tensor, room: Tensor) -> Tensor:
    """Sum of w ln w over the cells, [head]."""
    return torch.log(weights, out=room).mul_(weights).sum(-1)


def mean_divergence(sums: Tensor, n_rows: int) -> Tensor:
    """Turn sums over rows into means.

    Args:
        sums: from `add_pairs`.
        n_rows: how many rows were added up.

    Returns:
        Divergences in nats, 0..ln 2, symmetric, float64 [head, head]; what only rounding tells from 0 is 0.
    """
    mean = torch.triu(sums, diagonal=1) / n_rows
    mean = mean.clamp(0, LARGEST)
    mean[mean < SAME] = 0
    return mean + mean.T
