"""Holds a pruned model against the model with the same heads ablated."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any

import torch
from torch import Tensor
from transformers import PreTrainedModel

from headlens.errors import ModelError
from headlens.model.finite import holds_none
from headlens.model.heads import Head
from headlens.model.lens import Lens
from headlens.model.trace import N_SOURCE, N_TOKENS, run

JOINT = "Something between its heads and W_O depends on all heads together, a norm for instance."
WITHIN = 1e-5  # of the largest output, where that is above 1


class Probe:
    """What a model puts out for some tokens with heads ablated, to hold pruned models against.

    Args:
        lens: the model as it is; on return it is as it was.
        removed: the heads.
        seed: of the tokens.

    Raises:
        NotNumbersError: what it puts out is NaN or infinite.
    """

    def __init__(self, lens: Lens, removed: Sequence[Head], seed: int = 0) -> None:
        self._seed = seed
        with lens.ablate(removed):
            self._expected = self._outputs(lens.model)
        if not bool(torch.isfinite(self._expected).all()):
            raise holds_none("What the model puts out with these heads ablated")
        size = max(1.0, float(self._expected.abs().max()))
        eps = torch.finfo(lens.model.dtype).eps
        self.tolerance = size * max(WITHIN, 8 * eps if lens.model.dtype.itemsize < 4 else 0)

    def difference(self, model: PreTrainedModel) -> float:
        """Measure by how much a model's outputs differ at most from the ablated ones.

        Args:
            model: a pruned model.

        Returns:
            The largest absolute difference of any logit (of a model without logits, of any state).
        """
        found = self._outputs(model)
        if found.shape != self._expected.shape:
            return float("inf")
        return float((found - self._expected).abs().max())

    def first(self, makers: Iterable[Callable[[], PreTrainedModel]]) -> tuple[PreTrainedModel, float] | None:
        """Find the first way of making the pruned model that gives the ablated model's outputs.

        Args:
            makers: make it; whatever one raises means that this is no way.

        Returns:
            What it made, and its largest difference; None where none works.
        """
        for make in makers:
            try:
                model = make()
                difference = self.difference(model)
                if difference <= self.tolerance:
                    return model, difference
            except Exception:  # a family's code may fail on sizes that it was not made for in any way
                continue
        return None

    def check(self, model: PreTrainedModel, what: str, why: str = JOINT) -> float:
        """Refuse a model whose outputs are not the ablated ones.

        Args:
            model: a pruned model.
            what: how it was pruned, for the message.
            why: what it may come from, for the message.

        Returns:
            The largest difference.

        Raises:
            ModelError: they differ by more than `tolerance`.
        """
        found = self.difference(model)
        if not found <= self.tolerance:
            raise ModelError(
                f"{type(model).__name__} {what} puts out other values than with the same heads ablated "
                f"(up to {found:.2g} apart, where at most {self.tolerance:.2g} is rounding).",
                why,
            )
        return found

    def _outputs(self, model: PreTrainedModel) -> Tensor:
        drawn = torch.Generator().manual_seed(self._seed)
        with torch.no_grad():
            outputs: Any = run(model, lengths=(6 * N_TOKENS, 6 * N_SOURCE), drawn=drawn)
        first: Tensor = outputs.logits if "logits" in outputs else outputs[0]
        return first.float().cpu()
