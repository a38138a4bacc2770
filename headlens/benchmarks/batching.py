"""Batches of like length, as large as memory allows."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator, Sequence
from typing import Any, TypeVar
from weakref import WeakKeyDictionary

import torch
from torch import Tensor
from torch.nn.utils.rnn import pad_sequence

from headlens.errors import ModelError
from headlens.model.devices import is_out_of_memory, moved
from headlens.model.lens import Lens, check_ids, known_pad

T = TypeVar("T")

TOKENS_AT_ONCE = {"cpu": 4096}  # padding included; a CPU is no faster with more
TOKENS_ELSEWHERE = 65536
MOST_HALVINGS = 16
_halved: WeakKeyDictionary[Any, int] = WeakKeyDictionary()  # model -> how often memory ran out


def run_batches(
    lens: Lens,
    lengths: Sequence[int],
    work: Callable[[list[int]], T],
    batch_size: int | None = None,
    tokens_at_once: int | None = None,
) -> Iterator[tuple[list[int], T]]:
    """Group inputs of like length and work on each group.

    Where memory runs out, batches are halved, from there on and for later calls with the same model, and
    the work goes on; a warning says so once.

    Args:
        lens: the model.
        lengths: tokens of each input.
        work: what is done with a group of inputs, given as indices.
        batch_size: inputs in a batch; by default as many as hold `tokens_at_once`, padding included.
        tokens_at_once: see there; by default as suits the device.

    Yields:
        The indices of a batch and what the work made of it; longest inputs first, so that memory runs out at
        once or not at all.

    Raises:
        ModelError: memory does not suffice for one input.
    """
    most = tokens_at_once or TOKENS_AT_ONCE.get(lens.device.type, TOKENS_ELSEWHERE)
    waiting = sorted(range(len(lengths)), key=lambda index: -lengths[index])
    while waiting:
        size = batch_size or max(1, most // max(1, lengths[waiting[0]]))
        group = waiting[: max(1, size >> _halved.get(lens.model, 0))]
        result = []  # empty where memory ran out
        try:
            result.append(work(group))
        except (RuntimeError, MemoryError) as error:
            if not is_out_of_memory(error):
                raise
            if len(group) == 1:
                raise ModelError(
                    f"Memory does not suffice for one input of {lengths[group[0]]} tokens.",
                    "Type a smaller --max-length, a smaller --dtype, or another --device.",
                ) from error
        if not result:  # outside `except`, which would keep the tensors of the failed pass
            _halve(lens)
            continue
        yield group, result[0]
        waiting = waiting[len(group) :]


def until_it_fits(lens: Lens, work: Callable[[], T]) -> T:
    """Do work that goes on after a batch has run, such as a backward pass; begin anew if memory runs out.

    Args:
        lens: the model.
        work: runs batches through `run_batches`; each attempt begins with nothing done.

    Returns:
        What the work made.

    Raises:
        ModelError: memory does not suffice for one input.
    """
    for _ in range(MOST_HALVINGS):
        done = []
        try:
            done.append(work())
        except (RuntimeError, MemoryError) as error:
            if not is_out_of_memory(error):
                raise
        if done:
            return done[0]
        _halve(lens)
    raise ModelError(
        "Memory does not suffice for one input.",
        "Type a smaller --max-length, a smaller --dtype, or another --device.",
    )


def _halve(lens: Lens) -> None:
    if lens.model not in _halved:
        warnings.warn("Memory ran out; going on with smaller batches.", stacklevel=3)
    _halved[lens.model] = _halved.get(lens.model, 0) + 1
    if lens.device.type == "cuda":
        torch.cuda.empty_cache()


def padded(lens: Lens, rows: Sequence[Sequence[int]]) -> dict[str, Tensor]:
    """Put inputs of unequal length side by side, padded on the right.

    Args:
        lens: the model that will read them.
        rows: token ids of each input.

    Returns:
        input_ids and attention_mask, int64 [input, token], on the model's device.

    Raises:
        InputError: the model has no embedding for a token.
    """
    check_ids(lens, rows)
    ids = pad_sequence([torch.tensor(row) for row in rows], batch_first=True, padding_value=_pad_id(lens))
    lengths = torch.tensor([len(row) for row in rows])
    mask = torch.arange(ids.shape[1]) < lengths[:, None]  # [input, token]
    return {"input_ids": moved(ids, lens.device), "attention_mask": moved(mask.long(), lens.device)}


def _pad_id(lens: Lens) -> int:
    """The padding id; the attention mask hides it, but RoBERTa's positions depend on it."""
    for holder in (lens.tokenizer, lens.model.config.get_text_config()):
        pad = getattr(holder, "pad_token_id", None)
        if isinstance(pad, int) and pad >= 0:
            return known_pad(lens, pad)
    return 0
