"""`AttentionMaps`: the attention of all heads for one input, to look at, to save and to compute with."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

import pandas as pd
from torch import Tensor

from headlens.errors import InputError, SelectorError
from headlens.heads import Head, Site, head_name, select
from headlens.map_capture import capture
from headlens.map_table import long_table
from headlens.report.endings import view_ending
from headlens.text.groups import spread, word_groups
from headlens.text.reading import Axis, read

if TYPE_CHECKING:
    from matplotlib.figure import Figure

    from headlens.lens import Lens

Heads = str | Head | Sequence[Head]


@dataclass(frozen=True, slots=True, eq=False)
class AttentionMaps:
    """The attention of one input: every method returns a new object, nothing is edited in place.

    Args:
        model: the model's name, for titles.
        sites: all sites of the model.
        patterns: for each site its weights [head, query, key], float32 on the CPU.
        numbers: for each site the head numbers that the first axis of its pattern stands for.
        axes: for each stack what its queries and its keys are: source by source in an encoder or a model
            of one stack, target by target in the decoder of an encoder-decoder, "cross" target by source.
        by_words: whether the axes hold words instead of tokens.
        specials: whether special tokens are still there.
    """

    model: str
    sites: tuple[Site, ...]
    patterns: Mapping[Site, Tensor]
    numbers: Mapping[Site, tuple[int, ...]]
    axes: Mapping[str, tuple[Axis, Axis]]
    by_words: bool = False
    specials: bool = True

    @property
    def heads(self) -> tuple[Head, ...]:
        """The heads that are here, in model order."""
        return tuple(Head(s.stack, s.layer, number) for s in self.patterns for number in self.numbers[s])

    @property
    def tokens(self) -> tuple[str, ...]:
        """The keys of the first stack, as people read them: the text that the model reads."""
        return next(iter(self.axes.values()))[1].tokens

    @property
    def words(self) -> tuple[str, ...]:
        """The words of the text that the model reads."""
        return next(iter(self.axes.values()))[1].forms

    def name(self, head: Head) -> str:
        """Write a head as users do: ``4.11``, or ``cross.4.11`` where the model has several stacks."""
        return head_name(head, self.sites)

    def pattern(self, head: Head) -> Tensor:
        """The weights of one head, [query, key]; they are a view: do not write into them."""
        for site, pattern in self.patterns.items():
            if (site.stack, site.layer) == (head.stack, head.layer) and head.head in self.numbers[site]:
                return pattern[self.numbers[site].index(head.head)]
        raise self._absent([head])

    def select(self, heads: Heads) -> AttentionMaps:
        """Keep only some heads; they keep their numbers.

        Args:
            heads: a selector such as ``2.8,3.*``, or heads.

        Returns:
            Maps of those heads.

        Raises:
            SelectorError: a head is not in the model, or not in these maps.
        """
        chosen = set(select(heads, self.sites))
        if chosen.difference(self.heads):
            raise self._absent(sorted(chosen.difference(self.heads)))
        patterns, numbers = {}, {}
        for site, pattern in self.patterns.items():
            rows = [i for i, n in enumerate(self.numbers[site]) if Head(site.stack, site.layer, n) in chosen]
            if rows:
                patterns[site] = pattern[rows]
                numbers[site] = tuple(self.numbers[site][i] for i in rows)
        stacks = {site.stack for site in patterns}
        axes = {stack: pair for stack, pair in self.axes.items() if stack in stacks}
        return replace(self, patterns=patterns, numbers=numbers, axes=axes)

    def to_words(self) -> AttentionMaps:
        """Merge the pieces of words: attention *to* a word is the sum over its pieces, *from* it the mean.

        Special tokens, and pieces of no word such as blanks, stay as rows and columns of their own, so
        that rows still sum to 1.

        Returns:
            Maps whose positions are words.
        """
        merged = {stack: tuple(word_groups(axis) for axis in pair) for stack, pair in self.axes.items()}
        patterns = {}
        for site, pattern in self.patterns.items():
            rows, columns = (spread(owner) for owner, _ in merged[site.stack])  # each [position, word]
            to_word = pattern.double() @ columns
            from_word = (rows / rows.sum(0)).T @ to_word
            patterns[site] = from_word.float()
        axes = {stack: (queries[1], keys[1]) for stack, (queries, keys) in merged.items()}
        return replace(self, patterns=patterns, axes=axes, by_words=True)

    def drop_special(self) -> AttentionMaps:
        """Leave out the rows and columns of special tokens.

        The weights are *not* renormalised: what a head gives to [CLS] or [SEP] is missing from its rows,
        which then sum to less than 1.

        Returns:
            Maps without special tokens.

        Raises:
            InputError: nothing would be left.
        """
        kept = {
            stack: [[i for i, special in enumerate(axis.special) if not special] for axis in pair]
            for stack, pair in self.axes.items()
        }
        if not all(places for pair in kept.values() for places in pair):
            raise InputError("Every token is a special token: nothing is left without them.", "Keep them.")
        axes = {
            stack: (queries.at(kept[stack][0]), keys.at(kept[stack][1]))
            for stack, (queries, keys) in self.axes.items()
        }
        patterns = {
            site: pattern[:, kept[site.stack][0]][:, :, kept[site.stack][1]]
            for site, pattern in self.patterns.items()
        }
        return replace(self, patterns=patterns, axes=axes, specials=False)

    def to_frame(self) -> pd.DataFrame:
        """Write all weights as one long table.

        Returns:
            Columns ``stack,layer,head,query,key,query_token,key_token,weight``, in model order; query and
            key are positions on the axes, from 0.
        """
        return long_table(self.patterns, self.numbers, self.axes)

    def heatmap(self, heads: Heads | None = None, title: str | None = None) -> Figure:
        """Draw one head with its tokens, or several heads as a grid of layers by heads.

        Args:
            heads: a selector such as ``2.8,3.*``, or heads; all by default.
            title: instead of one that names the model and the heads.

        Returns:
            The figure; it belongs to no window, so nothing has to be closed.

        Raises:
            SelectorError: a head is not here.
        """
        from headlens.report.heatmaps import draw

        return draw(self if heads is None else self.select(heads), title)

    def save(self, path: str | Path, heads: Heads | None = None) -> None:
        """Write a file; its ending chooses what: ``.png .svg .pdf`` heatmaps, ``.csv`` the long table.

        Args:
            path: the file.
            heads: which heads; all by default.

        Raises:
            InputError: the ending names no format that headlens writes.
            SelectorError: a head is not here.
            RunError: the file cannot be written.
        """
        from headlens.tables import write_bytes, write_csv

        ending = view_ending(path)
        maps = self if heads is None else self.select(heads)
        if ending == ".csv":
            write_csv(maps.to_frame(), Path(path))
        else:
            from headlens.report.figures import figure_bytes

            write_bytes(figure_bytes(maps.heatmap(), ending), Path(path))

    def _repr_png_(self) -> bytes:
        from headlens.report.figures import figure_bytes

        return figure_bytes(self.heatmap(), ".png", dpi=100)

    def _absent(self, heads: Sequence[Head]) -> SelectorError:
        names = ", ".join(self.name(head) for head in heads[:5]) + (", ..." if len(heads) > 5 else "")
        return SelectorError(
            f"These maps do not hold {names}: they were made for {len(self.heads)} chosen heads.",
            "Select from the maps of all heads.",
        )


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
    reading = read(lens, text, pair, target, max_length)
    patterns, numbers = capture(lens, reading, chosen)
    axes = {site.stack: reading.axes(site.stack) for site in patterns}
    return AttentionMaps(_title(lens), lens.anatomy.sites, patterns, numbers, axes)


def _title(lens: Lens) -> str:
    if lens.source is None:
        return type(lens.model).__name__
    return Path(lens.source.name).name if Path(lens.source.name).exists() else lens.source.name
