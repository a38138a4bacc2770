"""How long what a key hands over is: the other half of what a head reads, beside its weights."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn
from transformers.pytorch_utils import Conv1D


def handed_over(output: nn.Module, values: Tensor, n_heads: int) -> Tensor:
    """Measure ``|f(x)|`` of every key for every head, where f(x) = (x W_V + b_V) W_O of that head.

    What a head adds for one key is its weight times f(x), so a large weight on a short f(x) adds little
    (Kobayashi et al. 2020). The bias of W_O belongs to no head and is left out, and so is a norm that stands
    before or after W_O (BitNet, Gemma 3).

    Args:
        output: W_O, which takes the heads side by side.
        values: x W_V + b_V of each key-value head, [kv head, key, width].
        n_heads: of the query heads; each key-value head serves the same number of them.

    Returns:
        Euclidean lengths, float32 [head, key].
    """
    values = values.repeat_interleave(n_heads // values.shape[0], dim=0)  # [head, key, width]
    matrix = output_matrix(output)
    if matrix is None:
        return _by_running(output, values)
    slices = matrix.view(n_heads, values.shape[-1], -1)  # [head, width, model width]
    return torch.stack(
        [(mine.float() @ part.float()).norm(dim=-1) for mine, part in zip(values, slices, strict=True)]
    )


def output_matrix(output: nn.Module) -> Tensor | None:
    """Get the weights of a linear layer, W_O say, as the textbook writes them: x W.

    Args:
        output: the layer.

    Returns:
        [inputs, outputs]; of W_O the rows of one head stand together. None where the layer does something
        else with its weights (quantised, adapted).
    """
    layer: Any = output
    if type(output) in (nn.Linear, Conv1D):
        return layer.weight.detach().T.contiguous() if type(output) is nn.Linear else layer.weight.detach()  # type: ignore[no-any-return]
    weight = getattr(output, "weight", None)
    if not isinstance(weight, Tensor) or weight.ndim != 2 or not weight.is_floating_point():
        return None
    return next((m for m in (weight.detach().T, weight.detach()) if _multiplies_by(output, m)), None)


def _multiplies_by(layer: nn.Module, matrix: Tensor) -> bool:
    """Whether a layer of a family's own making does what a plain one with this matrix does."""
    generator = torch.Generator().manual_seed(0)
    probe = torch.randn(2, matrix.shape[0], generator=generator).to(matrix)
    with torch.no_grad():
        try:
            found = layer(probe) - layer(torch.zeros_like(probe))
        except (RuntimeError, TypeError, ValueError):  # it takes inputs of another width, or more of them
            return False
    expected = probe @ matrix
    near = max(1e-4, 4 * torch.finfo(matrix.dtype).eps)
    return found.shape == expected.shape and bool((found - expected).norm() <= near * expected.norm())


def _by_running(output: nn.Module, values: Tensor) -> Tensor:
    """The same through the layer itself, quantised or adapted: one head at a time, the others silent."""
    n_heads, n_keys, width = values.shape
    nothing = output(values.new_zeros(1, n_heads * width))
    lengths = []
    for head, mine in enumerate(values):
        alone = values.new_zeros(n_keys, n_heads, width)
        alone[:, head] = mine
        lengths.append((output(alone.flatten(1)) - nothing).float().norm(dim=-1))
    return torch.stack(lengths)
