"""Attention computed from the weights of a head by the textbook formula."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor

Turn = Callable[[Tensor], Tensor]  # queries or keys [..., position, width] -> the same, turned by position


@dataclass(frozen=True, eq=False)
class HeadMatrices:
    """The weights of one attention layer, a matrix for each head.

    Query head i reads key-value head i // (n_heads // n_kv_heads): as many of both are classical heads, fewer
    key-value heads grouped-query attention, a single one multi-query attention.

    Args:
        query: W_i^Q, [head, model width, width].
        key: W_i^K, [key-value head, model width, width].
        value: W_i^V, [key-value head, model width, value width].
        output: W_i^O, [head, value width, model width].
    """

    query: Tensor
    key: Tensor
    value: Tensor
    output: Tensor

    @property
    def group(self) -> int:
        """How many query heads share a key-value head."""
        return len(self.query) // len(self.key)


def causal(n_queries: int, n_keys: int) -> Tensor:
    """Let every query see the keys up to its own position; the last query stands at the last key.

    Returns:
        Bool [query, key].
    """
    return torch.ones(n_queries, n_keys, dtype=torch.bool).tril(n_keys - n_queries)


def padding(real: Tensor) -> Tensor:
    """Let every query see the keys that are no padding.

    Args:
        real: which keys are real tokens, bool [batch, key].

    Returns:
        Bool [batch, 1, key], for all queries alike.
    """
    return real[:, None, :]


def pattern(query: Tensor, key: Tensor, visible: Tensor, scale: float) -> Tensor:
    """Compute what one head looks at.

    Args:
        query: [batch, query, width].
        key: [batch, key, width].
        visible: which keys each query may see, bool, broadcast to [batch, query, key].
        scale: what scores are multiplied by, 1 / sqrt(width) in most models.

    Returns:
        Weights [batch, query, key]; rows sum to 1, or are 0 where a query may see nothing.
    """
    scores = query @ key.transpose(-1, -2) * scale
    weights = scores.masked_fill(~visible, -torch.inf).softmax(dim=-1)
    return weights.masked_fill(~visible, 0)


def sum_over_heads(
    x: Tensor, source: Tensor, weights: HeadMatrices, visible: Tensor, scale: float, turn: Turn = lambda t: t
) -> Tensor:
    """Compute attention head by head: the sum over i of A_i (source W_i^V) W_i^O.

    Args:
        x: what queries are made of, [batch, query, model width].
        source: what keys and values are made of, [batch, key, model width]; x itself in self-attention.
        weights: of the layer.
        visible: which keys each query may see, bool, broadcast to [batch, query, key].
        scale: see `pattern`.
        turn: what is done to queries and to keys according to their position.

    Returns:
        [batch, query, model width].
    """
    total = x.new_zeros(*x.shape[:2], weights.output.shape[-1])
    for head in range(len(weights.query)):
        shared = head // weights.group
        query = turn(x @ weights.query[head])  # [batch, query, width]
        key = turn(source @ weights.key[shared])  # [batch, key, width]
        value = source @ weights.value[shared]  # [batch, key, value width]
        total += pattern(query, key, visible, scale) @ value @ weights.output[head]
    return total


def fused(
    x: Tensor, source: Tensor, weights: HeadMatrices, visible: Tensor, scale: float, turn: Turn = lambda t: t
) -> Tensor:
    """Compute the same by one projection for all heads, cut into heads and joined again.

    Args:
        x: see `sum_over_heads`, as all others.
        source: see there.
        weights: see there.
        visible: see there.
        scale: see there.
        turn: see there.

    Returns:
        [batch, query, model width].
    """
    queries, keys = _heads(x, weights.query), _heads(source, weights.key)  # [batch, head, position, width]
    values = _heads(source, weights.value)  # [batch, kv head, key, value width]
    # every key-value head serves a group of query heads: [batch, kv head, ...] -> [batch, head, ...]
    keys, values = (tensor.repeat_interleave(weights.group, dim=1) for tensor in (keys, values))
    visible = visible if visible.ndim == 2 else visible[:, None]  # the same for all heads
    outputs = pattern(turn(queries), turn(keys), visible, scale) @ values  # [batch, head, query, value width]
    # heads side by side again: [batch, query, head, value width] -> [batch, query, head x value width]
    joined = outputs.transpose(1, 2).flatten(-2)
    return joined @ weights.output.flatten(
        0, 1
    )  # [head, value width, model width] -> [head x value width, ...]


def _heads(states: Tensor, matrices: Tensor) -> Tensor:
    """Project for all heads at once, and cut the result into heads."""
    projection = matrices.transpose(0, 1).flatten(
        1
    )  # [head, model width, width] -> [model width, head x width]
    projected = states @ projection  # [batch, position, head x width]
    cut = projected.reshape(*states.shape[:2], len(matrices), -1)  # [batch, position, head, width]
    return cut.transpose(1, 2)  # [batch, head, position, width]
