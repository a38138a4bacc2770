"""What looking costs: ratios of CPU time between headlens and the bare forward passes of a model.

Ratios come from one run, the things compared taking turns; they are no timed test. With one thread, the
default on a CPU, it is the time of this process that counts, so other programs on the machine matter little.
"""

from __future__ import annotations

import multiprocessing
import resource
import sys
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, TypeVar

import click
import pandas as pd
import torch
import transformers
from ablating import ablation
from timing import Row, compare, timed
from torch import Tensor

from headlens import passes
from headlens.classification import classify, read_corpus
from headlens.cli.classify import save
from headlens.evidence import Settings, score_table
from headlens.lens import Lens
from headlens.opening import load
from headlens.reading import Reader
from headlens.scorers import SCORERS
from headlens.scorers.base import Context, Scorer
from headlens.tags import margins_in_force, tag_table
from headlens.text.batches import Batch, make_batches
from headlens.text.corpus import Corpus
from headlens.text.inputs import Item, window_inputs

T = TypeVar("T")

LENGTH = 128  # tokens, where scorers are timed
PARTS = ("memory", "capture", "scoring", "classify", "ablation")


def forward(lens: Lens, inputs: Sequence[Mapping[str, Tensor]], name: str = "eager", **options: Any) -> None:
    """Run bare forward passes."""
    own = lens.model.config._attn_implementation
    lens.model.set_attn_implementation(name)
    with torch.inference_mode():
        for each in inputs:
            lens.model.base_model(**{key: value.to(lens.device) for key, value in each.items()}, **options)
    lens.model.set_attn_implementation(own)


def capture(lens: Lens, name: str, shape: tuple[int, int], rounds: int) -> list[Row]:
    """What observing costs, against plain passes and against keeping all patterns."""
    generator = torch.Generator().manual_seed(0)
    ids = torch.randint(5, lens.model.config.vocab_size, shape, generator=generator)
    inputs = [{"input_ids": ids, "attention_mask": torch.ones_like(ids)}]

    def observed() -> None:
        with torch.inference_mode(), lens.observe(lambda site, block: None):
            lens.run(inputs[0])

    works: dict[str, Callable[[], object]] = {
        "eager": lambda: forward(lens, inputs),
        "observed": observed,
        "output_attentions": lambda: forward(lens, inputs, output_attentions=True),
        "sdpa": lambda: forward(lens, inputs, "sdpa"),
    }
    return compare(f"capture: {name}, {shape[0]} x {shape[1]} tokens", works, rounds)


def llama() -> Lens:
    """A small Llama shape with random weights."""
    sizes = {"vocab_size": 1000, "hidden_size": 576, "intermediate_size": 1536, "num_hidden_layers": 4}
    heads = {"num_attention_heads": 9, "num_key_value_heads": 3}
    config = transformers.LlamaConfig(**sizes, **heads, max_position_embeddings=4096)
    return load(transformers.LlamaForCausalLM(config).eval())


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
    return items[:32]


def scoring(context: Context, rounds: int) -> list[Row]:
    """What the scorers cost on top of the same passes under eager attention at 128 tokens."""
    lens = context.lens
    scorers = [scorer.make(context) for scorer in SCORERS.values()]
    windows = long_sentences(context.corpus, lens)
    repeats = passes.MAKERS["repeats"](context, LENGTH).items
    batches = {
        kind: list(make_batches(repeats if kind == "repeats" else windows, passes.pad_id(lens)))
        for kind in ("sentences", "windows", "repeats")
    }
    every = [batch.inputs for kind in batches.values() for batch in kind]

    def together() -> None:
        for kind, mine in batches.items():
            read(lens, [scorer for scorer in scorers if scorer.reads == kind], mine)

    both = {"eager": lambda: forward(lens, every), "all scorers": together}
    rows = compare(f"scoring: {LENGTH} tokens, all inputs", both, rounds)
    for kind, mine in batches.items():
        works: dict[str, Callable[[], object]] = {
            "eager": lambda mine=mine: forward(lens, [batch.inputs for batch in mine]),
            "no scorer": lambda mine=mine: read(lens, [], mine),
        }
        own = [scorer for scorer in scorers if scorer.reads == kind]
        for group in (own, *([scorer] for scorer in own)) if len(own) > 1 else (own,):
            name = group[0].tag if len(group) == 1 else "all of these"
            works[name] = lambda group=group, mine=mine: read(lens, group, mine)
        rows += compare(f"scoring: {LENGTH} tokens, {kind}", works, rounds)
    return rows


def whole(context: Context, path: Path | None) -> list[Row]:
    """Take classify on the corpus apart, and hold it against its bare forward passes."""
    lens, reading, spent = context.lens, passes.Reading(), {}

    def take(name: str, work: Callable[[], T]) -> T:
        found: list[T] = []
        spent[name] = timed(lambda: found.append(work()))
        return found[0]

    take("reading the corpus", lambda: read_corpus(path))
    scorers = take("making the scorers", lambda: [scorer.make(context) for scorer in SCORERS.values()])
    makers = passes.MAKERS.items()
    made = take("tokenizing", lambda: [make(context, reading.longest(lens, kind)) for kind, make in makers])
    inputs = [batch.inputs for x in made for batch in make_batches(x.items, passes.pad_id(lens))]
    take("eager", lambda: forward(lens, inputs))
    take("sdpa", lambda: forward(lens, inputs, "sdpa"))
    name = "tokenizing, and passes observed and scored"
    tallies, _ = take(name, lambda: passes.run_passes(context, scorers, reading))
    take("evidence and tags", lambda: tag_table(score_table(tallies, margins_in_force({}), Settings())))
    name = "classify as a whole"
    found = take(name, lambda: classify(lens, read_corpus(path)))
    with TemporaryDirectory() as folder:
        take("tables and figures", lambda: save(Path(folder), found, {"model": {"name": "a model"}}))
    part = f"classify: {len(list(context.corpus.sentences)):,} sentences"
    rows = [Row(part, name, seconds / spent["eager"], "eager") for name, seconds in spent.items()]
    return [*rows, Row(part, name, spent[name] / spent["sdpa"], "sdpa")]


def peak(model: str, path: Path | None, times: float) -> float:
    """Most memory of a process that classifies a part of a corpus, or all of it several times, in MB."""
    corpus, lens = read_corpus(path), load(model)
    documents = (corpus.documents * 2)[: round(times * len(corpus.documents))]
    if documents:
        classify(lens, replace(corpus, documents=documents))
    most = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss  # kilobytes, on a Mac bytes
    return most / (2**20 if sys.platform == "darwin" else 2**10)


def memory(model: str, path: Path | None) -> list[Row]:
    """Peak memory of classify, each time in a process of its own."""
    rows = []
    for times in (0, 0.5, 1, 2):
        with ProcessPoolExecutor(1, multiprocessing.get_context("spawn")) as pool:
            found = pool.submit(peak, model, path, times).result()
        rows.append(Row("peak memory", f"the documents x {times:g}", found, "MB"))
    return rows


@click.command(context_settings={"help_option_names": ["-h", "--help"]})
@click.option("--model", default="minilm", show_default=True, help="What headlens.load takes.")
@click.option("--corpus", type=click.Path(path_type=Path), help="[default: the bundled English sample]")
@click.option("--part", "parts", multiple=True, type=click.Choice(PARTS), help="[default: all of them]")
@click.option("--threads", default=1, show_default=True, help="More than one: wall time, not CPU time.")
@click.option("--rounds", default=3, show_default=True, help="Turns that each thing compared gets.")
@click.option("--out", type=click.Path(path_type=Path), default=Path("reports/performance.csv"))
def main(
    model: str, corpus: Path | None, parts: tuple[str, ...], threads: int, rounds: int, out: Path
) -> None:
    """Measure what headlens costs, print it as ratios, and write them as a table."""
    torch.set_num_threads(threads)
    wanted = parts or PARTS  # memory first, while this process is small: a child's peak includes its parent's
    rows = memory(model, corpus) if "memory" in wanted else []
    lens = load(model)
    context = Context(lens, read_corpus(corpus))
    if "capture" in wanted:
        rows += capture(lens, model, (32, 128), rounds)
        rows += capture(lens, model, (4, 512), rounds)
        rows += capture(llama(), "llama shape", (1, 2048), max(1, rounds // 2))
    if "scoring" in wanted:
        rows += scoring(context, rounds)
    if "classify" in wanted:
        rows += whole(context, corpus)
    if "ablation" in wanted:
        rows += ablation(model)
    table = pd.DataFrame(rows)
    click.echo(table.to_string(index=False, float_format="{:.2f}".format))
    out.parent.mkdir(parents=True, exist_ok=True)
    table.to_csv(out, index=False, float_format="%.4f", lineterminator="\n")
    click.echo(f"\nWrote {out}.")


if __name__ == "__main__":
    main()
