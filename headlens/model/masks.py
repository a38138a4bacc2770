"""Attention masks that are made a block of queries at a time, however long the text."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor
from transformers.masking_utils import (
    ALL_MASK_ATTENTION_FUNCTIONS,
    bidirectional_mask_function,
    causal_mask_function,
    sdpa_mask,
)

KEPT = 96 * 2**20  # bytes of masks that one forward pass may keep


class LazyMask:
    """What a model receives for its attention mask while headlens listens.

    It keeps the arguments of `transformers`' mask functions (mask function, padding, offsets) and makes
    the mask of one block, or the whole mask of another backend, when it is asked to.

    Args:
        arguments: the keyword arguments that `transformers` passes to a mask function.
    """

    def __init__(self, arguments: dict[str, Any]) -> None:
        self._arguments = arguments
        self._dense: dict[str, Tensor | None] = {}
        self._reach: dict[tuple[int, int], int] = {}
        self._blocks: dict[tuple[int, int, int, torch.dtype, torch.device], tuple[Tensor, Tensor]] = {}
        self._kept = 0
        self._strip = Strip.of(arguments)
        self.n_keys: int = int(arguments["kv_length"])

    def dense(self, backend: str) -> Tensor | None:
        """Make the whole mask that another backend uses; kept, since all layers share it.

        Args:
            backend: a name known to `transformers`' mask interface, such as "sdpa" or "eager".

        Returns:
            What that backend's mask function returns, None where it needs no mask.
        """
        if backend not in self._dense:
            # a backend without a mask function is given no mask, as transformers does it
            make = ALL_MASK_ATTENTION_FUNCTIONS.get(backend, lambda **_: None)
            self._dense[backend] = make(**self._arguments)
        return self._dense[backend]

    def block(self, start: int, stop: int, n_keys: int, query: Tensor) -> tuple[Tensor, Tensor]:
        """Make the mask of one block; small ones are kept, since all layers share them.

        Args:
            start: first query of the block.
            stop: one past its last query.
            n_keys: how many leading keys to look at.
            query: what the mask is for: it is made in the type of the query, on its device.

        Returns:
            Which keys each query may see [batch, 1, stop - start, n_keys]: `visible`, and as `additive`.
        """
        dtype = query.dtype
        name = (start, stop, n_keys, dtype, query.device)
        if name in self._blocks:
            return self._blocks[name]
        if self._strip is not None:
            seen, added = self._strip.block(start, stop, n_keys, dtype)
            made, size = (seen.to(query.device), added.to(query.device)), 0
        else:
            visible = self.visible(start, stop, n_keys).to(query.device)
            made = visible, additive(visible, dtype)
            size = visible.numel() * (1 + dtype.itemsize)
        if self._kept + size <= KEPT:
            self._kept += size
            self._blocks[name] = made
        return made

    def visible(self, start: int, stop: int, n_keys: int | None = None) -> Tensor:
        """Tell which keys the queries of one block may see.

        Args:
            start: first query of the block.
            stop: one past its last query.
            n_keys: how many leading keys to look at; all by default.

        Returns:
            Bool tensor [batch, 1, stop - start, n_keys], True where the query may see the key.
        """
        block = dict(self._arguments)
        block["q_length"] = stop - start
        block["q_offset"] = block.get("q_offset", 0) + start
        block["kv_length"] = self.n_keys if n_keys is None else n_keys
        block["allow_is_causal_skip"] = block["allow_is_bidirectional_skip"] = False
        mask = sdpa_mask(**block)
        assert mask is not None  # neither skip is allowed
        return mask

    def reach(self, start: int, stop: int) -> int:
        """Count the leading keys that a block needs: one past the last key that any of its queries sees.

        A query that sees nothing (left padding) is given uniform weights over all keys by eager
        attention; its block therefore keeps all keys, so that the numbers stay the model's own.

        Args:
            start: first query of the block.
            stop: one past its last query.

        Returns:
            A number of keys, from 1 to all.
        """
        if (
            self._arguments.get("device") is not None
            and torch.device(self._arguments["device"]).type == "meta"
        ):
            return self.n_keys
        if self._strip is not None:
            return self._strip.reach(stop)
        if (start, stop) not in self._reach:
            seen = self.visible(start, stop)
            blind = (~seen.any(-1)).any()
            columns = seen.any(dim=2).any(dim=1).any(dim=0)  # [key] that some query sees
            behind = columns * torch.arange(1, self.n_keys + 1, device=seen.device)
            # one number, since each that is asked for waits for the device
            self._reach[start, stop] = int(torch.where(blind, self.n_keys, behind.amax()))
        return self._reach[start, stop]

    def seen_by(self, query: int, first: int, n_keys: int) -> Tensor:
        """Tell which keys a query would see in an input as long as that takes, by the mask function alone.

        Args:
            query: position of the query, however far out; nothing is run there.
            first: position of the first key in question.
            n_keys: how many keys, from that one on.

        Returns:
            Bool tensor [n_keys], padding aside.
        """
        probe = {**self._arguments, "attention_mask": None, "batch_size": 1}
        probe.update(q_length=1, q_offset=query, kv_length=n_keys, kv_offset=first)
        probe.update(allow_is_causal_skip=False, allow_is_bidirectional_skip=False)
        mask = sdpa_mask(**probe)
        assert mask is not None  # neither skip is allowed
        return mask[0, 0, 0]

    @property
    def causal(self) -> bool:
        """Whether no query may see a key after itself, by the mask function alone (padding aside)."""
        function = self._arguments.get("mask_function")
        probe = {**self._arguments, "attention_mask": None, "batch_size": 1, "device": "cpu"}
        probe.update(q_length=2, kv_length=2, q_offset=0, kv_offset=0)
        probe.update(allow_is_causal_skip=False, allow_is_bidirectional_skip=False)
        mask = sdpa_mask(**probe)
        return function is not None and mask is not None and not bool(mask[0, 0, 0, 1])


def lazy_mask(**arguments: Any) -> LazyMask:
    """Stand in `transformers`' mask interface: keep the arguments, make nothing yet.

    Args:
        **arguments: what `transformers` passes to every mask function.

    Returns:
        The mask to be.
    """
    return LazyMask(arguments)


# ---- Masks that depend only on how far a key is from a query: the mask of every block is a view of one strip


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
