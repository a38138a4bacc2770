"""Where a model stops computing with numbers: a weight, else the first head, else what was noticed."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager

import torch

from headlens.errors import ModelError, NotNumbersError
from headlens.heads import Head
from headlens.lens import Lens
from headlens.numeric import REMEDY, broken_parameter, check_block
from headlens.offloaded import named_weights


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
