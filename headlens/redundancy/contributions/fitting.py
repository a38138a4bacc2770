"""Which stream a sum is without its branch: told by a few random projections, and never guessed."""

from __future__ import annotations

import torch
from torch import Tensor

NEAR = 1e-4  # of the size of a sum: an error that passes for rounding
EXPLAINED = 0.1  # of the size of a stream: what a sum without its branch may differ from it
DISTINCT = 3.0  # how many times worse another stream must fit than the one that is taken


class UnclearError(Exception):
    """Several streams fit as well, and they are not the same."""


def best_fit(sums: Tensor, wanted: Tensor, known: Tensor, eps: float) -> int | None:
    """Find the stream that a sum without its branch is.

    Args:
        sums: later tensors, [sum, token, projection].
        wanted: they without the branch, of the same shape.
        known: earlier tensors, [stream, token, projection].
        eps: of the model's numbers.

    Returns:
        Which of the known; None where none fits to rounding.

    Raises:
        UnclearError: another one that is not the same fits nearly as well.
    """
    near = max(NEAR, 4 * eps)
    errors = (wanted[:, None] - known[None]).abs().amax(-1)  # [sum, stream, token]
    explained = (errors / _size(known) <= EXPLAINED).all(-1)  # nothing is no stream
    errors = (errors / _size(sums)[:, None]).amax(-1).where(explained, torch.inf).amin(0)  # [stream]
    least = float(errors.min())
    if not least <= near:
        return None
    best = max(i for i, error in enumerate(errors.tolist()) if error == least)
    _check_same(known[errors <= max(DISTINCT * least, eps)], known[best], eps)
    return best


def _check_same(streams: Tensor, one: Tensor, eps: float) -> None:
    """Raise `UnclearError` where streams [stream, token, projection] are not the one [token, projection]."""
    apart = (streams - one).abs().amax(-1) / _size(one)  # [stream, token]
    if bool((apart > max(NEAR / 10, 2 * eps)).any()):
        raise UnclearError


def _size(marks: Tensor) -> Tensor:
    """How large projected vectors are, [..., token, projection] to [..., token]."""
    return marks.square().mean(-1).sqrt()


def scaled_fit(later: Tensor, before: Tensor, branch: Tensor, eps: float) -> tuple[int, float] | None:
    """Find the stream that a sum is but for a multiple of its branch.

    Args:
        later: tensors that may be the sum, [sum, token, projection].
        before: tensors that may be the stream, [stream, token, projection].
        branch: the branch, [token, projection].
        eps: of the model's numbers.

    Returns:
        Which of the streams, and the multiple. None where there is none, and in half precision, which does
        not tell a multiple from a scale of each direction that is nearly one.
    """
    if 4 * eps > NEAR:
        return None
    change = later[:, None] - before[None]  # [later, before, token, projection]
    factors = (change * branch).sum((2, 3)) / branch.square().sum()
    rest = (change - factors[..., None, None] * branch).abs().amax((2, 3))
    rest = rest / (factors.abs() * branch.abs().mean())  # infinite where nothing was added
    if not bool(rest.isfinite().any()) or not float(rest[rest.isfinite()].min()) <= NEAR:
        return None
    rest = rest.nan_to_num(nan=torch.inf)
    least, one = rest.amin(0), float(rest.min())  # [before]
    last = max(i for i, value in enumerate(least.tolist()) if value <= 2 * one)
    return last, float(factors[int(rest[:, last].argmin()), last])
