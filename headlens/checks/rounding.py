"""How far numbers of a model may lie apart for no other reason than rounding."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from typing import Any

import torch
from torch import Tensor, nn

from headlens.checks.seen import Seen, gap, look
from headlens.model.lens import Lens

CLOSE = 1e-5  # of the largest number, in float32 and finer
STEPS = 8  # units of the last place, in half precision
MARGINS = {True: 8, False: 2}  # times what a change of the last place comes to; False: in half precision
MOST = {True: 10, False: 2.5}  # times the least that is allowed: more than that has another reason


def rounding(lens: Lens) -> float:
    """Tell how far numbers may lie apart that were computed in the same way.

    Args:
        lens: the model.

    Returns:
        A share of the largest number: 1e-5 in float32 and finer, 8 units of the last place in half precision.
    """
    return CLOSE if _fine(lens) else STEPS * torch.finfo(lens.model.dtype).eps


def amplified(lens: Lens, seen: Seen) -> float:
    """Tell how far numbers may lie apart that were computed in batches of other shapes, or by other kernels.

    Deep models and sharp heads make more of a rounding error than others. By how much is tried: embeddings
    are changed in their last place.

    Args:
        lens: the model.
        seen: of one input.

    Returns:
        A few times what that change comes to, but not less than `rounding` says, nor more than 1e-4 (in half
        precision, 20 units of the last place).
    """
    with last_place(lens.model):
        changed = gap(seen, look(lens, seen.fed), row=0)
    fine, least = _fine(lens), rounding(lens)
    moved = MARGINS[fine] * max(changed.states, *changed.weights.values())
    return min(max(least, moved), MOST[fine] * least)


def _fine(lens: Lens) -> bool:
    return lens.model.dtype.itemsize >= 4


@contextmanager
def last_place(model: nn.Module) -> Iterator[None]:
    """Have a model's embeddings differ in their last place while the block lasts.

    Args:
        model: the model; afterwards it is as it was.

    Yields:
        Nothing.
    """
    drawn = torch.Generator().manual_seed(0)

    def change(_: nn.Module, __: Any, output: Tensor) -> Tensor:
        signs = 2 * torch.randint(0, 2, output.shape, generator=drawn) - 1
        step = torch.finfo(output.dtype).eps * signs
        return output * (1 + step.to(output))

    with ExitStack() as stack:
        for module in model.modules():
            if isinstance(module, nn.Embedding):
                stack.callback(module.register_forward_hook(change).remove)
        yield
