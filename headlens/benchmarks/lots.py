"""What gradients of a benchmark are taken of: losses, and the examples that they belong to."""

from __future__ import annotations

from dataclasses import dataclass

from torch import Tensor


@dataclass(frozen=True, slots=True)
class Lot:
    """Some inputs that passed through the model together, and the losses that came of them.

    Args:
        owners: the example that each row of the batch belongs to, int64 [row].
        examples: the example that each loss belongs to, int64 [loss]; an example's losses, of all lots,
            add up to its loss.
        losses: differentiable, in float32 or better, [loss].
    """

    owners: Tensor
    examples: Tensor
    losses: Tensor
