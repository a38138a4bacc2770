"""What takes the place of a head's output: nothing, its mean, another example's, or even attention."""

from __future__ import annotations

import hashlib
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from headlens.errors import InputError, ModelError
from headlens.model.devices import exact, lasting
from headlens.model.heads import Head, Site
from headlens.model.seam import Edit, Given, Seam

if TYPE_CHECKING:
    pass


Places = Mapping[tuple[str, int], list[int]]  # (stack, layer) -> numbers of its heads that are out
Replace = Callable[[Site, list[int], Tensor], Tensor]  # -> what heads put out instead


def _zero(seam: Seam, reference: Reference | None) -> Replace:
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


def _mean(seam: Seam, reference: Reference | None) -> Replace:
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


def _resample(seam: Seam, reference: Reference | None) -> Replace:
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


def _uniform(seam: Seam, reference: Reference | None) -> Replace:
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
    "zero": _zero,
    "mean": _mean,
    "resample": _resample,
    "uniform": _uniform,
}
"""What makes the outputs that stand in a removed head's place."""

NEED_REFERENCE = ("mean", "resample")


def edit_for(mode: str, heads: Sequence[Head], seam: Seam, reference: Reference | None = None) -> Edit:
    """Make the edit that takes heads out in one mode."""
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


# ---- What heads put out on ordinary inputs: their means, and their outputs on a few inputs


POOL = 64  # inputs of each stack whose outputs are kept


@dataclass(frozen=True, eq=False)
class Reference:
    """What heads put out without ablation.

    Args:
        means: each head's mean output before W_O over all real tokens, float64 [head, width].
        tokens: how many tokens each site's means rest on.
        pool: by stack and name of an input, what each of its sites put out there, [token, head, width].
        seed: decides which input stands in for which.
    """

    means: Mapping[Site, Tensor]
    tokens: Mapping[Site, int]
    pool: Mapping[str, Mapping[bytes, Mapping[Site, Tensor]]]
    seed: int = 0

    def other(self, site: Site, name: bytes) -> Tensor:
        """Find what stands in for a site's outputs on one input.

        Args:
            site: where.
            name: of the input; see `Given.row_names`.

        Returns:
            The outputs on another input, [token, head, width]; the same one every time.

        Raises:
            InputError: all inputs are the same.
        """
        pool = self.pool[site.stack]
        names = sorted(pool)
        place = int.from_bytes(_ranked(name, self.seed + 1)[:8], "big") % len(names)
        chosen = next((n for n in (*names[place:], *names[:place]) if n != name), None)
        if chosen is None:
            raise InputError(
                "The mode resample needs at least two different inputs.", "Give more, or choose another mode."
            )
        return pool[chosen][site]


def gather(seam: Seam, run: Callable[[], object], sites: Iterable[Site], seed: int = 0) -> Reference:
    """Run a model over ordinary inputs and note what heads put out.

    Padding is never among the tokens, and neither means nor pool depend on how inputs are batched: the pool
    holds the inputs whose names come first in an order that the seed decides.

    Args:
        seam: the model's.
        run: runs the model over the inputs, each as often as it counts.
        sites: where to look.
        seed: decides what is in the pool, and what `Reference.other` chooses.

    Returns:
        The reference.
    """
    wanted = frozenset(sites)
    sums: dict[Site, Tensor] = {}
    tokens: dict[Site, int] = defaultdict(int)
    pool: dict[str, dict[bytes, dict[Site, Tensor]]] = defaultdict(dict)

    def note(site: Site, output: Tensor) -> Tensor:
        given = seam.given
        if site not in wanted or given is None:
            return output
        real = given.real(site.stack, output)
        total = _summed(output.detach()[real])
        sums[site] = sums[site] + total if site in sums else total
        tokens[site] += int(real.sum())
        _keep(pool[site.stack], site, output.detach(), given, seed)
        return output

    with torch.no_grad(), seam.edit(note):
        run()
    means = {site: total / tokens[site] for site, total in sums.items()}
    return Reference(means, dict(tokens), {stack: dict(rows) for stack, rows in pool.items()}, seed)


def _summed(outputs: Tensor) -> Tensor:
    """Add up over tokens, [token, head, width] -> float64 [head, width] on the CPU."""
    return outputs.to(exact(outputs.device)).sum(dim=0).cpu().double()


def _keep(pool: dict[bytes, dict[Site, Tensor]], site: Site, output: Tensor, given: Given, seed: int) -> None:
    """Keep the outputs on those inputs of a batch whose names come first."""
    real = given.real(site.stack, output)
    for row, name in enumerate(given.row_names(site.stack, output)):
        if name not in pool and len(pool) >= POOL:
            last = max(pool, key=lambda kept: _ranked(kept, seed))
            if _ranked(name, seed) > _ranked(last, seed):
                continue
            del pool[last]
        pool.setdefault(name, {}).setdefault(site, output[row][real[row]].clone())


@lru_cache(maxsize=2**14)
def _ranked(name: bytes, seed: int) -> bytes:
    return hashlib.blake2b(name, salt=seed.to_bytes(16, "little")).digest()
