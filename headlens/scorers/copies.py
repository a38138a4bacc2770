"""Copies of tokens, and the weight on them: what induction and duplicate-token heads share."""

from __future__ import annotations

from typing import cast

import torch
from torch import Tensor

from headlens.corpus.batches import Batch
from headlens.scorers.base import TokenView


def earlier_copies(view: TokenView) -> Tensor:
    """Find for every token the earlier tokens that are the same, special ones and padding aside.

    Args:
        view: a block of any site.

    Returns:
        0 and 1, [input, token, earlier token], on the block's device.
    """
    return cast(Tensor, view.batch.on(view.pattern.device, _copies))


def _copies(batch: Batch) -> Tensor:
    ids = batch.inputs["input_ids"]
    ordinary = batch.real & ~batch.special
    same = (ids[:, :, None] == ids[:, None, :]) & ordinary[:, :, None] & ordinary[:, None, :]
    return same.tril(-1).float()


def share_on(view: TokenView, targets: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Sum the weight that the rows of a block put on some keys.

    Args:
        view: the block.
        targets: which keys, 0 and 1, [input, token, token].

    Returns:
        Sums over rows that may see a target, [input, head]; how many rows those are, [input]; and what
        uniform weights would put there, [input].
    """
    block = view.block
    targets = targets[:, block.start : block.stop, : view.pattern.shape[-1]].to(view.pattern.dtype)
    seen = (targets * view.visible).sum(-1)  # [input, query]
    counted = (seen > 0) & view.counted
    mass = torch.einsum("bhqk,bqk->bhq", view.pattern, targets)
    uniform = seen / view.n_visible.clamp(min=1)
    return (mass * counted[:, None]).sum(-1), counted.sum(-1).float(), (uniform * counted).sum(-1)
