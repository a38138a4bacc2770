"""A worker on Ray: it has a copy of the model, and does units of work with it."""

from __future__ import annotations

import os
import pickle
import socket
import warnings
from collections.abc import Callable
from copy import deepcopy
from dataclasses import dataclass, field
from typing import Any

import torch
import transformers

import headlens
from headlens.ablation.units import fingerprint
from headlens.errors import InputError, ModelError
from headlens.model.devices import is_spread
from headlens.model.lens import Lens
from headlens.model.load import load_model
from headlens.model.source import Source

VERSIONS = {
    "headlens": headlens.__version__,
    "torch": torch.__version__.partition("+")[0],  # of the CPU and of CUDA alike
    "transformers": transformers.__version__,
}


@dataclass(frozen=True, slots=True)
class Done:
    """What came of a unit.

    Args:
        result: the result, packed.
        by: who did it, see `about`.
        warned: what was warned of on the way.
    """

    result: bytes
    by: dict[str, Any]
    warned: list[str]


def about() -> dict[str, Any]:
    """Tell what this process is: its machine's name, its id, and the versions of what computes in it."""
    return {"machine": socket.gethostname(), "process": os.getpid(), **VERSIONS}


@dataclass(frozen=True, eq=False)
class Copy:
    """How a worker gets the model that it copies.

    Args:
        source: where to load it from; None if it is sent along.
        dtype: of its weights.
        device: where it goes.
        threads: that the worker computes with on a CPU.
        weights: their hash, see `headlens.ablation.units.fingerprint`.
        tokenizer: its tokenizer.
        missing: names of weights that its checkpoint lacked.
        model: the model itself, where it is sent along.
        device_map: "auto" for a model that each worker spreads over its own GPUs, as it is spread here.
    """

    source: Source | None
    dtype: str
    device: str
    threads: int
    weights: str
    tokenizer: Any = field(repr=False)
    missing: tuple[str, ...] = ()
    model: Any = field(default=None, repr=False)
    device_map: str | None = None

    @classmethod
    def of(cls, lens: Lens, weights: str, device: str, threads: int) -> Copy:
        """Say how to copy a model: from its checkpoint if that is the whole of it, else it is sent along.

        Raises:
            InputError: it would have to be sent, and is spread over devices.
        """
        dtype = str(lens.model.dtype).removeprefix("torch.")
        by_name = lens.source is not None and not lens.missing  # missing weights are random at every load
        spread = is_spread(lens.model)
        if spread and not by_name:
            raise InputError(
                "A model that is spread over devices cannot be sent to workers.",
                "Load it by name or place, from a checkpoint with all weights, or leave the engine out.",
            )
        return cls(
            lens.source if by_name else None, dtype, device, threads, weights,
            lens.tokenizer, lens.missing, None if by_name else deepcopy(lens.model).cpu(),
            "auto" if spread else None,
        )  # fmt: skip

    def open(self) -> Lens:
        """Get the copy.

        Raises:
            ModelError: the checkpoint is not there, or has other weights.
        """
        if self.source is None:
            return Lens(self.model.to(self.device).eval(), self.tokenizer, None, self.missing)
        device = "auto" if self.device_map else self.device
        loaded = load_model(self.source, self.dtype, device, self.device_map, self.tokenizer)
        if fingerprint(loaded.model) != self.weights:
            raise ModelError(
                f"{self.source.name!r} has other weights there than the model here.",
                "Put the same checkpoint on every machine; of a model that was changed after it was loaded, "
                "give the model itself: headlens.load(lens.model, lens.tokenizer).",
            )
        return Lens(loaded.model, self.tokenizer, self.source, loaded.missing, loaded.unused)


class Worker:
    """What runs in a process of its own. If it is killed, Ray starts it anew, and it opens its copy again.

    References come in lists: Ray would otherwise fetch what they stand for with every call.
    """

    def __init__(self) -> None:
        self._lens: Lens | None = None
        self._work = -1
        self._do: Callable[[Any], Any] | None = None

    def open(self, copy: list[Any]) -> dict[str, Any]:
        """Open the model.

        Args:
            copy: a reference to the `Copy`.

        Returns:
            What `about` says.

        Raises:
            ModelError: it cannot be opened; the message names the machine.
        """
        self._opened(copy)
        return about()

    def do(self, copy: list[Any], number: int, work: list[Any], unit: Any) -> Done:
        """Do a unit of work.

        Args:
            copy: a reference to the `Copy`.
            number: of the work: one number, one work.
            work: a reference to it.
            unit: the unit.

        Returns:
            What came of it.
        """
        with warnings.catch_warnings(record=True) as noted:
            warnings.simplefilter("always", UserWarning)
            if self._do is None or self._work != number:
                self._do = None  # what the work before has kept is given back first
                self._do, self._work = _fetched(work).begin(self._opened(copy)), number
            done = self._do(unit)
        warned = [str(one.message) for one in noted if issubclass(one.category, UserWarning)]
        return Done(pack(done), about(), warned)

    def _opened(self, copy: list[Any]) -> Lens:
        if self._lens is None:
            told: Copy = _fetched(copy)
            torch.set_num_threads(told.threads)
            try:
                self._lens = told.open()
            except ModelError as error:
                where = f"On {socket.gethostname()}, a worker of Ray: {error.problem}"
                raise ModelError(where, error.remedy) from error
        return self._lens


def pack(thing: Any) -> bytes:
    """Pickle something by ourselves: what Ray pickles comes out with arrays that cannot be written to."""
    from ray import cloudpickle

    packed: bytes = cloudpickle.dumps(thing)  # type: ignore[no-untyped-call]
    return packed


def _fetched(reference: list[Any]) -> Any:
    import ray

    return pickle.loads(ray.get(reference[0]))
