"""What classify costs as a whole, and what it spends its time on."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TypeVar

from headlens.corpus.batches import make_batches
from headlens.lens import load
from headlens.scoring import passes
from headlens.scoring.base import Context
from headlens.scoring.classify import classify, read_corpus
from headlens.scoring.evidence import Settings, margins_in_force, score_table, tag_table
from headlens.scoring.scorers import SCORERS
from measure import peers
from measure.setting import Setting, forward
from measure.timing import Row, against, timed

T = TypeVar("T")


def whole(setting: Setting) -> list[Row]:
    """Classify on the corpus, in its steps, against the bare passes over what it reads; and beside others."""
    lens, corpus, reading, spent = setting.lens, setting.corpus, passes.RunOptions(), {}
    context = Context(lens, corpus)

    def take(name: str, work: Callable[[], T]) -> T:
        found: list[T] = []
        spent[name] = timed(lambda: found.append(work()))
        return found[0]

    take("reading the corpus", lambda: read_corpus(setting.path))
    scorers = take("making the scorers", lambda: [scorer.make(context) for scorer in SCORERS.values()])
    made = take("tokenizing", lambda: passes.make_inputs(context, scorers, reading))
    inputs = [batch.inputs for x in made.values() for batch in make_batches(x.items, passes.pad_id(lens))]
    take("an eager pass", lambda: forward(lens, inputs))
    take("an sdpa pass", lambda: forward(lens, inputs, "sdpa"))
    name = "tokenizing, and passes observed and scored"
    tallies, _ = take(name, lambda: passes.run_passes(context, scorers, reading))
    take("evidence and tags", lambda: tag_table(score_table(tallies, margins_in_force({}), Settings())))
    name = "classify as a whole"
    found = take(name, lambda: classify(lens, corpus))
    with TemporaryDirectory() as folder:
        take("tables and figures", lambda: found.write(Path(folder)))
    part = f"classify: {len(list(corpus.sentences)):,} sentences"
    steps = [Row(part, step, seconds / spent[name], name) for step, seconds in spent.items() if step != name]
    rows = [Row(part, name, spent[name] / spent[bare], bare) for bare in ("an eager pass", "an sdpa pass")]
    beside = beside_transformer_lens(setting) if peers.has("transformer_lens") else []
    return [*rows, *steps, *beside]


def beside_transformer_lens(setting: Setting) -> list[Row]:
    """Heads that look at the previous token: all offsets with evidence, against one without."""
    lens, other = load(str(setting.gpt2)), peers.bridge(setting.gpt2)
    sentences = [sentence for _, sentence in setting.corpus.sentences if len(sentence.words) > 5]
    texts = [" ".join(sentence.forms) for sentence in sentences[: 4 if setting.small else 64]]
    path = setting.folder / "texts.txt"
    path.write_text("\n\n".join(texts), encoding="utf-8")
    corpus = read_corpus(path)
    return against(
        f"classify: GPT-2 shape, {len(texts)} sentences",
        {"positional heads": lambda: classify(lens, corpus, ["positional"])},
        {"TransformerLens, detect_head": lambda: peers.detect_previous_token(other, texts)},
        setting.rounds,
    )
