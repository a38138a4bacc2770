"""What heads write on a sample of tokens, small enough to compare all of them."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from functools import partial

import torch
from torch import Tensor

from headlens.corpus.batches import Batch
from headlens.corpus.inputs import Item
from headlens.model.devices import Carrier, moved
from headlens.model.finite import not_numbers
from headlens.model.heads import Head, Site
from headlens.model.lens import Lens
from headlens.model.weights import output_matrix

MOST_TOKENS = 2000
BYTES = 10**9  # of all heads' outputs on the sample
NOISE = 4  # roundings: an output that varies no more than this says the same everywhere


class Sample:
    """Outputs before W_O on tokens spread evenly over a corpus, however it is batched.

    Args:
        items: the inputs, in corpus order.
        heads: the numbers of the heads at each site.
    """

    def __init__(self, items: Sequence[Item], heads: Mapping[Site, Sequence[int]]) -> None:
        self.heads = heads
        total = sum(len(item.encoded) for item in items)
        width = sum(len(mine) * site.head_width for site, mine in heads.items())
        self.n_tokens = max(1, min(total, MOST_TOKENS, BYTES // (4 * width)))
        self._wanted: dict[int, list[tuple[int, int]]] = defaultdict(list)  # id of input -> slot, position
        picks = iter([(slot, (2 * slot + 1) * total // (2 * self.n_tokens)) for slot in range(self.n_tokens)])
        pick, before = next(picks, None), 0
        for item in items:
            while pick is not None and pick[1] < before + len(item.encoded):
                self._wanted[id(item)].append((pick[0], pick[1] - before))
                pick = next(picks, None)
            before += len(item.encoded)
        self.outputs: dict[Site, Tensor] = {
            site: torch.zeros(len(mine), self.n_tokens, site.head_width) for site, mine in heads.items()
        }
        """Of each site [head, token, width]."""
        self._carrier = Carrier()
        self._here = torch.empty(0, 3, dtype=torch.long)  # [token, (input, position, slot)] of the batch

    def begin(self, batch: Batch) -> None:
        """Make ready for a batch: find its tokens of the sample."""
        length, here = batch.real.shape[1], []
        for row, item in enumerate(batch.items):
            padding = length - len(item.encoded) if batch.pad_left else 0
            here += [(row, position + padding, slot) for slot, position in self._wanted.get(id(item), ())]
        self._here = torch.tensor(here, dtype=torch.long).reshape(-1, 3)

    def note(self, site: Site, output: Tensor) -> Tensor:
        """Take a site's output before W_O [input, query, head, width]; an edit that changes nothing."""
        if site in self.heads and len(self._here):
            rows, positions = moved(self._here, output.device).unbind(1)[:2]
            taken = output.detach()[rows, positions]  # [token, head, width]
            self._carrier.bring(taken, partial(self._keep, site, self._here[:, 2]))
        return output

    def end(self) -> None:
        """Bring what a device still holds of the batch."""
        self._carrier.arrive()

    def _keep(self, site: Site, slots: Tensor, taken: Tensor) -> None:
        mine = taken[:, list(self.heads[site])].float().transpose(0, 1)  # [head, token, width]
        broken = ~torch.isfinite(mine).flatten(1).all(1)
        if bool(broken.any()):
            raise not_numbers(_head(site, self.heads[site], int(broken.int().argmax())), "outputs")
        self.outputs[site][:, slots] = mine


def written(lens: Lens, sample: Sample) -> tuple[list[Tensor], list[Site]]:
    """Turn outputs before W_O into what is written after it, up to a rotation.

    Head i writes ``c_i = z_i W_i`` with its own rows W_i of W_O, as wide as the model. With the QR
    decomposition ``W_i^T = Q R`` it is ``z_i R^T`` times columns that are orthonormal, so z_i R^T, which is
    no wider than the head, has the same products between tokens.

    Args:
        lens: the model.
        sample: all its tokens taken; its outputs are given up.

    Returns:
        Of each site float32 [head, token, width], centred over tokens, NaN where a head writes nothing that
        varies; and the sites whose W_O is no plain layer, NaN too.

    Raises:
        NotNumbersError: a head's rows of W_O are no numbers.
    """
    parts, unknown = [], []
    noise = NOISE * torch.finfo(lens.model.dtype).eps
    paths = {part.site: part.projections.output for part in lens.anatomy.parts}
    for site in list(sample.outputs):
        outputs = sample.outputs.pop(site)
        matrix = output_matrix(lens.model.get_submodule(paths[site])) if paths[site] else None
        if matrix is None:
            unknown.append(site)
            parts.append(outputs.fill_(torch.nan))
            continue
        slices = matrix.cpu().double().view(site.n_heads, site.head_width, -1)  # [head, width, model width]
        mine = [slices[head] for head in sample.heads[site]]
        for number, w in enumerate(mine):
            if not bool(torch.isfinite(w).all()):
                raise not_numbers(_head(site, sample.heads[site], number), "W_O")
        made = [_rotated(z.double(), w, noise) for z, w in zip(outputs, mine, strict=True)]
        parts.append(torch.stack(made))
    return parts, unknown


def _head(site: Site, numbers: Sequence[int], number: int) -> Head:
    return Head(site.stack, site.layer, numbers[number])


def _rotated(z: Tensor, w: Tensor, noise: float) -> Tensor:
    """One head's z [token, width] times R^T of W^T = Q R, centred; NaN where it does not vary."""
    r = torch.linalg.qr(w.T, mode="r").R  # [min(width, model width), width]
    y = z @ r.T
    centred = y - y.mean(0)
    silent = centred.norm() <= noise * y.norm()
    made: Tensor = centred.fill_(torch.nan) if silent else centred
    return made.float()


def by_head(sites: Sequence[Site], heads: Sequence[Head]) -> dict[Site, list[int]]:
    """Group heads by their sites, both in order; sites without any are left out."""
    found = {
        site: [head.head for head in heads if (head.stack, head.layer) == (site.stack, site.layer)]
        for site in sites
    }
    return {site: mine for site, mine in found.items() if mine}
