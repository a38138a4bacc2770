"""How much memory there is, and a refusal of what cannot fit into it."""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import TYPE_CHECKING

import torch

from headlens.errors import InputError
from headlens.heads import Site

if TYPE_CHECKING:
    from headlens.attention import Block


def check_patterns(sites: Sequence[Site], block: Block) -> None:
    """Refuse to keep all patterns of an input where they take more memory than there is.

    Args:
        sites: the sites whose patterns are kept, of which those that are as long as this one are counted.
        block: the first block that was seen of one of them.

    Raises:
        InputError: they do not fit.
    """
    own = block.pattern
    most = memory_of(own.device)
    n_heads = sum(site.n_heads for site in sites)
    size = len(own) * n_heads * block.n_queries * block.n_keys * own.element_size()
    if most is not None and size > most:
        raise InputError(
            f"The patterns of {n_heads} heads for {block.n_queries:,} tokens take {size / 2**30:.1f} GiB, "
            f"more than the {most / 2**30:.1f} GiB of this machine.",
            "Look at them block by block with lens.observe, which keeps nothing.",
        )


def memory_of(device: torch.device) -> int | None:
    """Find how much memory a device has.

    Args:
        device: the device.

    Returns:
        Bytes, in use or not; None where it cannot be told.
    """
    if device.type == "cuda":
        return int(torch.cuda.get_device_properties(device).total_memory)
    try:
        return os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE") if device.type == "cpu" else None
    except (AttributeError, ValueError, OSError):  # Windows has no sysconf
        return None
