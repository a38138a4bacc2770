"""Masks that depend only on how far a key is from a query: the mask of every block is a view of one strip."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor
from transformers.masking_utils import bidirectional_mask_function, causal_mask_function


class Strip:
    """The masks of inputs without padding whose queries see every key, or every key up to themselves.

    The queries of a causal block see a triangle of keys and all keys before it. So a strip as high as a block
    holds the masks of all blocks, each a window of it that begins further left for later queries: what is
    stored grows with the length of the input, not with its square.

    Args:
        causal: whether queries see keys up to themselves only.
        batch: number of inputs.
        n_keys: number of keys; where the mask is causal there are as many queries.
        device: where masks are needed.
    """

    def __init__(self, causal: bool, batch: int, n_keys: int, device: Any) -> None:
        self._causal = causal
        self._batch = batch
        self._n_keys = n_keys
        self._device = device
        self._seen = torch.ones(0 if causal else 1, 1, dtype=torch.bool, device=device)
        self._added: dict[torch.dtype, Tensor] = {}

    @classmethod
    def of(cls, arguments: Mapping[str, Any]) -> Strip | None:
        """Make the strip of a mask, if it has one.

        Args:
            arguments: the keyword arguments that `transformers` passes to a mask function.

        Returns:
            The strip; None where there is padding, a cache, or another rule of what may be seen.
        """
        function, n_keys = arguments.get("mask_function"), int(arguments["kv_length"])
        causal = function is causal_mask_function
        if not causal and function is not bidirectional_mask_function:
            return None
        offsets = [arguments.get(name, 0) for name in ("q_offset", "kv_offset")]
        square = arguments["q_length"] == n_keys and all(isinstance(x, int) and x == 0 for x in offsets)
        if (causal and not square) or not _all_real(arguments.get("attention_mask"), n_keys):
            return None
        return cls(causal, arguments["batch_size"], n_keys, arguments.get("device", "cpu"))

    def reach(self, stop: int) -> int:
        """Count the leading keys that the queries before `stop` see."""
        return stop if self._causal else self._n_keys

    def block(self, start: int, stop: int, n_keys: int, dtype: torch.dtype) -> tuple[Tensor, Tensor]:
        """Cut out the mask of one block.

        Args:
            start: first query of the block.
            stop: one past its last query.
            n_keys: how many leading keys to look at.
            dtype: dtype of the logits.

        Returns:
            Which keys each query may see [batch, 1, stop - start, n_keys], and the same as `additive`; views.
        """
        if self._causal and len(self._seen) < stop - start:
            self._draw(stop - start)
        if dtype not in self._added:
            self._added[dtype] = additive(self._seen, dtype)
        seen, added = self._seen, self._added[dtype]
        if self._causal:
            window = slice(stop - start), slice(self._n_keys - start, self._n_keys - start + n_keys)
            seen, added = seen[window], added[window]
        shape = (self._batch, 1, stop - start, n_keys)
        return seen.expand(shape), added.expand(shape)

    def _draw(self, rows: int) -> None:
        """Row i sees columns up to `n_keys + i`: in the window of any block, that is the query itself."""
        columns = torch.arange(2 * self._n_keys, device=self._device)
        self._seen = columns <= self._n_keys + torch.arange(rows, device=self._device)[:, None]
        self._added.clear()


def _all_real(padding: Any, n_keys: int) -> bool:
    """Whether no token is padding, as far as can be told: not on the meta device."""
    if padding is None:
        return True
    known = isinstance(padding, Tensor) and padding.shape[1:] == (n_keys,) and not padding.is_meta
    return known and bool(padding.all())


def additive(visible: Tensor, dtype: torch.dtype) -> Tensor:
    """Turn a mask of booleans into the one that eager attention adds to its logits.

    Args:
        visible: bool tensor of any shape, True where a key may be seen.
        dtype: dtype of the logits.

    Returns:
        Tensor of the same shape: 0 where visible, else the lowest number of that dtype.
    """
    zero = torch.zeros((), dtype=dtype, device=visible.device)
    return torch.where(visible, zero, torch.finfo(dtype).min)
