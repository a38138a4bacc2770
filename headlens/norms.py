"""How long what a key hands over is: the other half of what a head reads, beside its weights."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from headlens.plain_layers import output_matrix


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
