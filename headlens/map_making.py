"""From a text to the attention of all heads on it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from headlens.corpus.batches import Reading, read
from headlens.map_capture import capture
from headlens.maps import AttentionMaps, Heads
from headlens.model.heads import Head
from headlens.model.lens import Lens
from headlens.util.formatting import mended


def attention_maps(
    lens: Lens,
    text: str,
    pair: str | None = None,
    target: str | None = None,
    *,
    heads: Heads | None = None,
    max_length: int | None = None,
) -> AttentionMaps:
    """Compute the attention of one input.

    What is no character (half of a surrogate pair) becomes U+FFFD, with a warning.

    Args:
        lens: the model and its tokenizer.
        text: what the model reads.
        pair: a second text, for models that read two.
        target: what an encoder-decoder model writes (teacher forcing).
        heads: keep only these; all by default.
        max_length: refuse inputs of more tokens; by default what the model takes.

    Returns:
        The maps.

    Raises:
        InputError: the text is empty or too long, a target is missing or too much, there is no tokenizer,
            or the maps would not fit into memory.
        SelectorError: a head does not exist.
    """
    chosen = lens.anatomy.heads if heads is None else lens.anatomy.select(heads)
    text, (pair, target) = mended(text, pair, target)
    reading = read(lens, text, pair, target, max_length)
    read_as = text + (f" | {pair}" if pair else "") + (f" \u2192 {target}" if target else "")
    return replace(maps_of(lens, reading, chosen), text=read_as)


def maps_of(lens: Lens, reading: Reading, heads: Sequence[Head]) -> AttentionMaps:
    """Compute the attention of one input that is read already.

    Args:
        lens: the model.
        reading: the input.
        heads: which heads.

    Returns:
        The maps.

    Raises:
        InputError: the maps would not fit into memory.
    """
    found = capture(lens, reading, heads)
    axes = {site.stack: reading.axes(site.stack) for site in found.patterns}
    return AttentionMaps(
        title_of(lens), lens.anatomy.sites, found.patterns, found.numbers, axes, norms=found.norms
    )


def title_of(lens: Lens) -> str:
    """Name a model in titles: what it was loaded from, else its class."""
    if lens.source is None:
        return type(lens.model).__name__
    return Path(lens.source.name).name if Path(lens.source.name).exists() else lens.source.name
