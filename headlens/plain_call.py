"""The textbook's attention in the place of a model's own function, where both compute the same."""

from __future__ import annotations

import inspect
from dataclasses import dataclass, fields, replace
from typing import Any

import torch
from torch import Tensor

from headlens.call import AttentionCall, eager_of

TRIED = 2  # queries at each end on which it is tried before it is relied on
LOUDER = 32.0  # and with logits so many times as large: a soft cap shows on large ones only
ACCURACY = 1e-5  # of the largest output and weight; rounding grows with the logits
UNDERSTOOD = {"scaling", "dropout"}  # in eval mode nothing is dropped


@dataclass(frozen=True, slots=True)
class PlainCall(AttentionCall):
    """A call that computes ``softmax(scaling Q K^T + mask) V``, with little memory.

    Models' own functions make a new tensor at each step and repeat keys and values for every query head that
    shares them, each time they are called: over many blocks that takes longer than the products. Here heads
    that share keys stand below one another as rows of one product, and the logits are changed in place.
    """

    @property
    def rows_per_query(self) -> int:
        """The query heads that share a key-value head."""
        return self.query.shape[1] // self.key.shape[1]

    def weigh(
        self, query: Tensor, key: Tensor, value: Tensor, mask: Tensor | None, options: dict[str, Any]
    ) -> tuple[Tensor, Tensor]:
        """See `AttentionCall.weigh`."""
        batch, n_heads, n_queries, width = query.shape
        n_groups, n_keys = key.shape[1:3]
        shape = (batch, n_groups, n_heads // n_groups, n_queries, n_keys)
        scaling = options.get("scaling")
        scaling = width**-0.5 if scaling is None else scaling
        rows = query.reshape(batch * n_groups, -1, width)  # [batch x kv head, head of it x query, width]
        logits = torch.bmm(rows, key.flatten(0, 1).transpose(1, 2)).view(shape)
        if mask is None:
            logits.mul_(scaling)
        else:
            torch.add(mask[:, :, None], logits, alpha=scaling, out=logits)
        pattern = torch.softmax(logits, dim=-1)
        output = torch.bmm(pattern.view(batch * n_groups, -1, n_keys), value.flatten(0, 1))
        output = output.view(batch, n_heads, n_queries, -1).transpose(1, 2)
        return output, pattern.view(batch, n_heads, n_queries, n_keys)


def plain_where_equal(call: AttentionCall) -> AttentionCall:
    """Take the textbook's attention for a call, where it is what the model's own function computes.

    That is tried out, not assumed: on the first and the last queries of this very call, and on the last once
    more with large logits. Where the function is given anything of which the textbook knows nothing (a soft
    cap, a bias), or rounds on the way because it works in less than float32, it is left in its place.

    Args:
        call: the call.

    Returns:
        The same call, computed as in the textbook; or the call itself.
    """
    named = set(inspect.signature(eager_of(call.module)).parameters)
    more = [name for name in call.options.keys() & named - UNDERSTOOD if call.options[name] is not None]
    several = isinstance(call.mask, Tensor) and call.mask.ndim == 4 and call.mask.shape[1] != 1
    if more or several or not _in_float32(call.query):
        return call
    plain = PlainCall(**{field.name: getattr(call, field.name) for field in fields(call)})
    n_queries = call.query.shape[2]
    last = max(0, n_queries - TRIED), n_queries
    louder = (replace(call, query=call.query * LOUDER), replace(plain, query=plain.query * LOUDER))
    same = (
        _apart(call, plain, 0, min(TRIED, n_queries)) < ACCURACY
        and _apart(call, plain, *last) < ACCURACY
        and _apart(*louder, *last) < LOUDER * ACCURACY
    )
    return plain if same else call


def _in_float32(query: Tensor) -> bool:
    """Whether all is computed in float32, and no gradient is asked for: changing in place would break it."""
    wanted = query.requires_grad or torch.is_autocast_enabled(query.device.type)
    return query.dtype == torch.float32 and not wanted


def _apart(own: AttentionCall, other: AttentionCall, start: int, stop: int) -> float:
    """How far apart two ways compute the outputs and patterns of some queries, over the largest of them."""
    pairs = zip(own.block(start, stop)[:2], other.block(start, stop)[:2], strict=True)
    return max(float((a - b).abs().max() / a.abs().max()) for a, b in pairs)
