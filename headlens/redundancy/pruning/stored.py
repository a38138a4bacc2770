"""In which type a checkpoint stores its weights, read from the files: configs are often wrong about it."""

from __future__ import annotations

from functools import reduce

import torch
from safetensors import safe_open

from headlens.errors import InputError
from headlens.model.lens import Lens

TYPES = {"F64": torch.float64, "F32": torch.float32, "F16": torch.float16, "BF16": torch.bfloat16}


def stored_dtype(lens: Lens) -> torch.dtype:
    """Find the type that holds all weights of a checkpoint as they are.

    Args:
        lens: the model.

    Returns:
        The widest type in its files; of a model without safetensors files (in memory, .gguf) its own.
    """
    found: set[torch.dtype] = set()
    for path in lens.source.files if lens.source is not None else ():
        if path.suffix == ".safetensors":
            with safe_open(str(path), "pt") as file:
                kinds = {file.get_slice(name).get_dtype() for name in file.keys()}  # noqa: SIM118  # no dict
                found |= {TYPES[kind] for kind in kinds if kind in TYPES}
    return reduce(torch.promote_types, found) if found else lens.model.dtype


def check_nothing_is_rounded(lens: Lens) -> None:
    """Refuse a model that was loaded in a type which cannot hold what its checkpoint stores.

    Args:
        lens: the model.

    Raises:
        InputError: its weights were rounded.
    """
    stored, loaded = stored_dtype(lens), lens.model.dtype
    if torch.promote_types(stored, loaded) != loaded:
        names = [str(dtype).removeprefix("torch.") for dtype in (stored, loaded)]
        raise InputError(
            f"The checkpoint holds {names[0]} and was loaded as {names[1]}, which rounds its weights.",
            "Leave --dtype out.",
        )
