"""What the attention viewer is given: tokens, and the weights of each head in a byte each."""

from __future__ import annotations

import base64
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from headlens.corpus.batches import Axis, word_groups
from headlens.model.heads import Head, head_name
from headlens.report.levels import coded, levels
from headlens.report.parts import COLOURS
from headlens.report.tag_styles import STYLES, style_of
from headlens.report.viewer_start import checked_start
from headlens.util.formatting import visible

if TYPE_CHECKING:
    from headlens.view.maps import AttentionMaps

MOST_TOKENS = 4096  # of one side that a page shows
MOST_BYTES = 24 * 2**20  # of coded weights in one page
Array = NDArray[np.float32]


@dataclass(frozen=True, slots=True)
class Marks:
    """What earlier runs say about heads.

    Args:
        tags: of each head, strongest first; None where nobody looked.
        importance: of each head, None where nobody measured.
        method: how importance was estimated.
    """

    tags: Mapping[Head, Sequence[str]] | None = None
    importance: Mapping[Head, float] | None = None
    method: str = ""


@dataclass(slots=True)
class _Room:
    """How much may still be put into the page; one head there always is."""

    left: int
    empty: bool = True
    refused: list[Head] = field(default_factory=list)

    def take(self, head: Head, text: str) -> bool:
        fits = self.empty or len(text) <= self.left
        if fits:
            self.left -= len(text)
            self.empty = False
        else:
            self.refused.append(head)
        return fits


def viewer_data(
    texts: Sequence[tuple[str, AttentionMaps]],
    marks: Marks | None = None,
    start: Mapping[str, Any] | None = None,
    most_bytes: int = MOST_BYTES,
) -> dict[str, Any]:
    """Put together what the viewer shows; plain data, ready for JSON.

    Weights come in a byte each, see `headlens.report.levels`; the viewer says how far each number can be off.

    Args:
        texts: titles and maps of one or several inputs of the same model.
        marks: tags and importance of heads.
        start: what the viewer shows first, by the names of its settings.
        most_bytes: of coded weights; heads that do not fit are left out from the last layer on, but never
            the first one, and the page says so.

    Returns:
        The data; texts of more than `MOST_TOKENS` tokens are cut, and the page says so.

    Raises:
        InputError: there is no such setting, or it does not take that value.
        SelectorError: a head to start with is not in the model.
    """
    marks = marks or Marks()
    sites = texts[0][1].sites
    heads = sorted({head for _, maps in texts for head in maps.heads}, key=_order(sites))
    rows = [_head_entry(head, head_name(head, sites), marks) for head in heads]
    carried = {tag for row in rows for tag in row["tags"]}
    known = [*(tag for tag in STYLES if tag in carried), *sorted(carried - set(STYLES))]
    return {
        "model": visible(texts[0][1].model),
        "heads": rows,
        "tagged": marks.tags is not None,
        "tags": {tag: _style(tag) for tag in known},
        "importance": marks.method if marks.importance is not None else "",
        "palette": _coded_palette(),
        "start": checked_start(start or {}, sites),
        "notes": [],
        "texts": [_text(title, maps, most_bytes // len(texts)) for title, maps in texts],
    }


def _order(sites: Sequence[Any]) -> Any:
    places = {(site.stack, site.layer): index for index, site in enumerate(sites)}
    return lambda head: (places[head.stack, head.layer], head.head)


def _head_entry(head: Head, name: str, marks: Marks) -> dict[str, Any]:
    importance = (marks.importance or {}).get(head)
    finite = importance is not None and np.isfinite(importance)
    return {
        "name": name,
        "stack": head.stack,
        "layer": head.layer,
        "head": head.head,
        "tags": list((marks.tags or {}).get(head, ())),
        "importance": float(importance) if importance is not None and finite else None,
    }


def _style(tag: str) -> dict[str, str]:
    style = style_of(tag)
    return {"colour": style.colour, "ink": style.ink, "letter": style.letter}


def _text(title: str, maps: AttentionMaps, most_bytes: int) -> dict[str, Any]:
    """One input: its axes once each, and the coded weights of every head."""
    axes: list[Axis] = []
    for pair in maps.axes.values():
        axes += [axis for axis in pair if axis not in axes]
    room, kept, entropy = _Room(most_bytes), {}, {}
    steps = levels(max(map(len, axes)))
    for head in maps.heads:
        if room.refused:  # the page holds the first heads, with no gaps
            room.refused.append(head)
            continue
        pattern = maps.pattern(head).numpy()
        weights = pattern[:MOST_TOKENS, :MOST_TOKENS]
        text = _base64(coded(weights, steps))
        if room.take(head, text):
            kept[maps.name(head)] = text
            if (mean := _entropy(pattern)) is not None:
                entropy[maps.name(head)] = mean
    return {
        "title": visible(title),
        "byWords": maps.by_words,
        "withoutSpecial": not maps.specials,
        "hasSpecial": any(any(axis.special) for axis in axes),
        "axes": [_axis(axis) for axis in axes],
        "stacks": {stack: [axes.index(axis) for axis in pair] for stack, pair in maps.axes.items()},
        "levels": [float(f"{level:.6g}") for level in steps],
        "maps": kept,
        "entropy": entropy,
        "entropyOf": _entropy_of(maps),
        **_norms(maps),
        "notes": _left_out(maps, axes, room.refused),
    }


def _norms(maps: AttentionMaps) -> dict[str, Any]:
    """How long what each key hands over is, and the largest norm that a cell can show."""
    if not maps.norms:
        return {"norms": None, "peak": None}
    peaks = {"tokens": 0.0, "words": 0.0}
    for site in maps.patterns:  # one after the other: all of them once more would take much memory
        shown = replace(maps, patterns={site: maps.patterns[site]}).to_norms()
        for unit, made in (("tokens", shown), ("words", shown.to_words())):
            peaks[unit] = max(peaks[unit], float(made.patterns[site].max()))
    lengths = {
        maps.name(Head(site.stack, site.layer, number)): _base64(row[:MOST_TOKENS].numpy().astype("<f4"))
        for site, rows in maps.norms.items()
        for number, row in zip(maps.numbers[site], rows, strict=True)
    }
    return {"norms": lengths, "peak": {unit: peak or 1.0 for unit, peak in peaks.items()}}


def _axis(axis: Axis) -> dict[str, Any]:
    axis = axis.at(range(min(len(axis), MOST_TOKENS)))
    owner, merged = word_groups(axis)
    return {
        "tokens": list(axis.tokens),
        "special": [int(special) for special in axis.special],
        "owner": owner,
        "words": list(merged.tokens),
        "wordSpecial": [int(special) for special in merged.special],
    }


def _entropy(pattern: Array) -> float | None:
    """Mean entropy of the rows in nats, each made to add up to 1; None where every row keeps nothing."""
    weights = pattern.astype(np.float64)
    sums = weights.sum(-1, keepdims=True)
    weights = (weights / np.where(sums > 0, sums, 1))[sums[:, 0] > 0]
    if not len(weights):
        return None
    logs = np.log(weights, where=weights > 0, out=np.zeros_like(weights))
    return float(-(weights * logs).sum(-1).mean())


def _entropy_of(maps: AttentionMaps) -> str:
    """What the entropy is over, whatever the page shows."""
    unit = "words" if maps.by_words else "tokens"
    return f"all {unit}" if maps.specials else f"{unit} but special ones, rows made to add up to 1"


def _left_out(maps: AttentionMaps, axes: Sequence[Axis], refused: Sequence[Head]) -> list[str]:
    notes = []
    if (longest := max(map(len, axes))) > MOST_TOKENS:
        notes.append(f"Only the first {MOST_TOKENS:,} of {longest:,} tokens are shown.")
    if refused:
        notes.append(
            f"{len(refused)} of {len(maps.heads)} heads are left out, from {maps.name(refused[0])} on: their "
            "weights would make the page too large. Choose heads (--heads), or give a shorter text."
        )
    return notes


def _coded_palette() -> str:
    """The colours of the heatmaps, 256 times red, green and blue, from dark to light."""
    colours = COLOURS.reversed()(np.linspace(0, 1, 256))[:, :3]
    return _base64(np.rint(255 * colours).astype(np.uint8))


def _base64(content: bytes | NDArray[Any]) -> str:
    return base64.b64encode(content if isinstance(content, bytes) else content.tobytes()).decode()
