"""Runs a model over a corpus once, and hands every block of every pattern to every scorer."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from math import isqrt
from typing import Any

import torch
from torch import Tensor
from tqdm import tqdm

from headlens.corpus.batches import TOKENS_AT_ONCE, Batch, make_batches, numbered
from headlens.corpus.corpus import Corpus
from headlens.corpus.inputs import (
    AsTarget,
    Inputs,
    Item,
    as_decoder_input,
    repeated_inputs,
    sentence_inputs,
    start_id,
    window_inputs,
)
from headlens.engine.local import Engine, Here, in_order
from headlens.errors import CorpusError, InputError
from headlens.model.devices import HostTransfer
from headlens.model.finite import check_numbers, holds_none
from headlens.model.heads import Site
from headlens.model.lens import Lens, check_ids, known_pad, longest_input, n_known, takes_positions
from headlens.model.seam import Block
from headlens.model.weights import handed_over
from headlens.scoring.base import Context, Scorer, Sums, Tally, TokenView, WordView

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
class RunOptions:
    """How inputs are run through a model.

    Args:
        batch_size: inputs at once; by default as many as hold 1,024 tokens.
        max_length: longest input in tokens; the model's own by default, 128 for windows of sentences.
        block_size: queries per block; by default as many as keep a block under 64 MiB.
        pad_left: pad on the left instead of on the right.
        quiet: show no progress bar.
        norms: look at shares of norms instead of weights, see `headlens.scoring.passes`.
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

    @property
    def asked(self) -> dict[str, Any]:
        """What a record says of it: all that can be chosen, but for where it runs and what is shown."""
        names = [one.name for one in fields(self) if one.name not in ("engine", "quiet")]
        return {name: getattr(self, name) for name in names}

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
class _BatchSums:
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
class _ReadBatch:
    """The work of reading a batch.

    Args:
        scorers: who is shown what the heads look at.
        reading: how.
    """

    scorers: Sequence[Scorer]
    reading: RunOptions

    def begin(self, lens: Lens) -> Callable[[Batch], _BatchSums]:
        """See `headlens.engine.local.Work`."""
        scorers = [scorer.bound(lens) for scorer in self.scorers]
        through = self.reading.through(lens)

        def read(batch: Batch) -> _BatchSums:
            units, items = numbered(batch.items)
            reader = Reader(scorers, lens.anatomy.sites, len(units), through)
            reader.read(lens, [replace(batch, items=items)], self.reading.block_size)
            return _BatchSums(units, {"": [tally.sums for tally in reader.tallies]}, len(items))

        return read


def run_passes(
    context: Context, scorers: Sequence[Scorer], reading: RunOptions
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
            results = reading.engine.run(lens, _ReadBatch(mine, replace(reading, engine=Here())), batches)
            for one in in_order(results, lambda one: bar.update(one.n_inputs)):
                for scorer, sums in zip(mine, one.sums[""], strict=True):
                    if scorer not in found:
                        found[scorer] = Tally.like(scorer, lens.anatomy.sites, made.n_units, sums)
                    found[scorer].add_units(one.units, sums)
    return [found[scorer] for scorer in scorers], inputs


def make_inputs(context: Context, scorers: Sequence[Scorer], reading: RunOptions) -> dict[str, Inputs]:
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
        _check_words(made.items, mine, lens.anatomy.sites, reading.batch_size or 1)
    return inputs


def pad_id(lens: Lens) -> int:
    """Find the id that fills a batch up; the attention mask hides it, so any will do where there is none."""
    return known_pad(lens, int(lens.tokenizer.pad_token_id or 0))


def because(inputs: Inputs) -> str:
    """Say why inputs were left out."""
    return ", ".join(f"{count} {reason}" for reason, count in inputs.left_out.items()) or "it is empty"


# ---- Running a corpus through a model under observation: blocks go to scorers, scorers add to tallies


WORD_BYTES = 2**30  # attention from word to word, of all heads of a site, that is held at once


def _check_words(
    items: Sequence[Item], scorers: Sequence[Scorer], sites: Sequence[Site], at_once: int
) -> None:
    """Refuse inputs of so many words that a map of them would not fit, before the model runs."""
    tags = [scorer.tag for scorer in scorers if scorer.level == "words"]
    longest = max(items, key=lambda item: len(item.words))
    each = 4 * min(at_once, len(items)) * max(site.n_heads for site in sites)  # bytes of a pair of words
    n = len(longest.words)
    if tags and each * n * n > WORD_BYTES:
        begin = " ".join(word.form for word in longest.words[:5])
        raise InputError(
            f"The input that begins {begin!r} has {n:,} words. Attention from each to each, which "
            f"{' and '.join(tags)} need, would take {each * n * n / 2**30:.1f} GiB, more than the "
            f"{WORD_BYTES / 2**30:g} GiB that are held at once.",
            f"Leave it out with --max-length {isqrt(WORD_BYTES // each)}, or these tags with --tags.",
        )


class Reader:
    """Shows what a model attends to, batch after batch, to some scorers.

    Args:
        scorers: who is shown.
        sites: where to look.
        n_units: number of units of the corpus.
        through: what every block passes before it is shown, `headlens.scoring.passes` say.
    """

    def __init__(
        self,
        scorers: Sequence[Scorer],
        sites: Sequence[Site],
        n_units: int,
        through: Callable[[Site, Block], Block] | None = None,
    ) -> None:
        self._scorers = scorers
        self._sites = tuple(sites)
        self._n_units = n_units
        self._through = through
        self._tallies: dict[Scorer, Tally] = {}
        self._words: dict[Site, Tensor] = {}
        self._carrier = HostTransfer()
        self._batch: Batch | None = None

    @property
    def tallies(self) -> list[Tally]:
        """The sums so far, one tally per scorer."""
        return [self._tallies[scorer] for scorer in self._scorers]

    def read(
        self,
        lens: Lens,
        batches: Iterable[Batch],
        block_size: int | None = None,
        progress: Callable[[int], object] | None = None,
    ) -> None:
        """Run batches through the model.

        Args:
            lens: the model.
            batches: the corpus.
            block_size: queries per block; by default as many as keep a block small.
            progress: called with the number of inputs after each batch.
        """
        batch: Batch

        def see(site: Site, block: Block) -> None:
            self.see(site, block, batch)

        with lens.observe(see, self._sites, block_size):
            for batch in batches:
                self.begin(batch)
                with torch.inference_mode():
                    answer = lens.run(batch.inputs)
                    self.end(getattr(answer, "last_hidden_state", None))
                if progress is not None:
                    progress(len(batch.items))

    def begin(self, batch: Batch) -> None:
        """Make ready for a batch: count its decisions, where they are the same for every site."""
        self._batch = batch
        self._words.clear()
        self._carrier.forget()
        for scorer in self._scorers:
            gold = scorer.gold(batch)
            if scorer not in self._tallies:
                self._tallies[scorer] = Tally.empty(scorer, self._sites, self._n_units, gold is not None)
            if gold is not None:
                self._tallies[scorer].add_shared(batch, gold, self._carrier)

    def see(self, site: Site, block: Block, batch: Batch) -> None:
        """Show a block of one site to the scorers."""
        block = _precise(block)
        block = block if self._through is None else self._through(site, block)
        tokens = TokenView(site, block, batch)
        check_numbers(site, block.pattern, tokens.counted, self._carrier)
        words = None
        if any(scorer.level == "words" for scorer in self._scorers):
            self._gather(site, block, batch)
            if block.stop == block.n_queries:
                words = WordView(site, self._take(site, batch), batch)
        for scorer in self._scorers:
            if scorer.level == "tokens":
                self._tallies[scorer].add(site, batch, scorer(tokens), self._carrier)
            elif words is not None:
                self._tallies[scorer].add(site, batch, scorer(words), self._carrier)

    def end(self, states: Tensor | None = None) -> None:
        """Bring what a device still holds of the batch, now that all its blocks were shown.

        Args:
            states: the last hidden states of its tokens, [input, token, width], where they are known.

        Raises:
            NotNumbersError: some of them are no numbers, though its attention is; it names the input.
        """
        if states is not None and self._batch is not None:
            _check_states(states, self._batch, self._carrier)
        self._carrier.arrive()

    def _gather(self, site: Site, block: Block, batch: Batch) -> None:
        """Add a block to the word-to-word sums of its site: the only thing kept between blocks.

        Words and one more, for what belongs to no word; rows of all inputs and heads below one another.
        """
        pattern = block.pattern.float()  # [input, head, query, key]
        n_inputs, n_heads, n_queries, n_keys = pattern.shape
        n = batch.n_words + 1
        owners: Tensor = batch.on(pattern.device, "owners")  # [input, token]
        keys = owners[:, None, None, :n_keys].expand_as(pattern)
        to_words = pattern.new_zeros(n_inputs, n_heads, n_queries, n).scatter_add_(-1, keys, pattern)
        tops = n * torch.arange(n_inputs * n_heads, device=pattern.device).view(n_inputs, n_heads, 1)
        rows = tops + owners[:, None, block.start : block.stop]  # [input, head, query]
        if site not in self._words:
            self._words[site] = pattern.new_zeros(n_inputs * n_heads * n, n)
        self._words[site].index_add_(0, rows.flatten(), to_words.flatten(0, 2))

    def _take(self, site: Site, batch: Batch) -> Tensor:
        """Attention from word to word, [input, head, word, word]: sums over queries become means."""
        n = batch.n_words + 1
        sums = self._words.pop(site).view(len(batch.items), -1, n, n)[:, :, :-1, :-1]
        pieces: Tensor = batch.on(sums.device, "n_pieces")  # [input, word]
        return sums / pieces.clamp(min=1)[:, None, :, None]


def _check_states(states: Tensor, batch: Batch, carrier: HostTransfer) -> None:
    """Refuse a model whose last hidden states are not numbers, though its attention may be.

    Args:
        states: of its tokens, [input, token, width].
        batch: what they belong to.
        carrier: brings the answer.

    Raises:
        NotNumbersError: some state of a token that is no padding is none; it names the input.
    """
    if states.shape[:2] != batch.real.shape:  # a family may put out fewer than it reads
        return
    broken = ~torch.isfinite(states.sum(-1, dtype=torch.float32)) & batch.on(states.device, "real")
    carrier.bring(broken.any(1), lambda found: _refuse(found, batch))


def _refuse(found: Tensor, batch: Batch) -> None:
    if bool(found.any()):
        begin = " ".join(word.form for word in batch.items[int(found.int().argmax())].words[:5])
        raise holds_none(f"The last hidden states of the input that begins {begin!r}")


def _precise(block: Block) -> Block:
    """The same block with weights in float32 where the model computes in half precision."""
    half = block.pattern.dtype in (torch.float16, torch.bfloat16)
    return replace(block, pattern=block.pattern.float()) if half else block


# ---- Norms instead of weights while a corpus is read: what each key adds, not how much it is looked at


class NormLens:
    """Puts shares of norms in the place of weights.

    A row of weights A_ij becomes |A_ij f(x_j)|, divided by its sum over the keys, where
    f(x) = (x W_V + b_V) W_O of the head (Kobayashi et al. 2020). Rows add up to 1 as those of weights do, so
    that every score keeps its range and its baseline; a row that hands over nothing is 0 throughout. It
    misleads where large parts cancel: lengths say nothing about directions.

    Args:
        lens: the model.

    Raises:
        InputError: the model does not show the values that its attention reads, or has no W_O.
    """

    def __init__(self, lens: Lens) -> None:
        outputs = {part.site: part.projections.output for part in lens.anatomy.parts}
        if not lens.anatomy.by_interface or not all(outputs.values()):
            raise InputError(
                f"The norms of {lens.anatomy.architecture} cannot be told: its attention does not show the "
                "values that it reads.",
                "Leave --lens norms out.",
            )
        self._outputs = {site: lens.model.get_submodule(path) for site, path in outputs.items()}

    def __call__(self, site: Site, block: Block) -> Block:
        """Turn a block of weights into one of shares of norms.

        Args:
            site: where.
            block: weights, with values.

        Returns:
            The same block with another pattern.
        """
        assert block.values is not None  # interface families show them
        lengths = self._lengths(site, block.values).to(block.pattern)
        norms = block.pattern * lengths[:, :, None]  # [input, head, query, key]
        total = norms.sum(-1, keepdim=True)
        return replace(block, pattern=norms / total.where(total > 0, 1))

    def _lengths(self, site: Site, values: Tensor) -> Tensor:
        n_inputs, n_groups, n_keys, width = values.shape
        rows = values.transpose(0, 1).reshape(n_groups, n_inputs * n_keys, width)
        lengths = handed_over(self._outputs[site], rows, site.n_heads)  # [head, input x key]
        return lengths.reshape(site.n_heads, n_inputs, n_keys).transpose(0, 1)


# ---- Batches of encoder-decoder models: pairs of texts for the encoder, the decoder and what is between


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
class _ReadPairs:
    """The work of reading some pairs.

    Args:
        by_stack: who is shown what the heads of each stack look at.
        reading: how.
    """

    by_stack: Mapping[str, Sequence[Scorer]]
    reading: RunOptions

    def begin(self, lens: Lens) -> Callable[[Sequence[Pair]], _BatchSums]:
        """See `headlens.engine.local.Work`."""
        by_stack = {stack: [one.bound(lens) for one in mine] for stack, mine in self.by_stack.items()}
        through = self.reading.through(lens)

        def read(pairs: Sequence[Pair]) -> _BatchSums:
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
            return _BatchSums(units, sums, len(pairs))

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
        work = _ReadPairs(mine, replace(reading, engine=Here()))
        with reading.bar(kind, len(pairs)) as bar:
            results = reading.engine.run(lens, work, _pair_batches(pairs, reading.batch_size))
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
    batch: _BatchSums,
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
    _check_words(written.items, given.scorers, lens.anatomy.sites, reading.batch_size or 1)
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
    source, inputs, views = _views_of(lens, pairs)
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
class _CrossBatch(Batch):
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


def _pair_batches(pairs: Sequence[Pair], batch_size: int | None) -> Iterator[list[Pair]]:
    """Put pairs of like length together."""
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


def _views_of(lens: Lens, pairs: Sequence[Pair]) -> tuple[Batch, dict[str, Tensor], dict[str, Batch]]:
    """Make a batch of pairs."""
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
    cross = _CrossBatch(target.items, target.inputs, source=source)
    return source, inputs, {"encoder": source, "decoder": target, "cross": cross}
