"""Looks for what is no number, and says where it comes from."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager

import torch
from torch import Tensor

from headlens.errors import ModelError, NotNumbersError
from headlens.model.devices import HostTransfer, named_weights
from headlens.model.heads import Head, Site
from headlens.model.lens import Lens
from headlens.model.seam import Block

REMEDY = "Try --dtype float32 (float16 overflows easily), or another checkpoint."


def check_numbers(
    site: Site, weights: Tensor, rows: Tensor | None = None, carrier: HostTransfer | None = None
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
    carrier, waits = carrier or HostTransfer(), carrier is None
    carrier.bring(broken.any(-1).any(0), lambda heads: _refuse(site, heads))
    if waits:
        carrier.arrive()


def check_block(site: Site, block: Block, carrier: HostTransfer | None = None) -> None:
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


# ---- Where a model stops computing with numbers: a weight, else the first head, else what was noticed


@contextmanager
def diagnosing(lens: Lens, again: Callable[[], object], heads: Sequence[Head] = ()) -> Iterator[None]:
    """Say of numbers that are none where they come from, while the block lasts.

    Args:
        lens: the model, whatever is ablated in it now.
        again: runs the model over the same inputs, for the heads to be looked at.
        heads: those that are out, for the message.

    Yields:
        Nothing.

    Raises:
        ModelError: the block met such numbers; it names the weight that holds them, else the first head whose
            attention does, else what was noticed.
    """
    try:
        yield
    except NotNumbersError as error:
        told = error
        try:
            find_source(lens, again)
        except NotNumbersError as found:
            told = found
        raise _without(told, heads) from error


def find_source(lens: Lens, again: Callable[[], object]) -> None:
    """Refuse a model that computes with NaN or infinite numbers.

    Args:
        lens: the model, whatever is ablated in it now.
        again: runs it.

    Raises:
        ModelError: a weight is none, or some weight of attention.
    """
    trained = dict(lens.model.named_parameters(remove_duplicate=False))
    weights = (pair for pair in named_weights(lens.model) if pair[0] in trained)
    if broken := broken_parameter(weights):
        raise ModelError(f"The model's weight {broken} holds NaN or an infinite number.", REMEDY)

    with torch.no_grad(), lens.observe(check_block):
        again()


def _without(error: NotNumbersError, heads: Sequence[Head]) -> NotNumbersError:
    if not heads:
        return error
    named = ", ".join(map(str, heads[:3])) + (f" and {len(heads) - 3} more" if len(heads) > 3 else "")
    said = error.problem[0].lower() + error.problem[1:]
    return NotNumbersError(f"Without head{'s' * (len(heads) > 1)} {named}, {said}", error.remedy)
