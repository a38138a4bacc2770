"""What benchmarks share: their options, how long an input may be, and batches of like length."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor
from torch.nn.utils.rnn import pad_sequence

from headlens import limits
from headlens.errors import InputError, ModelError
from headlens.lens import Lens

MIN_EXAMPLES = 10  # with fewer, resampling examples says nothing
TOKENS_AT_ONCE = 4096  # a batch holds at most this many tokens, padding included, unless a size is given


@dataclass(frozen=True, slots=True)
class Options:
    """What a user may say about how a benchmark is read and run.

    Args:
        columns: names of the columns to read, or numbers from 0 for a file without header; by default
            those that the kind of benchmark expects.
        batch_size: inputs at once; by default as suits their length.
        max_length: longest input in tokens, special ones included; by default the benchmark's own choice.
        seed: of what is drawn at random, such as masked positions; 0 or more.
        allow_random_weights: accept a task head whose weights the checkpoint lacks.
    """

    columns: tuple[str, ...] = ()
    batch_size: int | None = None
    max_length: int | None = None
    seed: int = 0
    allow_random_weights: bool = False


def need_tokenizer(lens: Lens) -> Any:
    """Get the tokenizer of a model.

    Args:
        lens: the model.

    Returns:
        Its tokenizer.

    Raises:
        ModelError: it has none.
    """
    if lens.tokenizer is None:
        raise ModelError(
            "A benchmark needs the model's tokenizer, and there is none.",
            "Take a checkpoint that brings one, or write headlens.load(model, tokenizer=...).",
        )
    return lens.tokenizer


def longest_input(lens: Lens, wanted: int | None = None) -> int | None:
    """Find how many tokens an input may have.

    Args:
        lens: the model.
        wanted: what the user asks for.

    Returns:
        `wanted`, else what model and tokenizer allow; None where they know no limit.

    Raises:
        InputError: the user asks for more than the model takes.
    """
    most = limits.longest_input(lens)
    if wanted is not None and most is not None and wanted > most:
        raise InputError(
            f"Inputs of {wanted} tokens are asked for, but {type(lens.model).__name__} takes at most {most}.",
            f"Type --max-length {most} or less.",
        )
    return most if wanted is None else wanted


def in_batches(
    lengths: Sequence[int], batch_size: int | None = None, tokens_at_once: int = TOKENS_AT_ONCE
) -> Iterator[list[int]]:
    """Group inputs of like length.

    Args:
        lengths: tokens of each input.
        batch_size: inputs in a batch; by default as many as hold `tokens_at_once`, padding included.
        tokens_at_once: see there.

    Yields:
        Indices of the inputs of a batch, longest inputs first, so that memory runs out at once or not at all.
    """
    group: list[int] = []
    for index in sorted(range(len(lengths)), key=lambda i: -lengths[i]):
        if group and len(group) >= (batch_size or tokens_at_once // max(1, lengths[group[0]])):
            yield group
            group = []
        group.append(index)
    if group:
        yield group


def padded(lens: Lens, rows: Sequence[Sequence[int]]) -> dict[str, Tensor]:
    """Put inputs of unequal length side by side, padded on the right.

    Args:
        lens: the model that will read them.
        rows: token ids of each input.

    Returns:
        input_ids and attention_mask, int64 [input, token], on the model's device.
    """
    ids = pad_sequence([torch.tensor(row) for row in rows], batch_first=True, padding_value=_pad_id(lens))
    lengths = torch.tensor([len(row) for row in rows])
    mask = torch.arange(ids.shape[1]) < lengths[:, None]  # [input, token]
    return {"input_ids": ids.to(lens.device), "attention_mask": mask.long().to(lens.device)}


def _pad_id(lens: Lens) -> int:
    """The padding id; the attention mask hides it, but RoBERTa's positions depend on it."""
    for holder in (lens.tokenizer, lens.model.config.get_text_config()):
        pad = getattr(holder, "pad_token_id", None)
        if isinstance(pad, int) and pad >= 0:
            return pad
    return 0
