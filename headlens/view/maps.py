"""`AttentionMaps`: the attention of one input, in tokens or words, as a table."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
import pandas as pd
import torch
from torch import Tensor

from headlens.corpus.batches import Axis, ModelInput, read, spread, word_groups
from headlens.errors import InputError, SelectorError
from headlens.model.finite import check_numbers, not_numbers
from headlens.model.heads import Head, Site, head_name, select
from headlens.model.lens import Lens
from headlens.model.seam import Block
from headlens.model.weights import handed_over
from headlens.runs.read import Marks
from headlens.util.drawing import artist
from headlens.util.files import write_text
from headlens.util.formatting import mended

if TYPE_CHECKING:
    from matplotlib.figure import Figure

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
        norms: for each site how long what a key hands over is, |f(x)| [head, key]; empty where the model
            does not show it, and once words were merged.
        measure: whether `patterns` holds weights, or norms: weights times those lengths.
        text: what was read, for titles.
    """

    model: str
    sites: tuple[Site, ...]
    patterns: Mapping[Site, Tensor]
    numbers: Mapping[Site, tuple[int, ...]]
    axes: Mapping[str, tuple[Axis, Axis]]
    by_words: bool = False
    specials: bool = True
    norms: Mapping[Site, Tensor] = field(default_factory=dict)
    measure: Literal["weights", "norms"] = "weights"
    text: str = ""

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
        norms: dict[Site, Tensor] = {}
        for site, pattern in self.patterns.items():
            rows = [i for i, n in enumerate(self.numbers[site]) if Head(site.stack, site.layer, n) in chosen]
            if rows:
                patterns[site] = pattern[rows]
                numbers[site] = tuple(self.numbers[site][i] for i in rows)
                norms |= {site: self.norms[site][rows]} if site in self.norms else {}
        stacks = {site.stack for site in patterns}
        axes = {stack: pair for stack, pair in self.axes.items() if stack in stacks}
        return replace(self, patterns=patterns, numbers=numbers, axes=axes, norms=norms)

    def to_norms(self) -> AttentionMaps:
        """Look at norms instead of weights: each weight times the length of what its key hands over.

        A head that rests on [SEP] with a large weight often hands over next to nothing there, which weights
        do not show (Kobayashi et al. 2020). Norms are in the units of the residual stream: they compare
        heads and keys of one model, not models. Of words they are summed and averaged like weights.

        Returns:
            Maps whose patterns are |A_ij f(x_j)|, from 0 on without a bound.

        Raises:
            InputError: the model does not show its values, or words are already merged.
        """
        if not self.norms:
            raise InputError(
                f"The norms of {self.model} cannot be told: its attention does not show the values that it "
                "reads, or words were merged before.",
                "Look at the weights, or ask for norms before words.",
            )
        patterns = {site: pattern * self.norms[site][:, None] for site, pattern in self.patterns.items()}
        return replace(self, patterns=patterns, norms={}, measure="norms")

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
        return replace(self, patterns=patterns, axes=axes, by_words=True, norms={})

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
        norms = {site: lengths[:, kept[site.stack][1]] for site, lengths in self.norms.items()}
        return replace(self, patterns=patterns, axes=axes, specials=False, norms=norms)

    def to_frame(self) -> pd.DataFrame:
        """Write all weights as one long table.

        Returns:
            Columns ``stack,layer,head,query,key,query_token,key_token,weight`` (``norm`` instead of
            ``weight`` after `to_norms`), in model order; query and key are positions on the axes, from 0.
        """
        columns: dict[str, list[np.ndarray]] = {}
        for site, pattern in self.patterns.items():
            queries, keys = (np.array(axis.tokens, dtype=object) for axis in self.axes[site.stack])
            head, query, key = (index.ravel() for index in np.indices(pattern.shape))
            values = {
                "stack": np.full(head.shape, site.stack, dtype=object),
                "layer": np.full(head.shape, site.layer),
                "head": np.array(self.numbers[site])[head],
                "query": query,
                "key": key,
                "query_token": queries[query],
                "key_token": keys[key],
                self.measure.removesuffix("s"): pattern.numpy().ravel(),
            }
            for name, column in values.items():
                columns.setdefault(name, []).append(column)
        return pd.DataFrame({name: np.concatenate(parts) for name, parts in columns.items()})

    def heatmap(
        self, heads: Heads | None = None, title: str | None = None, width: float | None = None
    ) -> Figure:
        """Draw one head with its tokens, or several heads as a grid of layers by heads.

        Args:
            heads: a selector such as ``2.8,3.*``, or heads; all by default.
            title: instead of one that names the model and the heads.
            width: at most so many inches (3.4 and 7 are one and two columns of a paper; text stays as large
                as it is); by default as wide as the labels need.

        Returns:
            The figure; it belongs to no window, so nothing has to be closed.

        Raises:
            SelectorError: a head is not here.
            InputError: the heads do not fit into the width.
        """
        return artist().map_attention(self if heads is None else self.select(heads), title, width)

    def to_html(self, path: str | Path | None = None, marks: Marks | None = None, **start: Any) -> str:
        """Write the interactive page: a grid of all heads, lines between tokens, heatmaps; without network.

        Weights are kept to 8 bits; `to_frame` has them exactly.

        Args:
            path: where to write it; nowhere by default.
            marks: tags and importance of heads, from `headlens.runs.read.read_marks`.
            **start: what is shown first: ``heads="2.8,3.1"`` (a selector, or heads), ``unit="words"``,
                ``special=False``, ``lens="norms"``, ``sort="entropy"``, ``shape="heatmap"``, ``pin="q3"``.

        Returns:
            The page.

        Raises:
            InputError: a setting does not exist, or these are norms: the page of the weights has a switch.
            SelectorError: a head is not here.
            RunError: the file cannot be written.
        """
        if self.measure == "norms":
            raise InputError(
                "These maps are norms, which the page makes of weights.",
                'Type maps.to_html(path, lens="norms") on the maps of the weights.',
            )
        page = artist().attention_page(self, marks, start)
        if path is not None:
            write_text(page, Path(path))
        return page

    def save(self, path: str | Path, heads: Heads | None = None, width: float | None = None) -> None:
        """Write a file; its ending chooses: ``.png .svg .pdf`` heatmaps, ``.html`` a page, ``.csv`` a table.

        Args:
            path: the file.
            heads: which heads; all by default.
            width: of heatmaps, see `heatmap`.

        Raises:
            InputError: the ending names no format that headlens writes, or the width is too small.
            SelectorError: a head is not here.
            RunError: the file cannot be written.
        """
        artist().save_attention(self if heads is None else self.select(heads), Path(path), width)

    def _repr_html_(self) -> str | None:
        return artist().in_frame(self.to_html()) if self.measure == "weights" else None

    def _repr_png_(self) -> bytes | None:
        return artist().png(self.heatmap()) if self.measure == "norms" else None

    def _absent(self, heads: Sequence[Head]) -> SelectorError:
        names = ", ".join(self.name(head) for head in heads[:5]) + (", ..." if len(heads) > 5 else "")
        return SelectorError(
            f"These maps do not hold {names}: they were made for {len(self.heads)} chosen heads.",
            "Select from the maps of all heads.",
        )


# ---- Runs a model once and keeps the patterns of the heads that are wanted, no others


MAX_BYTES = 4 * 2**30  # more than this is refused before the model runs


def _capture(
    lens: Lens, reading: ModelInput, heads: Sequence[Head]
) -> tuple[dict[Site, Tensor], dict[Site, tuple[int, ...]], dict[Site, Tensor]]:
    """Run one input; patterns, numbers and norms as in `AttentionMaps`."""
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
    numbers = {site: wanted[site] for site in patterns}
    return patterns, numbers, norms if norms.keys() == patterns.keys() else {}


def _check_size(reading: ModelInput, wanted: Mapping[Site, Sequence[int]]) -> None:
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


# ---- From a text to the attention of all heads on it


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


def maps_of(lens: Lens, reading: ModelInput, heads: Sequence[Head]) -> AttentionMaps:
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
    patterns, numbers, norms = _capture(lens, reading, heads)
    axes = {site.stack: reading.axes(site.stack) for site in patterns}
    return AttentionMaps(_title_of(lens), lens.anatomy.sites, patterns, numbers, axes, norms=norms)


def _title_of(lens: Lens) -> str:
    """Name a model in titles: what it was loaded from, else its class."""
    if lens.source is None:
        return type(lens.model).__name__
    return Path(lens.source.name).name if Path(lens.source.name).exists() else lens.source.name
