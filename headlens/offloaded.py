"""Weights that are not in memory between calls: `accelerate` holds them on the CPU or on disk."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import AbstractContextManager, nullcontext
from typing import Any

from torch import Tensor, nn


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
