"""Linear CKA between what heads write."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor
from tqdm import tqdm

COLUMNS = 2048  # of the matrices that are multiplied at once


def linear_cka(parts: Sequence[Tensor], quiet: bool = True) -> Tensor:
    """Compare all pairs of heads by linear CKA (Kornblith et al. 2019).

    For centred outputs Y_i and Y_j [token, width] it is ``|Y_i^T Y_j|^2 / (|Y_i^T Y_i| |Y_j^T Y_j|)`` with
    Frobenius norms: 1 for outputs that are equal up to a rotation and a scale, 0 for uncorrelated ones. It
    misleads where tokens are few against the width of a head: unrelated outputs of width d then score about
    d / (d + n) over n tokens, not 0. And it tells what is written, not what for: two heads may
    write the same and read by the rest of the model differently.

    Args:
        parts: outputs, centred over tokens, [head, token, width] each; heads of NaN stay NaN.
        quiet: show no progress bar.

    Returns:
        Symmetric, 0..1, float64 [head, head] over the heads of all parts; NaN for heads that write nothing.
    """
    pieces = [
        piece
        for part in parts
        for piece in torch.split(part, max(1, COLUMNS // part.shape[-1]))  # of some heads each
    ]
    ends = torch.tensor([len(piece) for piece in pieces]).cumsum(0).tolist()
    products = torch.zeros(ends[-1], ends[-1], dtype=torch.float64)  # |Y_i^T Y_j|^2
    bar = tqdm(pieces, desc="Comparing outputs", unit="part", disable=quiet)
    for number, (one, end) in enumerate(zip(bar, ends, strict=True)):
        left = _side_by_side(one)
        for other, last in zip(pieces[number:], ends[number:], strict=True):
            crossed = left.T @ _side_by_side(other)  # [head x width, other head x width]
            squares = crossed.view(len(one), -1, len(other), other.shape[-1]).square_().sum((1, 3))
            products[end - len(one) : end, last - len(other) : last] = squares
            products[last - len(other) : last, end - len(one) : end] = squares.T
    norms = products.diagonal().sqrt()
    return (products / (norms[:, None] * norms)).clamp(max=1)


def _side_by_side(piece: Tensor) -> Tensor:
    """[head, token, width] -> float64 [token, head x width]."""
    return piece.double().transpose(0, 1).flatten(1)
