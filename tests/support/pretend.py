"""A device that is not there: its tensors lie on the CPU, say that they are elsewhere, and mix with none.

PyTorch's own rules are kept: all tensors of an operation are on one device, but for single numbers and for
indices, which may be on the CPU; a generator of the CPU draws nothing elsewhere. What makes the CPU wait for
the device is counted. Importing this makes the device known to PyTorch for good, so tests do it in a process
of their own.
"""

from __future__ import annotations

import re
from collections import Counter
from contextlib import contextmanager

import torch
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_flatten, tree_map
from torch.utils.backend_registration import _setup_privateuseone_for_python_backend

_setup_privateuseone_for_python_backend("far")

MOVES = ("aten._to_copy", "aten.copy_", "aten.to.")
INDEXES = ("aten.index.", "aten.index_put", "aten._index_put")
WAITS = ("_local_scalar_dense", "item", "is_nonzero", "nonzero", "equal", "masked_select")


class Far(torch.Tensor):
    """A tensor that says it is on a far device; `near` is what it really is."""

    __torch_function__ = torch._C._disabled_torch_function_impl

    @staticmethod
    def __new__(cls, near, device):
        made = torch.Tensor._make_wrapper_subclass(
            cls,
            near.shape,
            strides=near.stride(),
            storage_offset=near.storage_offset(),
            dtype=near.dtype,
            device=device,
        )
        made.near = near
        return made

    def tolist(self):
        return self.cpu().tolist()

    @classmethod
    def __torch_dispatch__(cls, func, types, args=(), kwargs=None):
        raise RuntimeError(f"{func} of a far tensor where nobody watches")


class Rules(TorchDispatchMode):
    """Runs operations of far tensors on the CPU, and refuses what a real device would refuse."""

    def __init__(self, float64=True):
        super().__init__()
        self.float64 = float64
        self.waits = Counter()

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        name, everything = str(func), (args, kwargs or {})
        flat, _ = tree_flatten(everything)
        far = [x for x in flat if isinstance(x, Far)]
        target = next((x for x in flat if isinstance(x, torch.device)), None)
        if not name.startswith(MOVES):
            self._check(name, args, flat, target)
        place = far[0].device if far else torch.device("cpu")
        if name.startswith("aten.copy_"):
            place = args[0].device
        elif target is not None:
            place = target
        self._count(name, args, far, place)
        arguments, named = tree_map(_near, everything)
        with torch.inference_mode(False), torch.no_grad():
            made = func(*arguments, **named)
            known = {id(_near(x)): x for x in flat if isinstance(x, torch.Tensor)}
            return tree_map(lambda x: self._placed(x, place, known), made)

    def _check(self, name, args, flat, target):
        far = [x for x in flat if isinstance(x, Far)]
        near = [x for x in flat if isinstance(x, torch.Tensor) and not isinstance(x, Far) and x.ndim]
        if far and near:
            values = [x for x in args[2:] if isinstance(x, torch.Tensor)]
            indices_alone = name.startswith(INDEXES) and isinstance(args[0], Far)
            if not indices_alone or any(not isinstance(x, Far) and x.ndim for x in values):
                raise RuntimeError(f"{name} mixes devices")
            self.waits["indices"] += 1
        generator = any(isinstance(x, torch.Generator) for x in flat)
        if generator and target is not None and target.type == "far":
            raise RuntimeError(f"{name} draws on a far device by a generator of the CPU")

    def _count(self, name, args, far, place):
        if far and place.type == "cpu" and name.startswith(MOVES):
            self.waits["copies"] += 1
        if far and name.split(".")[1] in WAITS:
            self.waits[name.split(".")[1]] += 1
        if far and name.startswith("aten.index.") and any(x.dtype == torch.bool for x in _tensors(args[1])):
            self.waits["nonzero"] += 1

    def _placed(self, value, place, known):
        if not isinstance(value, torch.Tensor):
            return value
        if id(value) in known and known[id(value)].device == place:
            return known[id(value)]  # changed in place
        if place.type == "cpu":
            return value
        if value.dtype == torch.float64 and not self.float64:
            raise TypeError("the device has no float64")
        return Far(value, place)


def _tensors(value):
    return [x for x in tree_flatten(value)[0] if isinstance(x, torch.Tensor)]


def _near(value):
    if isinstance(value, torch.device):
        return torch.device("cpu")
    return value.near if isinstance(value, Far) else value


@contextmanager
def far_rules(float64=True):
    """Keep the rules while the block lasts."""
    torch._C._set_only_lift_cpu_tensors(True)
    try:
        with Rules(float64) as rules:
            yield rules
    finally:
        torch._C._set_only_lift_cpu_tensors(False)


def placed(model, place=lambda path: "far:0"):
    """Put a model's weights on far devices, by the paths of its modules."""
    moved = {}
    for path, module in model.named_modules():
        for name, weight in module._parameters.items():
            if weight is not None:
                if id(weight) not in moved:
                    moved[id(weight)] = torch.nn.Parameter(_put(weight.detach(), place(path)))
                module._parameters[name] = moved[id(weight)]
        for name, held in module._buffers.items():
            if held is not None:
                module._buffers[name] = _put(held, place(path))
    return model


def spread(model):
    """All layers but the first on the CPU, the rest far away, with the hooks that accelerate spreads by."""
    from accelerate.hooks import AlignDevicesHook, add_hook_to_module

    def place(path):
        layer = re.search(r"\.(\d+)(\.|$)", path)
        return "cpu" if layer and int(layer[1]) > 0 else "far:0"

    placed(model, place)
    add_hook_to_module(model, AlignDevicesHook(execution_device="far:0", io_same_device=True))
    for path, module in model.named_modules():
        own = next(module.parameters(recurse=False), None)
        if re.search(r"\.\d+$", path) or own is not None:
            device = place(path) if own is None else str(own.device)
            add_hook_to_module(module, AlignDevicesHook(execution_device=device))
    return model


def _put(tensor, device):
    return tensor.clone() if device == "cpu" else Far(tensor.clone(), device)
