"""Linear layers whose weights are one matrix: of torch, of transformers, or of a family's own making."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn
from transformers.pytorch_utils import Conv1D

from headlens.offloaded import in_memory


def input_axis(layer: nn.Module) -> int | None:
    """Tell along which axis of its weights a linear layer's inputs lie.

    Args:
        layer: the layer.

    Returns:
        1 for weights [outputs, inputs] (`nn.Linear`), 0 for [inputs, outputs] (`Conv1D`); None where the
        layer does something else with its weights (quantised, adapted).
    """
    if type(layer) in (nn.Linear, Conv1D):
        return 1 if type(layer) is nn.Linear else 0
    weight = getattr(layer, "weight", None)
    if not isinstance(weight, Tensor) or weight.ndim != 2 or not weight.is_floating_point():
        return None
    return next((axis for axis in (1, 0) if _multiplies_by(layer, _turned(weight, axis))), None)


def output_matrix(layer: nn.Module) -> Tensor | None:
    """Get the weights of a linear layer, W_O say, as the textbook writes them: x W.

    Args:
        layer: the layer.

    Returns:
        [inputs, outputs]; of W_O the rows of one head stand together. None where the layer does something
        else with its weights (quantised, adapted).
    """
    with in_memory(layer):
        weight: Any = getattr(layer, "weight", None)
        axis = input_axis(layer)
    return None if axis is None else _turned(weight, axis)


def _turned(weight: Tensor, axis: int) -> Tensor:
    return weight.detach().T if axis == 1 else weight.detach()


def _multiplies_by(layer: nn.Module, matrix: Tensor) -> bool:
    """Whether a layer of a family's own making does what a plain one with this matrix does."""
    generator = torch.Generator().manual_seed(0)
    probe = torch.randn(2, matrix.shape[0], generator=generator).to(matrix)
    with torch.no_grad():
        try:
            found = layer.forward(probe) - layer.forward(torch.zeros_like(probe))  # no call: hooks stay out
        except (RuntimeError, TypeError, ValueError):  # it takes inputs of another width, or more of them
            return False
    expected = probe @ matrix
    near = max(1e-4, 4 * torch.finfo(matrix.dtype).eps)
    return found.shape == expected.shape and bool((found - expected).norm() <= near * expected.norm())
