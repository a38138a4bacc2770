"""Long inputs: one of 8,192 tokens against the plain pass, one of 32,768 within bounds of memory."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from headlens.lens import load
from headlens.scoring.classify import classify, read_corpus
from headlens.scoring.passes import RunOptions
from measure.memory import alone, peak
from measure.setting import Setting, forward, random_inputs
from measure.timing import Row, against, timed

TAGS = ("positional", "delimiter", "broad")


def long(setting: Setting) -> list[Row]:
    """Scores of a Llama shape on one long input."""
    place, length = str(setting.llama(setting.layers)), 256 if setting.small else 8192
    lens, corpus = load(place), read_corpus(text_of(length, setting.folder))
    reading, inputs = RunOptions(documents=True), [random_inputs(lens, (1, length))]
    ours = {
        "classify, positional and delimiter": lambda: classify(lens, corpus, TAGS[:2], reading=reading),
        "classify, these and broad": lambda: classify(lens, corpus, TAGS, reading=reading),
    }
    shape = f"Llama shape of {setting.layers} layers"
    bare = {"an sdpa pass": lambda: forward(lens, inputs, "sdpa")}
    rows = against(f"long: {shape}, {length:,} tokens", ours, bare, setting.rounds)
    length *= 4
    part, path = f"long: {shape}, {length:,} tokens", text_of(length, setting.folder)
    seconds, above = alone(setting, scored, place, path)
    bare_seconds, bare_above = alone(setting, plain, place, length)
    name = "classify, all three"
    return [
        *rows,
        Row(part, name, seconds / bare_seconds, "an sdpa pass"),
        Row(f"{part}, above the weights", name, above, "MB"),
        Row(f"{part}, above the weights", "an sdpa pass", bare_above, "MB"),
    ]


def text_of(length: int, folder: Path) -> Path:
    """A file of one paragraph of random words, a full stop after every 19."""
    words = [f"w{number}" for number in np.random.default_rng(0).integers(0, 997, length)]
    words[19::20] = ["."] * len(words[19::20])
    path = folder / f"{length}.txt"
    path.write_text(" ".join(words), encoding="utf-8")
    return path


def scored(place: str, path: Path) -> tuple[float, float]:
    """CPU seconds of scoring a text as one input, and the peak above what there was before, in MB."""
    lens, corpus = load(place), read_corpus(path)
    before = peak() if lens.anatomy.sites else 0.0
    found = []
    seconds = timed(lambda: found.append(classify(lens, corpus, TAGS, reading=RunOptions(documents=True))))
    assert found[0].run["inputs"]["documents"]["read"] == 1
    return seconds, peak() - before


def plain(place: str, length: int) -> tuple[float, float]:
    """The same of the plain pass."""
    lens = load(place)
    inputs, before = [random_inputs(lens, (1, length))], peak()
    return timed(lambda: forward(lens, inputs, "sdpa")), peak() - before
