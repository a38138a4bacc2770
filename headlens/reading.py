"""Running a corpus through a model under observation: blocks go to scorers, scorers add to tallies."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from math import isqrt

import torch
from torch import Tensor

from headlens.corpus.batches import Batch
from headlens.corpus.inputs import Item
from headlens.errors import InputError
from headlens.model.devices import Carrier
from headlens.model.finite import check_numbers, holds_none
from headlens.model.heads import Site
from headlens.model.lens import Lens
from headlens.model.seam import Block
from headlens.scorers.base import Scorer, TokenView, WordView
from headlens.tally import Tally

WORD_BYTES = 2**30  # attention from word to word, of all heads of a site, that is held at once


def check_words(
    items: Sequence[Item], scorers: Sequence[Scorer], sites: Sequence[Site], at_once: int
) -> None:
    """Refuse inputs of so many words that a map of them would not fit, before the model runs.

    Args:
        items: the inputs.
        scorers: who is shown them; only those that are shown words need whole maps.
        sites: where they look.
        at_once: inputs in a batch.

    Raises:
        InputError: the longest would take more than `WORD_BYTES`.
    """
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
        through: what every block passes before it is shown, `headlens.norm_lens` say.
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
        self._carrier = Carrier()
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
            check_states(states, self._batch, self._carrier)
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


def check_states(states: Tensor, batch: Batch, carrier: Carrier) -> None:
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
