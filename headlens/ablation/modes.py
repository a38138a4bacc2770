"""What stands in the place of a head that is taken out: one edit of the heads' outputs for each mode."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence

import torch
from torch import Tensor

from headlens.attention import Edit
from headlens.errors import InputError
from headlens.heads import Head, Site


def zero(heads: Sequence[Head]) -> Edit:
    """Set the heads' outputs to 0: equal to zeroing their columns of W_O.

    It misleads where a head's mean output matters as a constant: the layers above then see an input they
    never met in training.

    Args:
        heads: the heads to take out.

    Returns:
        The edit.
    """
    numbers: dict[tuple[str, int], list[int]] = defaultdict(list)
    for head in heads:
        numbers[head.stack, head.layer].append(head.head)

    def edit(site: Site, output: Tensor) -> Tensor:
        mine = numbers.get((site.stack, site.layer))
        if mine is None:
            return output
        out = torch.zeros(site.n_heads, 1, dtype=torch.bool, device=output.device)  # [head, 1]
        out[mine] = True
        return output.masked_fill(out, 0)

    return edit


MODES: Mapping[str, Callable[[Sequence[Head]], Edit]] = {"zero": zero}


def edit_for(mode: str, heads: Sequence[Head]) -> Edit:
    """Make the edit that takes heads out in one mode.

    Args:
        mode: a name in `MODES`.
        heads: the heads to take out.

    Returns:
        The edit, for `Seam.edit`.

    Raises:
        InputError: there is no such mode.
    """
    if mode not in MODES:
        raise InputError(f"There is no ablation mode {mode!r}.", f"Choose one of: {', '.join(MODES)}.")
    return MODES[mode](heads)
