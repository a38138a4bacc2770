"""What scorers cost on top of the passes that they look at."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from itertools import pairwise

from headlens.corpus.batches import Batch, make_batches
from headlens.corpus.corpus import Corpus
from headlens.corpus.inputs import Item, window_inputs
from headlens.lens import Lens
from headlens.scoring import passes
from headlens.scoring.base import Context, Scorer
from headlens.scoring.passes import Reader
from headlens.scoring.scorers import SCORERS
from measure.setting import Setting, forward
from measure.timing import Row, against

LENGTH = 128  # tokens


def scoring(setting: Setting) -> list[Row]:
    """All scorers and each of them, against bare passes under eager attention over the same inputs."""
    lens = setting.lens
    context = Context(lens, setting.corpus)
    scorers = [scorer.make(context) for scorer in SCORERS.values()]
    windows = long_sentences(setting.corpus, lens)[: 2 if setting.small else 32]
    repeats = passes.MAKERS["repeats"](context, LENGTH).items[: len(windows)]
    batches = {
        kind: list(make_batches(repeats if kind == "repeats" else windows, passes.pad_id(lens)))
        for kind in ("sentences", "windows", "repeats")
    }
    every = [batch.inputs for kind in batches.values() for batch in kind]

    def together() -> None:
        for kind, mine in batches.items():
            read(lens, [scorer for scorer in scorers if scorer.reads == kind], mine)

    bare = {"an eager pass": lambda: forward(lens, every)}
    part = f"scoring: {LENGTH} tokens"
    rows = against(part, {"all scorers": together}, bare, setting.rounds)
    for kind, mine in batches.items():
        works = {"no scorer": lambda mine=mine: read(lens, [], mine)}
        for scorer in (scorer for scorer in scorers if scorer.reads == kind):
            works[scorer.tag] = lambda scorer=scorer, mine=mine: read(lens, [scorer], mine)
        bare = {"an eager pass": lambda mine=mine: forward(lens, [batch.inputs for batch in mine])}
        rows += against(f"{part}, {kind}", works, bare, setting.rounds)
    return rows


def read(lens: Lens, scorers: Sequence[Scorer], batches: Sequence[Batch]) -> None:
    """Score some batches; what they know of their words is worked out anew."""
    fresh = [Batch(batch.items, batch.inputs, batch.pad_left) for batch in batches]
    n_units = 1 + max(item.unit for batch in batches for item in batch.items)
    Reader(scorers, lens.anatomy.sites, n_units).read(lens, fresh)


def long_sentences(corpus: Corpus, lens: Lens) -> list[Item]:
    """Windows of about 128 tokens as one sentence each: every word's head counts from the window's start."""
    items = []
    for item in window_inputs(corpus, lens.tokenizer, LENGTH).items:
        words = [
            replace(word, head=word.head + start) if word.head is not None and word.head >= 0 else word
            for start, stop in pairwise([*item.starts, len(item.words)])
            for word in item.words[start:stop]
        ]
        if len(item.encoded) > 0.8 * LENGTH:
            items.append(replace(item, words=tuple(words), starts=(0,)))
    return items
