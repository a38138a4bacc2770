"""Runs a model once and keeps the patterns of the heads that are wanted, no others."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import torch
from torch import Tensor

from headlens.corpus.batches import Reading
from headlens.errors import InputError
from headlens.model.finite import check_numbers, not_numbers
from headlens.model.heads import Head, Site
from headlens.model.lens import Lens
from headlens.model.seam import Block
from headlens.model.weights import handed_over

MAX_BYTES = 4 * 2**30  # more than this is refused before the model runs


@dataclass(frozen=True, slots=True)
class Captured:
    """What was kept of one input.

    Args:
        patterns: for each site with a wanted head the weights [head, query, key], float32 on the CPU.
        numbers: for each of them the numbers of the heads that the first axis stands for.
        norms: for each of them |f(x)| [head, key], see `headlens.model.weights`; empty where any site does not show
            its values or has no W_O.
    """

    patterns: dict[Site, Tensor]
    numbers: dict[Site, tuple[int, ...]]
    norms: dict[Site, Tensor] = field(default_factory=dict)


def capture(lens: Lens, reading: Reading, heads: Sequence[Head]) -> Captured:
    """Run one input and keep some heads' weights, whole.

    Args:
        lens: the model.
        reading: the input.
        heads: which heads.

    Returns:
        Their weights, and how long what each key hands over is.

    Raises:
        InputError: they would take more than `MAX_BYTES`.
        ModelError: some weight is not a number.
    """
    chosen = set(heads)
    wanted = {site: tuple(h.head for h in site.heads if h in chosen) for site in lens.anatomy.sites}
    wanted = {site: numbers for site, numbers in wanted.items() if numbers}
    _check_size(reading, wanted)
    outputs = {part.site: part.projections.output for part in lens.anatomy.parts}
    parts: dict[Site, list[Tensor]] = {site: [] for site in wanted}
    norms: dict[Site, Tensor] = {}

    def keep(site: Site, block: Block) -> None:
        check_numbers(site, block.pattern)
        numbers = list(wanted[site])
        weights = block.pattern[0, numbers].float().cpu()  # [head, start:stop, keys in sight]
        parts[site].append(torch.nn.functional.pad(weights, (0, block.n_keys - weights.shape[-1])))
        if block.stop == block.n_queries and block.values is not None and outputs[site]:
            output = lens.model.get_submodule(outputs[site])
            norms[site] = handed_over(output, block.values[0], site.n_heads)[numbers].cpu()
            bad = ~torch.isfinite(norms[site]).all(-1)
            if bool(bad.any()):
                raise not_numbers(Head(site.stack, site.layer, numbers[int(bad.int().argmax())]), "values")

    with torch.no_grad(), lens.observe(keep, list(wanted)):
        lens.run(reading.inputs)
    patterns = {site: torch.cat(blocks, dim=1) for site, blocks in parts.items() if blocks}
    return Captured(
        patterns,
        {site: wanted[site] for site in patterns},
        norms if norms.keys() == patterns.keys() else {},
    )


def _check_size(reading: Reading, wanted: Mapping[Site, Sequence[int]]) -> None:
    n_heads, size = 0, 0
    for site, numbers in wanted.items():
        queries, keys = reading.axes(site.stack)
        n_heads += len(numbers)
        size += 4 * len(numbers) * len(queries) * len(keys)
    if size > MAX_BYTES:
        raise InputError(
            f"The weights of {n_heads} heads for {len(reading.source)} tokens take {size / 2**30:.1f} GiB, "
            f"more than the {MAX_BYTES / 2**30:g} GiB that are kept at once.",
            "Choose fewer heads with --heads, or give a shorter text.",
        )
