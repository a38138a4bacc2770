"""Refuses models whose attention is not a number: nothing that is made of it would mean anything."""

from __future__ import annotations

from collections.abc import Iterable

import torch
from torch import Tensor

from headlens.block import Block
from headlens.devices import Carrier
from headlens.errors import NotNumbersError
from headlens.heads import Head, Site

REMEDY = "Try --dtype float32 (float16 overflows easily), or another checkpoint."


def check_numbers(
    site: Site, weights: Tensor, rows: Tensor | None = None, carrier: Carrier | None = None
) -> None:
    """Refuse attention that is not a number.

    Args:
        site: where it was seen.
        weights: of all heads of the site, [input, head, query, key].
        rows: which queries count, bool [input, query]; all by default.
        carrier: brings the answer; without one it is waited for.

    Raises:
        NotNumbersError: some weight of a query that counts is none; it names the first head with one.
    """
    broken = ~torch.isfinite(weights.sum(-1))  # [input, head, query]: one such weight makes its row's sum one
    if rows is not None:
        broken = broken & rows[:, None]
    carrier, waits = carrier or Carrier(), carrier is None
    carrier.bring(broken.any(-1).any(0), lambda heads: _refuse(site, heads))
    if waits:
        carrier.arrive()


def check_block(site: Site, block: Block, carrier: Carrier | None = None) -> None:
    """Refuse a block of patterns that are not numbers, where a query sees any key.

    Args:
        site: where it was seen.
        block: the block.
        carrier: as in `check_numbers`.

    Raises:
        NotNumbersError: some weight is none; it names the first head with one.
    """
    rows = block.visible.any(-1)[:, 0].expand(len(block.pattern), -1)  # [input, query]
    check_numbers(site, block.pattern, rows, carrier)


def _refuse(site: Site, heads: Tensor) -> None:
    if bool(heads.any()):
        raise not_numbers(Head(site.stack, site.layer, int(heads.int().argmax())))


def not_numbers(head: Head, what: str = "attention") -> NotNumbersError:
    """The error of a head with NaN or infinite numbers.

    Args:
        head: the head.
        what: of it is not a number.

    Returns:
        The error.
    """
    return holds_none(f"The {what} of head {head}")


def holds_none(what: str) -> NotNumbersError:
    """The error of anything with NaN or infinite numbers.

    Args:
        what: it is, with its article: "The logits".

    Returns:
        The error.
    """
    verb = "hold" if what.split(" of ")[0].endswith("s") else "holds"
    why = "the model's weights or activations are not numbers"
    return NotNumbersError(f"{what} {verb} NaN or an infinite number: {why}.", REMEDY)


def broken_parameter(named: Iterable[tuple[str, Tensor]]) -> str:
    """Find the first of a model's weights that holds NaN or an infinite number.

    Args:
        named: names and weights.

    Returns:
        Its name; empty where all are numbers.
    """
    return next((name for name, weight in named if not bool(torch.isfinite(weight).all())), "")
