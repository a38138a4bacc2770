"""What stands in the place of a head that is taken out: one edit of the heads' outputs for each mode."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence

import torch
from torch import Tensor

from headlens.ablation.reference import Reference
from headlens.attention import Edit, Seam
from headlens.devices import lasting
from headlens.errors import InputError, ModelError
from headlens.heads import Head, Site

Places = Mapping[tuple[str, int], list[int]]  # (stack, layer) -> numbers of its heads that are out
Replace = Callable[[Site, list[int], Tensor], Tensor]  # -> what heads put out instead


def zero(seam: Seam, reference: Reference | None) -> Replace:
    """Put 0: equal to zeroing the heads' columns of W_O.

    It misleads where a head's mean output matters as a constant: the layers above then see an input they
    never met in training.

    Args:
        seam: the model's.
        reference: not looked at.

    Returns:
        What makes the outputs, [head, width].
    """
    return lambda site, heads, output: output.new_zeros(len(heads), site.head_width)


def mean(seam: Seam, reference: Reference | None) -> Replace:
    """Put each head's mean output over the reference's tokens: what varies is lost, what is constant stays.

    Args:
        seam: the model's.
        reference: what the means are taken over.

    Returns:
        What makes the outputs, [head, width].
    """
    means = _needed(reference, "mean").means
    known: dict[tuple[Site, torch.device, torch.dtype], Tensor] = {}

    def replace(site: Site, heads: list[int], output: Tensor) -> Tensor:
        name = (site, output.device, output.dtype)
        if name not in known:
            known[name] = lasting(lambda: means[site][heads].to(output.device, output.dtype))
        return known[name]

    return replace


def resample(seam: Seam, reference: Reference | None) -> Replace:
    """Put what the head puts out on another input of the reference, at the same position.

    Which input stands in for which is drawn once from the seed; where it is shorter, its positions are
    repeated from the first. The layers above see an input that they know, from the wrong text.

    Args:
        seam: the model's.
        reference: where the other inputs are taken from.

    Returns:
        What makes the outputs, [row, query, head, width].
    """
    pool = _needed(reference, "resample")

    def replace(site: Site, heads: list[int], output: Tensor) -> Tensor:
        given = seam.given
        if given is None or given.in_steps:
            raise ModelError(
                "The mode resample needs whole inputs, and this model is given its tokens one by one.",
                "Choose the mode zero, mean or uniform.",
            )
        real = given.real(site.stack, output)
        places = (real.long().cumsum(dim=1) - 1).clamp(min=0)  # [row, query], from the first real token
        rows = []
        for row, name in enumerate(given.row_names(site.stack, output)):
            other = pool.other(site, name)[:, heads].to(output)  # [token, head, width]
            rows.append(other[places[row] % len(other)])
        return torch.stack(rows)

    return replace


def uniform(seam: Seam, reference: Reference | None) -> Replace:
    """Make the heads' rows uniform over the keys that each query may see: where they look is lost.

    What they carry from a key stays. It misleads for a head that is nearly uniform anyway: nothing changes.

    Args:
        seam: the model's.
        reference: not looked at.

    Returns:
        What makes the outputs, [row, query, head, width].
    """

    def replace(site: Site, heads: list[int], output: Tensor) -> Tensor:
        call = seam.call
        if call is None:
            raise ModelError(
                "The mode uniform needs the values that heads read, and this model's family does not show "
                "them.",
                "Choose the mode zero, mean or resample.",
            )
        return call.uniform(heads)

    return replace


MODES: Mapping[str, Callable[[Seam, Reference | None], Replace]] = {
    "zero": zero,
    "mean": mean,
    "resample": resample,
    "uniform": uniform,
}
"""What makes the outputs that stand in a removed head's place."""

NEED_REFERENCE = ("mean", "resample")


def edit_for(mode: str, heads: Sequence[Head], seam: Seam, reference: Reference | None = None) -> Edit:
    """Make the edit that takes heads out in one mode.

    Args:
        mode: a name in `MODES`.
        heads: the heads to take out.
        seam: the model's.
        reference: what mean and resample take outputs from.

    Returns:
        The edit, for `Seam.edit`.

    Raises:
        InputError: there is no such mode, or it lacks its reference.
    """
    check_mode(mode)
    replace = MODES[mode](seam, reference)
    places: dict[tuple[str, int], list[int]] = defaultdict(list)
    for head in heads:
        places[head.stack, head.layer].append(head.head)

    indices: dict[tuple[str, int, torch.device], Tensor] = {}  # made once: each waits for its device

    def edit(site: Site, output: Tensor) -> Tensor:
        mine = places.get((site.stack, site.layer))
        if mine is None:
            return output
        new = replace(site, mine, output).expand(*output.shape[:2], -1, -1)  # [row, query, head, width]
        name = (site.stack, site.layer, output.device)
        if name not in indices:
            indices[name] = lasting(lambda: torch.tensor(mine, device=output.device))
        return output.index_copy(2, indices[name], new)

    return edit


def check_mode(mode: str) -> None:
    """Refuse a mode that does not exist.

    Args:
        mode: what the user asks for.

    Raises:
        InputError: it is not in `MODES`.
    """
    if mode not in MODES:
        raise InputError(f"There is no ablation mode {mode!r}.", f"Choose one of: {', '.join(MODES)}.")


def _needed(reference: Reference | None, mode: str) -> Reference:
    if reference is None:
        raise InputError(
            f"The mode {mode} needs texts that the heads' outputs are taken from.",
            f"Write lens.ablate(heads, mode={mode!r}, reference=[text, ...]).",
        )
    return reference
