"""Which key a row chooses: the largest weight, if it is the only one."""

from __future__ import annotations

import torch
from torch import Tensor


def unique_max(weights: Tensor, dim: int = -1) -> Tensor:
    """Find the largest weight along an axis: a weight that equals it is the one that is chosen.

    Args:
        weights: of any shape, not negative where they may be chosen.
        dim: the axis.

    Returns:
        The largest weights, without that axis; NaN, which nothing equals and so an abstention, where several
        share the largest weight or none is above 0.
    """
    largest = weights.amax(dim)
    one = (_equal(weights, largest.unsqueeze(dim)).sum(dim) == 1) & (largest > 0)
    return largest.masked_fill(~one, torch.nan)


def is_unique_max(weights: Tensor, values: Tensor) -> Tensor:
    """Tell which of some weights of each row is the one that `unique_max` finds.

    Rows in which none of them is the largest are not looked through for another that is as large.

    Args:
        weights: rows, [..., key].
        values: some of each row's weights, [..., any number].

    Returns:
        Bool, of the shape of `values`.
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

    Args:
        weights: of any shape, not negative where they may be chosen.
        dim: the axis, counted from the end.

    Returns:
        Indices, without that axis; -1, an abstention, where several share the largest weight or none is
        above 0.
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
