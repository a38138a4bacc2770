"""The passes over a model that scorers ask for: sentences, windows of them, documents, random tokens."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from torch import Tensor
from tqdm import tqdm

from headlens.corpus.batches import Batch, make_batches, numbered
from headlens.corpus.inputs import Inputs, repeated_inputs, sentence_inputs, window_inputs
from headlens.engine.local import Engine, Here, in_order
from headlens.errors import CorpusError, InputError
from headlens.model.lens import Lens, check_ids, known_pad, longest_input, n_known, takes_positions
from headlens.norm_lens import NormLens
from headlens.reading import Reader, check_words
from headlens.scorers.base import Context, Scorer
from headlens.tally import Sums, Tally

WINDOW = 128  # tokens of consecutive sentences for coreference, as Clark et al. 2019
UNLIMITED = 2**20

Maker = Callable[[Context, int], Inputs]
MAKERS: Mapping[str, Maker] = {
    "sentences": lambda context, longest: sentence_inputs(context.corpus, context.lens.tokenizer, longest),
    "windows": lambda context, longest: window_inputs(context.corpus, context.lens.tokenizer, longest),
    "documents": lambda context, longest: window_inputs(context.corpus, context.lens.tokenizer, longest),
    "repeats": lambda context, longest: repeated_inputs(
        context.lens.tokenizer, longest, context.seed, n_known(context.lens)
    ),
}
"""What makes the inputs of each kind, no longer than a number of tokens."""


@dataclass(frozen=True, slots=True)
class Reading:
    """How inputs are run through a model.

    Args:
        batch_size: inputs at once; by default as many as hold 1,024 tokens.
        max_length: longest input in tokens; the model's own by default, 128 for windows of sentences.
        block_size: queries per block; by default as many as keep a block under 64 MiB.
        pad_left: pad on the left instead of on the right.
        quiet: show no progress bar.
        norms: look at shares of norms instead of weights, see `headlens.norm_lens`.
        engine: where batches are read.
        documents: show whole documents to scorers that have no need of sentences, cut between sentences where
            they are longer than `max_length`.
    """

    batch_size: int | None = None
    max_length: int | None = None
    block_size: int | None = None
    pad_left: bool = False
    quiet: bool = True
    norms: bool = False
    engine: Engine = field(default_factory=Here)
    documents: bool = False

    def kind(self, scorer: Scorer) -> str:
        """Find the kind of input that a scorer is shown, one of `MAKERS`."""
        return "documents" if self.documents and scorer.anywhere else scorer.reads

    def through(self, lens: Lens) -> NormLens | None:
        """Find what blocks pass before scorers see them.

        Raises:
            InputError: norms were asked for, and the model does not show the values that it reads.
        """
        return NormLens(lens) if self.norms else None

    def bar(self, kind: str, total: int) -> tqdm[Any]:
        """Show how many inputs of a kind have been read."""
        return tqdm(total=total, desc=f"Reading {kind}", unit=kind[:-1], disable=self.quiet)

    def longest(self, lens: Lens, kind: str) -> int:
        """Find the longest input of a kind, in tokens.

        Raises:
            InputError: more was asked for than the model takes.
        """
        limit = longest_input(lens) or UNLIMITED
        if self.max_length is not None and self.max_length > limit:
            raise InputError(
                f"The model takes at most {limit} tokens, not {self.max_length}.",
                f"Type --max-length {limit}.",
            )
        return self.max_length or (min(limit, WINDOW) if kind == "windows" else limit)


@dataclass(frozen=True, slots=True)
class BatchSums:
    """What reading a batch came to.

    Args:
        units: the units that its inputs belong to, each once, [unit].
        sums: of each scorer, over these units; by the name of the stack where stacks are read apart.
        n_inputs: how many inputs it had.
    """

    units: Tensor
    sums: Mapping[str, Sequence[Sums]]
    n_inputs: int


@dataclass(frozen=True, eq=False)
class ReadBatch:
    """The work of reading a batch.

    Args:
        scorers: who is shown what the heads look at.
        reading: how.
    """

    scorers: Sequence[Scorer]
    reading: Reading

    def begin(self, lens: Lens) -> Callable[[Batch], BatchSums]:
        """See `headlens.engine.local.Work`."""
        scorers = [scorer.bound(lens) for scorer in self.scorers]
        through = self.reading.through(lens)

        def read(batch: Batch) -> BatchSums:
            units, items = numbered(batch.items)
            reader = Reader(scorers, lens.anatomy.sites, len(units), through)
            reader.read(lens, [replace(batch, items=items)], self.reading.block_size)
            return BatchSums(units, {"": [tally.sums for tally in reader.tallies]}, len(items))

        return read


def run_passes(
    context: Context, scorers: Sequence[Scorer], reading: Reading
) -> tuple[list[Tally], dict[str, Inputs]]:
    """Run every kind of input that the scorers ask for through the model, once.

    Args:
        context: the model and the corpus.
        scorers: who is shown what the heads look at.
        reading: how.

    Returns:
        The sums of each scorer, and the inputs of each kind with what was left out of them.

    Raises:
        CorpusError: nothing of the corpus can be used.
        InputError: longer inputs were asked for than the model takes, or than maps of words are made of.
    """
    lens = context.lens
    reading.through(lens)  # what cannot be done is told before anything is read
    found: dict[Scorer, Tally] = {}
    inputs = make_inputs(context, scorers, reading)
    for kind, made in inputs.items():
        mine = [scorer for scorer in scorers if reading.kind(scorer) == kind]
        batches = make_batches(
            made.items, pad_id(lens), reading.batch_size, reading.pad_left, takes_positions(lens)
        )
        with reading.bar(kind, len(made.items)) as bar:
            results = reading.engine.run(lens, ReadBatch(mine, replace(reading, engine=Here())), batches)
            for one in in_order(results, lambda one: bar.update(one.n_inputs)):
                for scorer, sums in zip(mine, one.sums[""], strict=True):
                    if scorer not in found:
                        found[scorer] = Tally.like(scorer, lens.anatomy.sites, made.n_units, sums)
                    found[scorer].add_units(one.units, sums)
    return [found[scorer] for scorer in scorers], inputs


def make_inputs(context: Context, scorers: Sequence[Scorer], reading: Reading) -> dict[str, Inputs]:
    """Make the inputs of every kind that scorers ask for, and find out whether they can be read.

    Args:
        context: the model and the corpus.
        scorers: who is shown them.
        reading: how.

    Returns:
        The inputs by kind.

    Raises:
        CorpusError: there are none of a kind.
        InputError: they are too long.
    """
    lens, inputs = context.lens, {}
    for kind in dict.fromkeys(map(reading.kind, scorers)):
        mine = [scorer for scorer in scorers if reading.kind(scorer) == kind]
        made = inputs[kind] = MAKERS[kind](context, reading.longest(lens, kind))
        if not made.items:
            raise CorpusError(
                f"No sentence of {context.corpus.paths[0]} can be used: {because(made)}.",
                "Allow longer inputs with --max-length, or give another corpus.",
            )
        check_ids(lens, (item.encoded.inputs["input_ids"] for item in made.items))
        check_words(made.items, mine, lens.anatomy.sites, reading.batch_size or 1)
    return inputs


def pad_id(lens: Lens) -> int:
    """Find the id that fills a batch up; the attention mask hides it, so any will do where there is none."""
    return known_pad(lens, int(lens.tokenizer.pad_token_id or 0))


def because(inputs: Inputs) -> str:
    """Say why inputs were left out."""
    return ", ".join(f"{count} {reason}" for reason, count in inputs.left_out.items()) or "it is empty"
