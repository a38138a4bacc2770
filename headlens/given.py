"""What a model is given while it runs: the arguments of its outermost call, and which tokens are real."""

from __future__ import annotations

import hashlib
import inspect
import threading
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor, nn
from transformers import Cache, PreTrainedModel


@dataclass(frozen=True, slots=True)
class Given:
    """One pass through a model, as it was asked for.

    Args:
        module: the model, or the part of it (its body, its encoder), that was called.
        inputs: the arguments of its forward, by name.
        names: what `row_names` has found, by stack.
    """

    module: nn.Module
    inputs: dict[str, Any]
    names: dict[str, list[bytes]] = field(default_factory=dict)

    @property
    def in_steps(self) -> bool:
        """Whether this is a step of generation: keys and values of earlier tokens are in a cache."""
        return any(isinstance(value, Cache) for value in self.inputs.values())

    def real(self, stack: str, output: Tensor) -> Tensor:
        """Tell which queries of a stack stand for tokens, not for padding.

        Args:
            stack: "encoder", "decoder" or "cross".
            output: what a site of it puts out, [row, query, ...].

        Returns:
            Bool [row, query]; all True where no attention mask was given.
        """
        rows, queries = output.shape[:2]
        mask = self.inputs.get(f"{self._side(stack)}attention_mask")
        if not isinstance(mask, Tensor) or mask.ndim != 2:
            return torch.ones(rows, queries, dtype=torch.bool, device=output.device)
        real = mask[:, -queries:].to(output.device) != 0  # a generating model's mask covers what it has read
        return real.repeat_interleave(rows // len(real), dim=0)  # beams

    def row_names(self, stack: str, output: Tensor) -> list[bytes]:
        """Name each row of a batch by its tokens, so that the same input has the same name in every batch.

        Args:
            stack: see `real`.
            output: see `real`.

        Returns:
            A digest of each row's real tokens, of both sides for an encoder-decoder model.
        """
        if stack in self.names:
            return self.names[stack]
        digests = [hashlib.blake2b(digest_size=16) for _ in range(output.shape[0])]
        for side in dict.fromkeys(("", self._side(stack))):
            ids, mask = (self.inputs.get(f"{side}{name}") for name in ("input_ids", "attention_mask"))
            if not isinstance(ids, Tensor):
                continue
            rows = ids.cpu()
            real = None if mask is None else mask[:, -ids.shape[1] :].cpu() != 0
            for row, digest in enumerate(digests):
                own = rows[row] if real is None else rows[row][real[row]]
                digest.update(own.numpy().tobytes() + b"|")
        self.names[stack] = [digest.digest() for digest in digests]
        return self.names[stack]

    def _side(self, stack: str) -> str:
        two_sides = "decoder_input_ids" in self.inputs or "labels" in self.inputs
        return "decoder_" if two_sides and stack != "encoder" else ""


class Entrance:
    """Notes what a model is given, from the moment its outermost call begins until it ends.

    Parts of a model that are models of their own (its body, its encoder) can be called by themselves.
    """

    def __init__(self) -> None:
        self._local = threading.local()

    @property
    def given(self) -> Given | None:
        """The pass that is running in this thread."""
        return getattr(self._local, "given", None)

    @contextmanager
    def watch(self, model: PreTrainedModel) -> Iterator[None]:
        """Note what the model is given while the block lasts.

        Args:
            model: the model; afterwards it is as it was.

        Yields:
            Nothing.
        """
        with ExitStack() as stack:
            for part in model.modules():
                if isinstance(part, PreTrainedModel):
                    stack.callback(part.register_forward_pre_hook(self._enter, with_kwargs=True).remove)
                    stack.callback(part.register_forward_hook(self._leave, always_call=True).remove)
            yield

    def _enter(self, module: nn.Module, arguments: tuple[Any, ...], named: dict[str, Any]) -> None:
        if self.given is None:
            bound = inspect.signature(module.forward).bind_partial(*arguments, **named).arguments
            named_freely = bound.pop("kwargs", {})
            inputs = {k: v for k, v in {**bound, **named_freely}.items() if v is not None}
            self._local.given = Given(module, inputs)

    def _leave(self, module: nn.Module, _: Any, __: Any) -> None:
        given = self.given
        if given is not None and given.module is module:
            self._local.given = None
