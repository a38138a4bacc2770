"""Notes the largest tensor that anything makes."""

from __future__ import annotations

from typing import Any

import torch
from torch.utils._python_dispatch import TorchDispatchMode


class Largest(TorchDispatchMode):
    """A `with` block; afterwards `bytes` is the size of the largest storage, `what` the operation."""

    def __init__(self) -> None:
        super().__init__()
        self.bytes, self.what = 0, ""

    def __torch_dispatch__(self, function: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        made = function(*args, **(kwargs or {}))
        for tensor in made if isinstance(made, tuple | list) else [made]:
            if isinstance(tensor, torch.Tensor) and tensor.untyped_storage().nbytes() > self.bytes:
                self.bytes, self.what = tensor.untyped_storage().nbytes(), f"{function} {tuple(tensor.shape)}"
        return made
