"""Example inputs of a run: what its heads look at, kept beside the numbers so that a report can show it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from headlens.benchmarks.registry import Benchmark, Showable
from headlens.corpus.batches import reading_of
from headlens.corpus.corpus import Corpus
from headlens.corpus.inputs import ordinary_tokens, repeated_encoded, sentence_inputs
from headlens.corpus.words import Encoded, encode_text
from headlens.errors import HeadlensError
from headlens.model.devices import is_out_of_memory
from headlens.model.heads import Head
from headlens.model.lens import Lens
from headlens.report.viewer import as_json
from headlens.report.viewer_data import Marks, viewer_data
from headlens.util.files import remove, write_text
from headlens.view.maps import AttentionMaps, maps_of

FILE = "examples.json"
COUNT = 4
CHOSEN_FROM = 1000  # sentences
LONGEST = 40  # tokens: longer inputs are no examples
REPEATED = 8  # random tokens that are repeated once
MOST_BYTES = 4 * 2**20

Example = tuple[str, AttentionMaps]


def of_corpus(lens: Lens, corpus: Corpus) -> list[Example]:
    """Look at a few sentences of a corpus, and at repeated random tokens.

    The sentences are those of the first thousand that show most kinds of relations not shown yet, the
    earlier where several do.

    Args:
        lens: the model.
        corpus: the corpus.

    Returns:
        Titles and maps. Of an encoder-decoder model the encoder alone, since a corpus says not what is
        written.
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
    """Look at a few inputs of a benchmark, the first that are short enough.

    Args:
        lens: the model.
        benchmark: the benchmark.

    Returns:
        Titles and maps; none for a kind that has no single inputs to show.
    """
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


def save(out: Path, examples: Sequence[Example], marks: Marks) -> None:
    """Write what a report shows of single inputs into a run directory.

    Args:
        out: the directory.
        examples: titles and maps; nothing is written where there are none.
        marks: tags and importance of the heads.

    Raises:
        RunError: the file cannot be written.
    """
    if examples:
        write_text(as_json(viewer_data(examples, marks, most_bytes=MOST_BYTES)), out / FILE)


def forget(out: Path) -> None:
    """Remove what an earlier run in a directory showed: a report of the new one must not show it.

    Args:
        out: the directory.

    Raises:
        RunError: it cannot be removed.
    """
    remove([out / FILE])


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
