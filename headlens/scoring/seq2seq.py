"""Batches of encoder-decoder models: pairs of texts for the encoder, the decoder and what is between."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from headlens.corpus.batches import TOKENS_AT_ONCE, Batch, make_batches, numbered
from headlens.corpus.corpus import Corpus
from headlens.corpus.inputs import AsTarget, Inputs, Item, as_decoder_input, sentence_inputs, start_id
from headlens.engine.local import Here, in_order
from headlens.errors import CorpusError, InputError
from headlens.model.heads import Site
from headlens.model.lens import Lens, check_ids
from headlens.model.seam import Block
from headlens.scoring.base import Context, Scorer, Tally
from headlens.scoring.passes import BatchSums, Reader, RunOptions, because, check_words, make_inputs, pad_id


@dataclass(frozen=True, slots=True)
class Written:
    """What the decoder writes.

    Args:
        corpus: the targets, sentence by sentence.
        scorers: scorers made for them; relations and frequencies are those of the targets.
    """

    corpus: Corpus
    scorers: Sequence[Scorer]


@dataclass(frozen=True, eq=False)
class ReadPairs:
    """The work of reading some pairs.

    Args:
        by_stack: who is shown what the heads of each stack look at.
        reading: how.
    """

    by_stack: Mapping[str, Sequence[Scorer]]
    reading: RunOptions

    def begin(self, lens: Lens) -> Callable[[Sequence[Pair]], BatchSums]:
        """See `headlens.engine.local.Work`."""
        by_stack = {stack: [one.bound(lens) for one in mine] for stack, mine in self.by_stack.items()}
        through = self.reading.through(lens)

        def read(pairs: Sequence[Pair]) -> BatchSums:
            units, sources = numbered([source for source, _ in pairs])
            local = [
                (source, target and replace(target, unit=source.unit))
                for source, (_, target) in zip(sources, pairs, strict=True)
            ]
            readers = {
                stack: Reader(mine, _sites(lens, stack), len(units), through)
                for stack, mine in by_stack.items()
            }
            _show(lens, readers, local, self.reading.block_size)
            sums = {stack: [tally.sums for tally in reader.tallies] for stack, reader in readers.items()}
            return BatchSums(units, sums, len(pairs))

        return read


def run_pairs(
    context: Context, scorers: Sequence[Scorer], reading: RunOptions, written: Written | None
) -> tuple[list[Tally], dict[str, Inputs]]:
    """Run every kind of input that the scorers ask for through an encoder-decoder model.

    Args:
        context: the model and the corpus.
        scorers: who is shown what the encoder's heads look at, and cross-attention.
        reading: how.
        written: what the decoder writes; without it only the encoder is scored.

    Returns:
        For each stack one tally per scorer, empty where the stack is not scored; and the inputs.

    Raises:
        CorpusError: nothing of the corpus can be used.
        InputError: inputs are too long, or targets are given for whole documents.
    """
    lens = context.lens
    reading.through(lens)  # what cannot be done is told before anything is read
    by_stack = {stack: list(scorers) for stack in lens.anatomy.stacks}
    if written is not None and reading.documents:
        raise InputError(
            "Targets belong to sentences, so whole documents cannot be read beside them.",
            "Leave --targets or --inputs documents out.",
        )
    if written is not None:
        own = {scorer.tag: scorer for scorer in written.scorers}
        by_stack["decoder"] = [own.get(scorer.tag, scorer) for scorer in scorers]
    tallies: dict[tuple[str, Scorer], Tally] = {}
    inputs = make_inputs(context, scorers, reading)
    for kind, made in inputs.items():
        pairs = _pairs(lens, kind, made, written, reading)
        mine = _shown(by_stack, kind, pairs[0][1] is not None, reading)
        work = ReadPairs(mine, replace(reading, engine=Here()))
        with reading.bar(kind, len(pairs)) as bar:
            results = reading.engine.run(lens, work, pair_batches(pairs, reading.batch_size))
            for one in in_order(results, lambda one: bar.update(one.n_inputs)):
                _add(tallies, one, mine, lens, made.n_units)
    every = [
        tallies.get((stack, scorer)) or _empty(lens, scorer, stack)
        for stack, mine in by_stack.items()
        for scorer in mine
    ]
    return every, inputs


def _add(
    tallies: dict[tuple[str, Scorer], Tally],
    batch: BatchSums,
    by_stack: Mapping[str, Sequence[Scorer]],
    lens: Lens,
    n_units: int,
) -> None:
    for stack, scorers in by_stack.items():
        for scorer, sums in zip(scorers, batch.sums[stack], strict=True):
            if (stack, scorer) not in tallies:
                tallies[stack, scorer] = Tally.like(scorer, _sites(lens, stack), n_units, sums)
            tallies[stack, scorer].add_units(batch.units, sums)


def _pairs(lens: Lens, kind: str, made: Inputs, given: Written | None, reading: RunOptions) -> list[Pair]:
    """Sources with their targets; repeated tokens are their own, windows and documents have none."""
    if kind == "repeats":
        return [(item, as_decoder_input(lens.model, item)) for item in made.items]
    if given is None or kind != "sentences":
        return [(item, None) for item in made.items]
    written = sentence_inputs(given.corpus, AsTarget(lens.tokenizer), reading.longest(lens, kind))
    by_place = {item.place: item for item in written.items}
    paired = [item for item in made.items if item.place in by_place]
    made.left_out.update({f"target {reason}": count for reason, count in written.left_out.items()})
    made.items = paired
    if not paired:
        raise CorpusError(
            f"No target can be used: {because(written)}.",
            "Allow longer inputs with --max-length, or give other targets.",
        )
    check_ids(lens, (item.encoded.inputs["input_ids"] for item in written.items))
    check_words(written.items, given.scorers, lens.anatomy.sites, reading.batch_size or 1)
    shifted = (as_decoder_input(lens.model, by_place[item.place]) for item in paired)
    return [(item, replace(target, unit=item.unit)) for item, target in zip(paired, shifted, strict=True)]


def _shown(
    by_stack: Mapping[str, Sequence[Scorer]], kind: str, paired: bool, reading: RunOptions
) -> dict[str, Sequence[Scorer]]:
    """Who is shown inputs of a kind; without targets only what the encoder does."""
    found = {
        stack: [scorer for scorer in scorers if stack in scorer.stacks and reading.kind(scorer) == kind]
        for stack, scorers in by_stack.items()
        if paired or stack == "encoder"
    }
    return {stack: scorers for stack, scorers in found.items() if scorers}


def _sites(lens: Lens, stack: str) -> tuple[Site, ...]:
    return tuple(site for site in lens.anatomy.sites if site.stack == stack)


def _show(lens: Lens, readers: Mapping[str, Reader], pairs: Sequence[Pair], block_size: int | None) -> None:
    source, inputs, views = views_of(lens, pairs)
    for stack, reader in readers.items():
        reader.begin(views[stack])

    def see(site: Site, block: Block) -> None:
        readers[site.stack].see(site, block, views[site.stack])

    sites = [site for site in lens.anatomy.sites if site.stack in readers]
    with torch.inference_mode(), lens.observe(see, sites, block_size):
        answer = lens.run({**source.inputs, **inputs})
        states = {
            "encoder": getattr(answer, "encoder_last_hidden_state", None),
            "decoder": getattr(answer, "last_hidden_state", None),
        }
        for stack, reader in readers.items():
            reader.end(states.get(stack))


def _empty(lens: Lens, scorer: Scorer, stack: str) -> Tally:
    return Tally.empty(scorer, _sites(lens, stack), 1, shared=True)


# ---- Batches of sources and targets, for encoder-decoder models


Pair = tuple[Item, Item | None]


@dataclass(frozen=True)
class CrossBatch(Batch):
    """What cross-attention connects: queries are tokens of the target, keys are tokens of the source.

    Args:
        source: the keys.
    """

    source: Batch | None = None

    @property
    def special(self) -> Tensor:
        """Which keys the tokenizer added, bool [input, source token]."""
        return self._keys.special

    @property
    def punctuation(self) -> Tensor:
        """Which keys belong to a punctuation mark, bool [input, source token]."""
        return self._keys.punctuation

    @property
    def first(self) -> Tensor:
        """Which key is the first of its input, bool [input, source token]."""
        return self._keys.first

    @property
    def _keys(self) -> Batch:
        assert self.source is not None  # given whenever one is made
        return self.source


def pair_batches(pairs: Sequence[Pair], batch_size: int | None) -> Iterator[list[Pair]]:
    """Put pairs of like length together.

    Args:
        pairs: sources and their targets.
        batch_size: pairs in a batch; by default as many as have 1,024 tokens.

    Yields:
        Batches, short pairs first.
    """
    group: list[Pair] = []
    for pair in sorted(pairs, key=_length):
        size = batch_size or max(1, TOKENS_AT_ONCE // _length(pair))
        if len(group) >= size:
            yield group
            group = []
        group.append(pair)
    yield group


def _length(pair: Pair) -> int:
    source, target = pair
    return max(len(source.encoded), len(target.encoded) if target else 0)


def views_of(lens: Lens, pairs: Sequence[Pair]) -> tuple[Batch, dict[str, Tensor], dict[str, Batch]]:
    """Make a batch of pairs.

    Args:
        lens: the model.
        pairs: sources and their targets; all have one, or none.

    Returns:
        The sources, the decoder's inputs, and the batch that each stack looks at.
    """
    items = [source for source, _ in pairs]
    (source,) = make_batches(items, pad_id(lens), len(items), ordered=True)
    written = [target for _, target in pairs if target is not None]
    if not written:
        start = torch.full((len(items), 1), start_id(lens.model))
        return source, {"decoder_input_ids": start}, {"encoder": source}
    (target,) = make_batches(written, pad_id(lens), len(written), ordered=True)
    inputs = {
        "decoder_input_ids": target.inputs["input_ids"],
        "decoder_attention_mask": target.inputs["attention_mask"],
    }
    cross = CrossBatch(target.items, target.inputs, source=source)
    return source, inputs, {"encoder": source, "decoder": target, "cross": cross}
