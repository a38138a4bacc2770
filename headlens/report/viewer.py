"""The page on which attention can be looked at: its data, its scripts, its file."""

from __future__ import annotations

import base64
import hashlib
import html
import json
import math
import re
import zlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from importlib import resources
from pathlib import Path
from typing import Any

import jinja2
import numpy as np
from numpy.typing import NDArray

from headlens.benchmarks.registry import Benchmark, Showable
from headlens.corpus.batches import Axis, reading_of, word_groups
from headlens.corpus.corpus import Corpus
from headlens.corpus.inputs import ordinary_tokens, repeated_encoded, sentence_inputs
from headlens.corpus.words import Encoded, encode_text
from headlens.errors import HeadlensError, InputError, is_out_of_memory
from headlens.model.heads import Head, Site, head_name, select
from headlens.model.lens import Lens
from headlens.report.canvas import figure_bytes, in_order, style_of
from headlens.report.heatmaps import COLOURS
from headlens.runs.read import Marks
from headlens.runs.result import EXAMPLES
from headlens.util import __version__
from headlens.util.files import write_bytes, write_csv, write_text
from headlens.util.formatting import visible
from headlens.view.maps import AttentionMaps, maps_of

FRAME_HEIGHT = 860  # pixels, in a notebook


def viewer_page(data: Mapping[str, Any]) -> str:
    """Write the page of one or several inputs.

    Only the page's own script runs: a content security policy names its hash, and forbids the network.
    """
    own = script("viewer-page.js")
    texts = [text["title"] for text in data["texts"]]
    return template("viewer.html.j2").render(
        title=f"{data['model']}: attention of {_counted(data)}",
        text=texts[0] if len(texts) == 1 else f"{len(texts)} texts",
        version=__version__,
        style=style("page.css", "viewer.css"),
        maps=as_json(data),
        script=own,
        script_hash=script_hash(own),
    )


def attention_page(maps: AttentionMaps, marks: Marks | None, start: Mapping[str, Any]) -> str:
    """See `AttentionMaps.to_html`."""
    return viewer_page(viewer_data([(maps.text or " ".join(maps.words), maps)], marks, start))


def template(name: str) -> jinja2.Template:
    """Open a template of ``headlens/report/assets``; what is put into it is escaped."""
    loader = jinja2.PackageLoader("headlens.report", "assets")
    return jinja2.Environment(loader=loader, autoescape=True, undefined=jinja2.StrictUndefined).get_template(
        name
    )


def as_json(data: Any) -> str:
    """Write data for a ``<script type="application/json">``: nothing in it can end the script."""
    text = json.dumps(data, ensure_ascii=True, allow_nan=False, separators=(",", ":"))
    return text.replace("<", "\\u003c")


def script_hash(script: str) -> str:
    """Name a script for a content security policy, by what it says."""
    return "sha256-" + base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()


def in_frame(page: str) -> str:
    """Put a page into a frame, as notebooks show it: its names and styles do not meet those of others."""
    return (
        f'<iframe srcdoc="{html.escape(page)}" title="Attention viewer" width="100%" '
        f'height="{FRAME_HEIGHT}" style="border: 0; width: 100%;"></iframe>'
    )


def _counted(data: Mapping[str, Any]) -> str:
    heads = data["heads"]
    return f"head {heads[0]['name']}" if len(heads) == 1 else f"{len(heads)} heads"


# ---- What the attention viewer is given: tokens, and the weights of each head in a byte each


MOST_TOKENS = 4096  # of one side that a page shows
MOST_BYTES = 24 * 2**20  # of coded weights in one page
Array = NDArray[np.float32]


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

    Weights come in a byte each, see `headlens.report.viewer`; the viewer says how far each number can be off.
    """
    marks = marks or Marks()
    sites = texts[0][1].sites
    heads = sorted({head for _, maps in texts for head in maps.heads}, key=_order(sites))
    rows = [_head_entry(head, head_name(head, sites), marks) for head in heads]
    carried = {tag for row in rows for tag in row["tags"]}
    return {
        "model": visible(texts[0][1].model),
        "heads": rows,
        "tagged": marks.tags is not None,
        "tags": {tag: _style(tag) for tag in in_order(carried)},
        "importance": marks.method if marks.importance is not None else "",
        "palette": _coded_palette(),
        "start": _checked_start(start or {}, sites),
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
        text = _base64(_coded(weights, steps))
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


# ---- What the attention viewer shows first: settings by name, checked before they go into a page


SETTINGS: Mapping[str, tuple[Any, ...]] = {
    "unit": ("tokens", "words"),
    "special": (True, False),
    "lens": ("weights", "norms"),
    "sort": ("layer", "entropy", "importance", "tag"),
    "shape": ("lines", "heatmap"),
    "least": ("0", "0.01", "0.05", "0.1", "0.25", "0.5"),
    "theme": ("auto", "light", "dark"),
}
"""What each setting takes; beside them ``heads``, ``pin`` and ``text``."""


def _checked_start(start: Mapping[str, Any], sites: Sequence[Site]) -> dict[str, Any]:
    """The settings that a page shows first, checked: `SETTINGS`, ``heads``, ``pin`` (q3 or k3), ``text``."""
    return {name: _checked(name, value, sites) for name, value in start.items()}


def _checked(name: str, value: Any, sites: Sequence[Site]) -> Any:
    if name == "heads":
        return _names(value, sites)
    if name in SETTINGS:
        fits, expected = value in SETTINGS[name], " or ".join(map(repr, SETTINGS[name]))
    elif name == "pin":
        fits = isinstance(value, str) and re.fullmatch(r"[qk]\d+", value) is not None
        expected = "'q' or 'k' and a number"
    elif name == "text":
        fits, expected = isinstance(value, int) and value >= 0, "a number from 0"
    else:
        known = ", ".join([*SETTINGS, "heads", "pin", "text"])
        raise InputError(f"The page has no setting {name!r}.", f"It has: {known}.")
    if not fits:
        raise InputError(f"Expected {expected} for {name}, got {value!r}.", "Give one of those.")
    return value


def _names(value: Any, sites: Sequence[Site]) -> list[str]:
    """Names of heads, in the order in which they were given."""
    given = [value] if isinstance(value, (str, Head)) else list(value)
    names = [
        head_name(head, sites)
        for one in given
        for head in select([one] if isinstance(one, Head) else one, sites)
    ]
    return list(dict.fromkeys(names))


# ---- Weights in a byte each: which of a few levels is nearest


LINEAR = 200  # steps of large weights
ROOTS = ((40, 128), (80, 64), (300, 24), (1 << 62, 20))
"""Up to how many tokens the square root of small weights has how many steps."""


def levels(n_tokens: int) -> NDArray[np.float64]:
    """Choose the levels for a text."""
    roots = next(steps for longest, steps in ROOTS if n_tokens <= longest)
    found = [0.0]
    while (following := ((len(found)) / roots) ** 2) - found[-1] < 1 / LINEAR:
        found.append(following)
    count = math.ceil((1 - found[-1]) * LINEAR)
    return np.concatenate([found[:-1], np.linspace(found[-1], 1, count + 1)])


def _coded(weights: NDArray[np.float32], steps: NDArray[np.float64]) -> bytes:
    """A pattern [query, key] as the browser reads it: a zlib stream of one byte for each weight."""
    # key by key: what successive queries give to one key is more alike than what one query gives to keys in
    # turn; and with runs alone, a hundred times faster here than a search for any repeats, and no larger
    made = zlib.compressobj(6, zlib.DEFLATED, zlib.MAX_WBITS, 9, zlib.Z_RLE)
    return made.compress(quantise(weights.T, steps).tobytes()) + made.flush()


def quantise(weights: NDArray[np.float32], steps: NDArray[np.float64]) -> NDArray[np.uint8]:
    """Find the nearest level of each weight."""
    middles = ((steps[1:] + steps[:-1]) / 2).astype(np.float32)
    return np.searchsorted(middles, weights).astype(np.uint8)


# ---- The scripts and styles of headlens's pages: readable modules, joined into one text for the page


_IMPORT = re.compile(r'^import \{[^}]*\} from "\./([\w-]+\.js)";\n', re.MULTILINE)
_EXPORT = re.compile(r"^export (?=async |function |const |class )", re.MULTILINE)


def script(entry: str) -> str:
    """Join a script with all modules that it imports, each once and before those that need it.

    Modules share one scope in the page, so no two may give the same name to something at their top level.
    """
    found: dict[str, str] = {}
    _collect(entry, found)
    return "\n".join(found.values())


def style(*names: str) -> str:
    """Join style sheets."""
    return "\n".join(map(_read, names))


def _collect(name: str, found: dict[str, str], above: Sequence[str] = ()) -> None:
    if name in found or name in above:
        return
    text = _read(name)
    for needed in _IMPORT.findall(text):
        _collect(needed, found, (*above, name))
    found[name] = f"// {name}\n" + _EXPORT.sub("", _IMPORT.sub("", text)).strip() + "\n"


def _read(name: str) -> str:
    return (resources.files("headlens.report") / "assets" / name).read_text(encoding="utf-8")


# ---- The attention of one input as a file, whose ending says of what kind


def save_maps(maps: AttentionMaps, path: Path, width: float | None = None) -> None:
    """See `AttentionMaps.save`."""
    ending = view_ending(path)
    if ending == ".csv":
        write_csv(maps.to_frame(), path)
    elif ending == ".html":
        maps.to_html(path)
    else:
        write_bytes(figure_bytes(maps.heatmap(width=width), ending), path)


# ---- What the ending of a file name asks for


FIGURES = (".png", ".svg", ".pdf")
_WORKS = "Endings that work: .png .svg .pdf for heatmaps, .html for an interactive page, .csv for a table."


def view_ending(path: str | Path) -> str:
    """Find out in which format the attention of one input is wanted.

    Args:
        path: the file to be written.

    Returns:
        One of ``.png .svg .pdf .html .csv``.

    Raises:
        InputError: the ending names no format that headlens writes.
    """
    return _ending(path, (*FIGURES, ".html", ".csv"), _WORKS)


def figure_or_table(path: str | Path) -> str:
    """Find out whether a heatmap or a table is wanted.

    Args:
        path: the file to be written.

    Returns:
        One of ``.png .svg .pdf .csv``.

    Raises:
        InputError: the ending names neither.
    """
    return _ending(
        path, (*FIGURES, ".csv"), "Endings that work: .png .svg .pdf for a heatmap, .csv for a table."
    )


def _ending(path: str | Path, known: Sequence[str], works: str) -> str:
    ending = Path(path).suffix.lower()
    if ending not in known:
        found = f"the ending {ending}" if ending else "a file name without ending"
        raise InputError(
            f"The ending chooses the format; expected one that headlens writes, found {found}.", works
        )
    return ending


# ---- Example inputs of a run: what its heads look at, kept beside the numbers so that a report can show it


COUNT = 4
CHOSEN_FROM = 1000  # sentences
LONGEST = 40  # tokens: longer inputs are no examples
REPEATED = 8  # random tokens that are repeated once
MOST_EXAMPLE_BYTES = 4 * 2**20

Example = tuple[str, AttentionMaps]


def of_corpus(lens: Lens, corpus: Corpus) -> list[Example]:
    """Look at a few sentences of a corpus, and at repeated random tokens.

    The sentences are those of the first thousand that show most kinds of relations not shown yet, the
    earlier where several do.
    """
    corpus = _beginning(corpus)
    items = sentence_inputs(corpus, lens.tokenizer, LONGEST).items
    sentences = [sentence for _, sentence in corpus.sentences]
    kinds = [{word.deprel for word in item.words} | {None} for item in items]
    shown: set[Any] = set()
    found: list[Encoded] = []
    titles = []
    for _ in range(min(COUNT, len(items))):
        best = max(range(len(items)), key=lambda index: (len(kinds[index] - shown), -index))
        shown |= kinds[best]
        kinds[best] = shown
        found.append(items[best].encoded)
        titles.append(sentences[items[best].place].text)
    if len(ordinary_tokens(lens.tokenizer)) >= REPEATED:
        found.append(repeated_encoded(lens.tokenizer, REPEATED, 2, seed=0))
        titles.append("Random tokens, repeated once")
    readings = [reading_of(lens, encoded) for encoded in found]
    return [
        (title, maps_of(lens, reading, _read_heads(lens)))
        for title, reading in zip(titles, readings, strict=True)
    ]


def of_benchmark(lens: Lens, benchmark: Benchmark) -> list[Example]:
    """Look at a few inputs of a benchmark, the first that are short enough."""
    if not isinstance(benchmark, Showable):
        return []
    rows = [list(row) for row in benchmark.to_show if len(row) <= LONGEST][:COUNT]
    rows = rows or [list(row)[:LONGEST] for row in benchmark.to_show[:1]]
    examples = []
    for row in rows:
        encoded = _encoded(lens.tokenizer, row)
        title = lens.tokenizer.decode(row, skip_special_tokens=True)
        examples.append((title, maps_of(lens, reading_of(lens, encoded), _read_heads(lens))))
    return examples


def save_examples(out: Path, examples: Sequence[Example], marks: Marks) -> None:
    """Write what a report shows of single inputs into a run directory."""
    if examples:
        write_text(as_json(viewer_data(examples, marks, most_bytes=MOST_EXAMPLE_BYTES)), out / EXAMPLES)


def attempt(make: Any, *arguments: Any) -> list[Example]:
    """Look at examples, but never lose a finished run over them: where they cannot be had there are none."""
    try:
        found: list[Example] = make(*arguments)
    except (HeadlensError, MemoryError, RuntimeError) as error:
        if isinstance(error, HeadlensError) or is_out_of_memory(error):
            return []
        raise
    return found


def _beginning(corpus: Corpus) -> Corpus:
    """The first documents, enough to choose from: a large corpus is not tokenized once more for examples."""
    kept, count = [], 0
    for document in corpus.documents:
        if count >= CHOSEN_FROM:
            break
        kept.append(replace(document, sentences=document.sentences[: CHOSEN_FROM - count], mentions=()))
        count += len(document.sentences)
    return replace(corpus, documents=tuple(kept))


def _read_heads(lens: Lens) -> tuple[Head, ...]:
    """The heads that read the text: all, but of an encoder-decoder model the encoder's."""
    heads = lens.anatomy.heads
    return tuple(h for h in heads if h.stack == "encoder") if "cross" in lens.anatomy.stacks else heads


def _encoded(tokenizer: Any, ids: list[int]) -> Encoded:
    """What token ids stand for, with its words where the text alone gives the same tokens again."""
    text = tokenizer.decode(ids, skip_special_tokens=True, clean_up_tokenization_spaces=False)
    if text.strip():
        again = encode_text(tokenizer, text)
        if again.inputs["input_ids"] == ids:
            return again
    special = set(tokenizer.all_special_ids)
    return Encoded(
        inputs={"input_ids": ids},
        tokens=tuple(tokenizer.convert_ids_to_tokens(ids)),
        words=(None,) * len(ids),
        special=tuple(index in special for index in ids),
        forms=(),
    )
