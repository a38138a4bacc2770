"""What heads put out on ordinary inputs: their means, and their outputs on a few inputs."""

from __future__ import annotations

import hashlib
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from headlens.attention import Seam
from headlens.devices import exact
from headlens.errors import InputError
from headlens.given import Given
from headlens.heads import Head, Site
from headlens.limits import check_ids
from headlens.util.formatting import mended

if TYPE_CHECKING:
    from headlens.lens import Lens

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


def of_texts(lens: Lens, texts: Sequence[str], heads: Sequence[Head], seed: int = 0) -> Reference:
    """Make a reference of some texts.

    Args:
        lens: the model, without ablation.
        texts: what the model reads, one by one.
        heads: the heads whose outputs are wanted.
        seed: see `gather`.

    Returns:
        The reference.

    Raises:
        InputError: there is no text, or it is one text instead of several.
    """
    if isinstance(texts, str) or not texts or lens.tokenizer is None:
        raise InputError(
            "Expected several texts as reference, and a lens with a tokenizer.",
            "Write reference=[text, text, ...].",
        )
    texts = [mended(text)[0] for text in texts]
    places = {(head.stack, head.layer) for head in heads}
    sites = [site for site in lens.anatomy.sites if (site.stack, site.layer) in places]

    def run() -> None:
        for text in texts:
            made = lens.tokenizer(text, return_tensors="pt")
            check_ids(lens, made["input_ids"].tolist())
            lens.run(made)

    return gather(lens.seam, run, sites, seed)


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
