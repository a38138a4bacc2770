"""What can be done to the attention of one input: words for tokens, no special tokens, norms for weights."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from headlens.corpus.batches import spread, word_groups
from headlens.errors import InputError

if TYPE_CHECKING:
    from headlens.maps import AttentionMaps


def merge_words(maps: AttentionMaps) -> AttentionMaps:
    """See `AttentionMaps.to_words`."""
    merged = {stack: tuple(word_groups(axis) for axis in pair) for stack, pair in maps.axes.items()}
    patterns = {}
    for site, pattern in maps.patterns.items():
        rows, columns = (spread(owner) for owner, _ in merged[site.stack])  # each [position, word]
        to_word = pattern.double() @ columns
        from_word = (rows / rows.sum(0)).T @ to_word
        patterns[site] = from_word.float()
    axes = {stack: (queries[1], keys[1]) for stack, (queries, keys) in merged.items()}
    return replace(maps, patterns=patterns, axes=axes, by_words=True, norms={})


def leave_out_special(maps: AttentionMaps) -> AttentionMaps:
    """See `AttentionMaps.drop_special`."""
    kept = {
        stack: [[i for i, special in enumerate(axis.special) if not special] for axis in pair]
        for stack, pair in maps.axes.items()
    }
    if not all(places for pair in kept.values() for places in pair):
        raise InputError("Every token is a special token: nothing is left without them.", "Keep them.")
    axes = {
        stack: (queries.at(kept[stack][0]), keys.at(kept[stack][1]))
        for stack, (queries, keys) in maps.axes.items()
    }
    patterns = {
        site: pattern[:, kept[site.stack][0]][:, :, kept[site.stack][1]]
        for site, pattern in maps.patterns.items()
    }
    norms = {site: lengths[:, kept[site.stack][1]] for site, lengths in maps.norms.items()}
    return replace(maps, patterns=patterns, axes=axes, specials=False, norms=norms)


def weigh_by_norms(maps: AttentionMaps) -> AttentionMaps:
    """See `AttentionMaps.to_norms`."""
    if not maps.norms:
        raise InputError(
            f"The norms of {maps.model} cannot be told: its attention does not show the values that it "
            "reads, or words were merged before.",
            "Look at the weights, or ask for norms before words.",
        )
    patterns = {site: pattern * maps.norms[site][:, None] for site, pattern in maps.patterns.items()}
    return replace(maps, patterns=patterns, norms={}, measure="norms")
