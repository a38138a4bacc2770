"""Devices: which one computes, and how tensors get there."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, nullcontext
from dataclasses import fields, is_dataclass, replace
from typing import Any, TypeVar, cast

import torch
from torch import Tensor, nn

T = TypeVar("T")

WITHOUT_FLOAT64 = ("mps",)
PINNED = ("cuda",)  # where copies from pinned memory need not be waited for
CARRIED = 64 * 2**20  # bytes that may wait on a device

Use = Callable[[Tensor], object]


def exact(device: torch.device) -> torch.dtype:
    """The type that sums are kept in on a device: float64 where it has that, else float32."""
    return torch.float32 if device.type in WITHOUT_FLOAT64 else torch.float64


def exactly(tensor: Tensor) -> Tensor:
    """Take a tensor to float64: on its device where that has it, else on the CPU."""
    return (tensor.cpu() if tensor.device.type in WITHOUT_FLOAT64 else tensor).double()


def input_device(model: nn.Module) -> torch.device:
    """Find where a model's inputs go: to the first of its layers, also where others are elsewhere.

    Args:
        model: the model; `accelerate` may have spread it over devices.

    Returns:
        The device of its input embeddings; one that is not in memory between calls is on none of its own.
    """
    embeddings = getattr(model, "get_input_embeddings", lambda: None)()
    hook = getattr(embeddings, "_hf_hook", None)
    for one in getattr(hook, "hooks", (hook,)):
        place = getattr(one, "execution_device", None)
        if place is not None:
            return torch.device(place)
    return next(iter(model.parameters())).device


def moved(value: T, device: torch.device) -> T:
    """Bring tensors to a device.

    What comes from the CPU to a CUDA device goes through pinned memory, so that nobody waits for it.

    Args:
        value: a tensor, or a tuple or dataclass with some; anything else is left as it is.
        device: where to.

    Returns:
        The same on the device; itself where it is there already.
    """
    if isinstance(value, Tensor):
        return cast(T, _to(value, device))
    if isinstance(value, tuple):
        return cast(T, tuple(moved(part, device) for part in value))
    if is_dataclass(value) and not isinstance(value, type):
        parts: dict[str, Any] = {one.name: moved(getattr(value, one.name), device) for one in fields(value)}
        return cast(T, replace(value, **parts))
    return value


def lasting(make: Callable[[], T]) -> T:
    """Make tensors that outlive this pass: those of inference mode take part in no later one with gradients.

    Args:
        make: makes them.

    Returns:
        What it made.
    """
    with torch.inference_mode(False), torch.no_grad():
        return make()


def _to(tensor: Tensor, device: torch.device) -> Tensor:
    if device.type in PINNED and tensor.device.type == "cpu":
        return tensor.pin_memory().to(device, non_blocking=True)
    return tensor.to(device)


class HostTransfer:
    """Brings small tensors to the CPU, many in one copy: every copy by itself waits for the device.

    What is on the CPU already is used at once.
    """

    def __init__(self) -> None:
        self._waiting: list[tuple[Tensor, Use]] = []
        self._size = 0

    def bring(self, tensor: Tensor, use: Use) -> None:
        """Hand a tensor over.

        Args:
            tensor: on any device; it must not be changed afterwards.
            use: called with the tensor on the CPU, here or in `arrive`.
        """
        if tensor.device.type == "cpu":
            use(tensor)
            return
        self._waiting.append((tensor, use))
        self._size += tensor.numel() * tensor.element_size()
        if self._size > CARRIED:
            self.arrive()

    def arrive(self) -> None:
        """Bring all that waits, one copy for each device and type, and use it in the order it came."""
        waiting, self._waiting, self._size = self._waiting, [], 0
        groups: dict[Any, list[int]] = defaultdict(list)
        for index, (tensor, _) in enumerate(waiting):
            groups[tensor.device, tensor.dtype].append(index)
        arrived: dict[int, Tensor] = {}
        for group in groups.values():
            tensors = [waiting[index][0] for index in group]
            whole = torch.cat([tensor.reshape(-1) for tensor in tensors]).cpu()
            parts = torch.split(whole, [tensor.numel() for tensor in tensors])
            arrived |= {
                index: part.view(tensor.shape)
                for index, part, tensor in zip(group, parts, tensors, strict=True)
            }
        for index, (_, use) in enumerate(waiting):
            use(arrived[index])

    def forget(self) -> None:
        """Drop all that waits: the pass that it came from failed."""
        self._waiting, self._size = [], 0


# ---- Weights that are not in memory between calls: `accelerate` holds them on the CPU or on disk


def is_spread(model: nn.Module) -> bool:
    """Tell whether a model's weights are on several devices, or not in memory between calls."""
    places = set(map(str, getattr(model, "hf_device_map", {}).values()))
    return len(places) > 1 or "disk" in places


def in_memory(module: nn.Module) -> AbstractContextManager[Any]:
    """Have the weights of one layer in memory while the block lasts; tensors taken inside stay.

    Args:
        module: a layer; without weights elsewhere it is left as it is.

    Returns:
        The `with` block.
    """
    if not hasattr(module, "_hf_hook") or not any(x.is_meta for x in module.parameters(recurse=False)):
        return nullcontext()
    from accelerate.utils import align_module_device

    made: AbstractContextManager[Any] = align_module_device(module)
    return made


def weight_of(module: nn.Module, name: str = "weight") -> Tensor | None:
    """Get a layer's weights, wherever they are between calls.

    Args:
        module: the layer.
        name: which of them.

    Returns:
        The tensor, without a graph; None where there is none.
    """
    with in_memory(module):
        tensor = getattr(module, name, None)
        return tensor.detach() if isinstance(tensor, Tensor) else None


def named_weights(model: nn.Module) -> Iterator[tuple[str, Tensor]]:
    """List everything in a model's state with its name, one after the other in memory.

    Args:
        model: the model.

    Yields:
        Name and tensor, as `state_dict` has them.
    """
    for name, tensor in model.state_dict().items():
        if tensor.is_meta:
            path, _, own = name.rpartition(".")
            found = weight_of(model.get_submodule(path), own)
            yield name, tensor if found is None else found
        else:
            yield name, tensor
