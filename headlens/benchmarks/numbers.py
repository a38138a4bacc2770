"""Refuses what a model puts out where it is no number: an argmax of it would look like a result."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor, nn

from headlens.model.finite import holds_none
from headlens.model.lens import Lens

SHOWN = 8  # tokens of an input that a message begins with


def check_outputs(
    lens: Lens,
    values: Tensor,
    rows: Tensor | Sequence[int],
    ids: Sequence[Sequence[int]],
    what: str = "logits",
) -> None:
    """Refuse what was made of a batch where any of it is NaN or infinite.

    Args:
        lens: the model.
        values: losses, log-probabilities or states, [row, ...].
        rows: which input of the batch each row belongs to, [row].
        ids: token ids of each input of the batch.
        what: they were made of.

    Raises:
        NotNumbersError: it names the first such input by its words.
    """
    broken = ~torch.isfinite(values.detach()).reshape(len(values), -1).all(1)
    if bool(broken.any()):
        first = int(rows[int(broken.int().argmax())])
        raise holds_none(f"The {what} of the input that begins {_begin(lens, ids[first])!r}")


def _begin(lens: Lens, ids: Sequence[int]) -> str:
    if lens.tokenizer is None:
        return " ".join(map(str, ids[:SHOWN]))
    text: str = lens.tokenizer.decode(list(ids[:SHOWN]), skip_special_tokens=True)
    return text.strip()


@contextmanager
def writing_numbers(model: nn.Module) -> Iterator[None]:
    """Refuse, while the block lasts, logits for the next token that leave nothing to choose from.

    Args:
        model: the model, which is asked for tokens one by one.

    Yields:
        Nothing.

    Raises:
        NotNumbersError: the largest logit of some row is NaN or infinite.
    """

    def see(_: nn.Module, __: Any, output: Any) -> None:
        logits = output["logits"] if isinstance(output, dict) and "logits" in output else None
        if isinstance(logits, Tensor) and not bool(torch.isfinite(logits[:, -1].amax(-1)).all()):
            raise holds_none("The logits of the next token")

    handle = model.register_forward_hook(see)
    try:
        yield
    finally:
        handle.remove()
