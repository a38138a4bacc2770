"""Embeddings of texts: the mean of a model's last hidden states."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from headlens.benchmarks.batching import padded, run_batches
from headlens.benchmarks.numbers import check_outputs
from headlens.benchmarks.prediction import no_cache
from headlens.model.lens import Lens


def embed(lens: Lens, ids: Sequence[Sequence[int]], batch_size: int | None = None) -> Tensor:
    """Embed many texts, batch by batch.

    Args:
        lens: the model, whatever is ablated in it now.
        ids: token ids of each text.
        batch_size: texts at once; by default as suits their length.

    Returns:
        float64 on the CPU, [text, width].
    """
    vectors: dict[int, Tensor] = {}
    lengths = [len(row) for row in ids]
    work = lambda group: embed_batch(lens, [ids[index] for index in group]).cpu().double()  # noqa: E731
    for group, rows in run_batches(lens, lengths, work, batch_size):
        vectors.update(zip(group, rows, strict=True))
    return torch.stack([vectors[index] for index in range(len(ids))])


def embed_batch(lens: Lens, ids: Sequence[Sequence[int]]) -> Tensor:
    """Embed some texts at once: the mean of the last hidden states over all tokens, padding excluded.

    Args:
        lens: the model; of an encoder-decoder model the encoder is run.
        ids: token ids of each text.

    Returns:
        In float32 or better, differentiable unless gradients are off, [text, width].
    """
    model: Any = lens.model
    seq2seq = model.config.is_encoder_decoder
    body = model.get_encoder() if seq2seq else model.base_model
    inputs = padded(lens, ids)
    hidden = body(**inputs, **({} if seq2seq else no_cache(lens))).last_hidden_state  # [text, token, width]
    if hidden.dtype in (torch.float16, torch.bfloat16):
        hidden = hidden.float()
    mask = inputs["attention_mask"].to(hidden.device)
    hidden = hidden.masked_fill(mask[..., None] == 0, 0)
    mean: Tensor = hidden.sum(dim=1) / mask.sum(dim=1, keepdim=True)
    check_outputs(lens, mean, range(len(ids)), ids, "last hidden states")
    return mean
