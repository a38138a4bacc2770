"""Running a corpus through a model to compare all pairs of its heads."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from tqdm import tqdm

from headlens.corpus.batches import Batch, make_batches
from headlens.corpus.inputs import Item, start_id
from headlens.model.devices import Carrier, exact
from headlens.model.finite import check_block
from headlens.model.heads import Head, Site
from headlens.model.lens import Lens, takes_positions
from headlens.model.seam import Block
from headlens.redundancy.likeness.cka import linear_cka
from headlens.redundancy.likeness.divergence import add_pairs, mean_divergence
from headlens.redundancy.likeness.outputs import Sample, written
from headlens.redundancy.likeness.patterns import Patterns, spans
from headlens.scoring.passes import Reading, pad_id

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
    reading: Reading,
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

    sites, carrier = list(sample.heads), Carrier()
    with torch.inference_mode(), lens.observe(see, sites, block_size), lens.edit(note):
        lens.run(inputs)
        carrier.arrive()
        sample.end()


def _place(lens: Lens) -> torch.device:
    """Where patterns are compared: beside the model, but MPS has no float64."""
    return lens.device if exact(lens.device) == torch.float64 else torch.device("cpu")
