"""Measures likeness of heads: Jensen-Shannon divergence of patterns and CKA of outputs."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.nn.functional import pad
from tqdm import tqdm

from headlens.corpus.batches import Batch, make_batches
from headlens.corpus.inputs import Item, start_id
from headlens.model.devices import HostTransfer, exact, moved
from headlens.model.finite import check_block, not_numbers
from headlens.model.heads import Head, Site
from headlens.model.lens import Lens, takes_positions
from headlens.model.seam import Block
from headlens.model.weights import output_matrix
from headlens.scoring.passes import RunOptions, pad_id

Array = NDArray[np.float64]


@dataclass(slots=True)
class Compared:
    """How alike the heads of one stack are.

    Args:
        heads: in model order.
        js: mean Jensen-Shannon divergence of their rows, nats, 0..ln 2, [head, head].
        cka: linear CKA of what they write, 0..1, [head, head]; NaN where there is nothing to compare.
        n_rows: over how many queries `js` is the mean.
        n_tokens: over how many tokens `cka` is.
        unknown: sites whose W_O is no plain layer.
    """

    heads: tuple[Head, ...]
    js: Array
    cka: Array
    n_rows: int
    n_tokens: int
    unknown: Sequence[Site] = field(default_factory=list)


def compare_heads(
    lens: Lens,
    heads: Mapping[Site, Sequence[int]],
    items: Sequence[Item],
    smoothing: float,
    reading: RunOptions,
) -> Compared:
    """Compare what heads of one stack look at, and what they write.

    Memory holds the patterns of one part of one batch, and what the heads write on a sample of tokens.

    Args:
        lens: the model.
        heads: the numbers of the heads at each site of one stack, sites in order.
        items: what the model reads.
        smoothing: see `Patterns`.
        reading: how it reads; changes no number.

    Returns:
        The comparison.
    """
    sample = Sample(items, heads)
    n_heads, place = sum(map(len, heads.values())), _place(lens)
    sums = torch.zeros(n_heads, n_heads, dtype=torch.float64, device=place)
    n_rows = 0
    batches = make_batches(items, pad_id(lens), reading.batch_size, reading.pad_left, takes_positions(lens))
    with tqdm(total=len(items), desc="Comparing heads", unit="sentence", disable=reading.quiet) as bar:
        for batch in batches:
            sample.begin(batch)
            for span in spans(batch, heads):
                seen = Patterns(heads, batch, span, smoothing, place)
                _show(lens, batch, seen, sample, reading.block_size)
                add_pairs(seen.weights, sums)
                n_rows += seen.n_rows
            bar.update(len(batch.items))
    js = mean_divergence(sums, max(n_rows, 1)).cpu().numpy()
    parts, unknown = written(lens, sample)
    names = tuple(Head(site.stack, site.layer, head) for site, mine in heads.items() for head in mine)
    return Compared(names, js, linear_cka(parts, reading.quiet).numpy(), n_rows, sample.n_tokens, unknown)


def _show(lens: Lens, batch: Batch, seen: Patterns, sample: Sample, block_size: int | None) -> None:
    inputs = dict(batch.inputs)
    if lens.model.config.is_encoder_decoder:  # the encoder is what is looked at
        inputs["decoder_input_ids"] = torch.full((len(batch.items), 1), start_id(lens.model))

    def see(site: Site, block: Block) -> None:
        check_block(site, block, carrier)
        seen.see(site, block)

    def note(site: Site, output: Tensor) -> Tensor:
        return sample.note(site, output)

    sites, carrier = list(sample.heads), HostTransfer()
    with torch.inference_mode(), lens.observe(see, sites, block_size), lens.edit(note):
        lens.run(inputs)
        carrier.arrive()
        sample.end()


def _place(lens: Lens) -> torch.device:
    """Where patterns are compared: beside the model, but MPS has no float64."""
    return lens.device if exact(lens.device) == torch.float64 else torch.device("cpu")


# ---- What all heads of one stack give to the keys of some queries of one batch: all that is held at once


KEPT = 256 * 2**20  # bytes of patterns that are held at once


class Patterns:
    """The patterns of some heads over a span of queries, padding left out.

    Args:
        heads: the numbers of the heads at each site, sites in order.
        batch: the inputs.
        span: first query and one past the last.
        smoothing: how much of each row is mixed with the uniform row over the keys that it may see, 0..1.
        device: where they are held.
    """

    def __init__(
        self,
        heads: Mapping[Site, Sequence[int]],
        batch: Batch,
        span: tuple[int, int],
        smoothing: float,
        device: torch.device,
    ) -> None:
        self._first: dict[Site, int] = {}
        n_heads = 0
        for site, mine in heads.items():
            self._first[site] = n_heads
            n_heads += len(mine)
        self._heads = heads
        self._smoothing = smoothing
        self._start, self._stop = span
        self._cells = cells_of(batch, heads)[self._start : self._stop].to(device)  # [query, input, key]
        self._before = [0, *self._cells.flatten(1).sum(1).cumsum(0).tolist()]  # cells before each query
        self._counted = torch.zeros(self._cells.shape[:2], dtype=torch.bool, device=device)
        self.weights = torch.zeros(n_heads, self._before[-1], dtype=torch.float64, device=device)

    @property
    def n_rows(self) -> int:
        """How many of the real queries may see two keys or more, at one of the sites at least."""
        return int(self._counted.sum())

    def see(self, site: Site, block: Block) -> None:
        """Take what a block holds of the span."""
        low, high = max(block.start, self._start), min(block.stop, self._stop)
        if low >= high:
            return
        inside = slice(low - block.start, high - block.start)
        mine, device = list(self._heads[site]), self.weights.device
        missing = block.n_keys - block.pattern.shape[-1]  # keys that no query of the block may see
        pattern = pad(block.pattern[:, mine, inside].to(device).double(), (0, missing))
        visible = block.visible[:, 0, inside].to(device).expand(len(pattern), -1, -1)
        visible = pad(visible, (0, missing))  # [input, query, key]
        pattern = _smoothed(pattern, visible, self._smoothing)
        cells = self._cells[low - self._start : high - self._start]
        packed = pattern.permute(1, 2, 0, 3)[:, cells]  # [head, cell]
        place = slice(self._before[low - self._start], self._before[high - self._start])
        first = self._first[site]
        self.weights[first : first + len(mine), place] = packed
        several = (visible.transpose(0, 1) & cells).sum(-1) > 1  # [query, input]
        self._counted[low - self._start : high - self._start] |= several


def _smoothed(pattern: Tensor, visible: Tensor, smoothing: float) -> Tensor:
    """Make rows [input, head, query, key] sum to 1 exactly, and mix them with the uniform row."""
    lowest = torch.finfo(pattern.dtype).smallest_normal  # a row of nothing stays one
    pattern = pattern / pattern.sum(-1, keepdim=True).clamp(min=lowest)
    if smoothing:
        uniform = visible / visible.sum(-1, keepdim=True).clamp(min=1).double()
        pattern = (1 - smoothing) * pattern + smoothing * uniform[:, None]
    return pattern


def cells_of(batch: Batch, sites: Mapping[Site, Sequence[int]]) -> Tensor:
    """Tell which weights of a batch can be other than 0: those of real queries on real keys.

    Args:
        batch: the inputs.
        sites: of one stack.

    Returns:
        Bool [query, input, key]; keys after the query are left out where all sites are causal.
    """
    real = batch.real.T  # [token, input]
    cells = real[:, :, None] & batch.real[None]
    if all(site.causal for site in sites):
        cells &= torch.ones(len(cells), len(cells), dtype=torch.bool).tril()[:, None]
    return cells


def spans(batch: Batch, heads: Mapping[Site, Sequence[int]]) -> Iterator[tuple[int, int]]:
    """Cut the queries of a batch so that the patterns of all heads over one part stay small.

    Args:
        batch: the inputs.
        heads: the numbers of the heads at each site.

    Yields:
        First query and one past the last of each part; mostly there is one part.
    """
    most = KEPT // (8 * sum(map(len, heads.values())))
    start, held = 0, 0
    sizes = cells_of(batch, heads).flatten(1).sum(1).tolist()  # cells of each query
    for query, size in enumerate(sizes):
        if held and held + size > most:
            yield start, query
            start, held = query, 0
        held += size
    yield start, len(sizes)


# ---- What heads write on a sample of tokens, small enough to compare all of them


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
        self._carrier = HostTransfer()
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


# ---- The Jensen-Shannon divergence between all pairs of heads, added up over rows of attention


LARGEST = math.log(2)  # nats: between rows that have no key in common
SAME = 1e-12  # nats: below this only the rounding of float64 tells rows apart
NOTHING = 1e-300  # in the place of a weight of 0, whose logarithm would be infinite; 0 ln 0 is 0
CELLS, AT_ONCE = 4096, 2**18  # of a tile, and of all pairs worked on together: they stay in a CPU's cache


def add_pairs(weights: Tensor, sums: Tensor) -> None:
    r"""Add the divergences of all pairs of heads on some rows.

    For rows P and Q it is ``H((P + Q) / 2) - (H(P) + H(Q)) / 2`` with the entropy H in nats: 0 for equal
    rows, ln 2 for rows without a key in common.

    Args:
        weights: what each head gives to the keys of the rows, float64 [head, cell]; rows stand one after the
            other, and each sums to 1.
        sums: what has been added up so far, float64 [head, head]; the part above the diagonal is added to.
    """
    n_heads, n_cells = weights.shape
    for start in range(0, n_cells, CELLS):
        tile = weights[:, start : start + CELLS] / 2 + NOTHING  # [head, cell]: two halves make a mixture
        _add_tile(tile, sums, max(1, min(n_heads, AT_ONCE // tile.shape[1])))


def _add_tile(tile: Tensor, sums: Tensor, size: int) -> None:
    n_heads = len(tile)
    own = _minus_entropy(2 * tile, torch.empty_like(tile))  # [head]
    room = tile.new_empty(2, size, tile.shape[1])
    for one in range(n_heads - 1):
        for first in range(one + 1, n_heads, size):
            others = tile[first : first + size]
            mixed = torch.add(others, tile[one], out=room[0, : len(others)])
            mixture = _minus_entropy(mixed, room[1, : len(others)])
            sums[one, first : first + size] += (own[one] + own[first : first + size]) / 2 - mixture


def _minus_entropy(weights: Tensor, room: Tensor) -> Tensor:
    """Sum of w ln w over the cells, [head]."""
    return torch.log(weights, out=room).mul_(weights).sum(-1)


def mean_divergence(sums: Tensor, n_rows: int) -> Tensor:
    """Turn sums over rows into means.

    Args:
        sums: from `add_pairs`.
        n_rows: how many rows were added up.

    Returns:
        Divergences in nats, 0..ln 2, symmetric, float64 [head, head]; what only rounding tells from 0 is 0.
    """
    mean = torch.triu(sums, diagonal=1) / n_rows
    mean = mean.clamp(0, LARGEST)
    mean[mean < SAME] = 0
    return mean + mean.T


# ---- Linear CKA between what heads write


COLUMNS = 2048  # of the matrices that are multiplied at once


def linear_cka(parts: Sequence[Tensor], quiet: bool = True) -> Tensor:
    """Compare all pairs of heads by linear CKA (Kornblith et al. 2019).

    For centred outputs Y_i and Y_j [token, width] it is ``|Y_i^T Y_j|^2 / (|Y_i^T Y_i| |Y_j^T Y_j|)`` with
    Frobenius norms: 1 for outputs that are equal up to a rotation and a scale, 0 for uncorrelated ones. It
    misleads where tokens are few against the width of a head: unrelated outputs of width d then score about
    d / (d + n) over n tokens, not 0. And it tells what is written, not what for: two heads may
    write the same and read by the rest of the model differently.

    Args:
        parts: outputs, centred over tokens, [head, token, width] each; heads of NaN stay NaN.
        quiet: show no progress bar.

    Returns:
        Symmetric, 0..1, float64 [head, head] over the heads of all parts; NaN for heads that write nothing.
    """
    pieces = [
        piece
        for part in parts
        for piece in torch.split(part, max(1, COLUMNS // part.shape[-1]))  # of some heads each
    ]
    ends = torch.tensor([len(piece) for piece in pieces]).cumsum(0).tolist()
    products = torch.zeros(ends[-1], ends[-1], dtype=torch.float64)  # |Y_i^T Y_j|^2
    bar = tqdm(pieces, desc="Comparing outputs", unit="part", disable=quiet)
    for number, (one, end) in enumerate(zip(bar, ends, strict=True)):
        left = _side_by_side(one)
        for other, last in zip(pieces[number:], ends[number:], strict=True):
            crossed = left.T @ _side_by_side(other)  # [head x width, other head x width]
            squares = crossed.view(len(one), -1, len(other), other.shape[-1]).square_().sum((1, 3))
            products[end - len(one) : end, last - len(other) : last] = squares
            products[last - len(other) : last, end - len(one) : end] = squares.T
    norms = products.diagonal().sqrt()
    return (products / (norms[:, None] * norms)).clamp(max=1)


def _side_by_side(piece: Tensor) -> Tensor:
    """[head, token, width] -> float64 [token, head x width]."""
    return piece.double().transpose(0, 1).flatten(1)
