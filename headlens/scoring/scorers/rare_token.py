"""Rare-token heads: attention to the rarest word of a sentence."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import ClassVar

import torch
from torch import Tensor

from headlens.corpus.batches import Batch, pad
from headlens.corpus.corpus import Corpus, InputFile, Word
from headlens.errors import CorpusError, InputError
from headlens.model.devices import moved
from headlens.scoring.base import Context, Counts, Gold, Rule, Scorer, TokenView, unique_argmax
from headlens.util.formatting import decimal

TENTHS = 10


@dataclass(frozen=True)
class RareToken(Scorer):
    """Share of tokens whose largest weight falls on one of the two rarest words of their sentence.

    After Voita et al. 2019. Words as rare as the second rarest count with it. Sentences of fewer than five
    words, and those in which more than half of the words are as rare, tell nothing and are not counted.
    Special tokens neither look nor are looked at. Baseline, and each head has its own: chance at matched
    positions, which is the number of rare words' tokens among those a token may see, times how much rarer
    words are where its largest weight falls, over the sum of that over all it may see. So a head that always
    looks at the end, where rare words often stand, gains nothing, nor does a token that sees but one. It is
    counted over tokens, not words: rare words have more pieces, and any head with even weights would seem to
    look at them if the pieces were added up.

    Args:
        frequency: of each word, in lower case; words that are not in it are the rarest.
        rare_share: by tenth of a sentence, how much rarer than at random its words are (1: as at random).
    """

    frequency: Mapping[str, float] = field(default_factory=dict, compare=False)
    rare_share: tuple[float, ...] = (1.0,) * TENTHS
    tag: ClassVar[str] = "rare-token"
    rules: ClassVar[Mapping[str, Rule]] = {"rare-token": Rule("effect", 0.10)}
    colour: ClassVar[str] = "#999933"
    letter: ClassVar[str] = "R"
    meaning: ClassVar[str] = (
        "The head's largest weights fall on the two rarest words of a sentence, 10 points more often than "
        "chance at matched positions."
    )
    axis: ClassVar[str] = "share of queries (0 to 1)"
    baseline: ClassVar[str] = "chance at the same positions"
    words: ClassVar[Mapping[str, str]] = {"rare-token": "largest weights on the rarest words"}

    @classmethod
    def make(cls, context: Context) -> RareToken:
        """Count the words of the corpus, or read their frequencies from a file."""
        if context.frequencies is None:
            frequency = corpus_frequencies(context.corpus)
        else:
            frequency = read_frequencies(context.frequencies)
            if not any(word in frequency for word in corpus_frequencies(context.corpus)):
                raise InputError(
                    f"{context.frequencies} has no word of the corpus.",
                    "Give frequencies of the corpus's language, or leave --frequencies out.",
                )
        return cls(frequency, rare_shares(context.corpus, frequency))

    @property
    def measures(self) -> tuple[str, ...]:
        """One measure."""
        return ("rare-token",)

    def __call__(self, view: TokenView) -> Counts:
        """Score one block."""
        rare, ratio, telling = self._keys(view)
        counted, share = view.once(self._asking)
        chosen = unique_argmax(view.pattern * telling[:, None, None])  # [input, head, query]
        made, place = (chosen >= 0) & counted[:, None], chosen.clamp(min=0)

        def at(values: Tensor) -> Tensor:
            return values[:, None].expand(-1, place.shape[1], -1).gather(2, place)

        right = (at(rare) * made).sum(-1)
        chance = ((share[:, None] * at(ratio)).clamp(max=1) * made).sum(-1)
        n = counted.sum(-1).float()
        return Counts(
            score=right[:, None],  # [input, 1, head]
            gold=Gold(n[:, None], torch.zeros_like(n)[:, None, None]),
            chance=chance[:, None],
        )

    def _keys(self, view: TokenView) -> tuple[Tensor, Tensor, Tensor]:
        """Of each key as `_tokens` has it, as numbers."""
        rare, ratio, telling = (view.keys(x).float() for x in view.batch.once(self._tokens))
        return rare, ratio, telling

    def _asking(self, view: TokenView) -> tuple[Tensor, Tensor]:
        """Which queries count; how rare what they see is, both [input, query].

        That is rare tokens over all tokens, each as rare as is usual at its place.
        """
        rare, ratio, telling = self._keys(view)
        seen = view.visible * telling[:, None]  # [input, query, key]
        usual = (seen * ratio[:, None]).sum(-1).clamp(min=torch.finfo(ratio.dtype).tiny)
        share = (seen * rare[:, None]).sum(-1) / usual
        tokens = view.batch.once(self._tokens)
        asking = moved(tokens[2][:, view.block.start : view.block.stop], seen.device)
        return asking & seen.any(-1), share

    def _tokens(self, batch: Batch) -> tuple[Tensor, Tensor, Tensor]:
        """Of each token, [input, token]: is its word rare, how rare words are there, does it count."""
        rare, ratio, telling = [], [], []
        for item in batch.items:
            flags = rarest(item.words, self.frequency)
            tells, tenths = any(flags), _tenths(len(flags))
            words = item.encoded.words
            rare.append([word is not None and flags[word] for word in words])
            ratio.append([0.0 if word is None else self.rare_share[tenths[word]] for word in words])
            telling.append([tells and word is not None for word in words])
        left = batch.pad_left
        return (
            pad(rare, False, torch.bool, left),
            pad(ratio, 0.0, torch.float32, left),
            pad(telling, False, torch.bool, left),
        )


def rare_shares(corpus: Corpus, frequency: Mapping[str, float]) -> tuple[float, ...]:
    """Find where in their sentences the rarest words stand."""
    found, expected = [0.0] * TENTHS, [0.0] * TENTHS
    for _, sentence in corpus.sentences:
        flags = rarest(sentence.words, frequency)
        share = sum(flags) / max(1, len(flags))
        for flag, tenth in zip(flags, _tenths(len(flags)), strict=True):
            found[tenth] += flag
            expected[tenth] += share
    return tuple(a / b if b else 1.0 for a, b in zip(found, expected, strict=True))


def _tenths(length: int) -> list[int]:
    return [TENTHS * place // length for place in range(length)]


# ---- How rare words are: by the corpus, or by a file


def rarest(words: Sequence[Word], frequency: Mapping[str, float]) -> list[bool]:
    """Mark the two rarest words of a sentence, and all that are as rare as the second.

    Words that `frequency` does not have are the rarest. No marks where the sentence tells nothing: it has
    fewer than five words, or more than half of them are as rare.
    """
    counts = [frequency.get(word.form.lower(), 0.0) for word in words]
    if len(words) < 5:
        return [False] * len(words)
    limit = sorted(counts)[1]
    flags = [count <= limit for count in counts]
    return flags if 2 * sum(flags) <= len(words) else [False] * len(words)


def corpus_frequencies(corpus: Corpus) -> dict[str, float]:
    """Count the words of a corpus, in lower case."""
    return dict(Counter(word.form.lower() for _, sentence in corpus.sentences for word in sentence.words))


def read_frequencies(path: Path) -> dict[str, float]:
    """Read word frequencies."""
    frequency: dict[str, float] = {}
    for number, line in InputFile(path, "frequencies", CorpusError).lines():
        if not line:
            continue
        row = line.split("\t")
        word, count = row[0].lower(), decimal(row[1].strip()) if len(row) == 2 else math.nan
        if not word.strip() or not count >= 0:  # NaN is no number
            raise InputError(
                f"{path}, line {number}: expected a word, a tab and a number from 0, found {line!r}.",
                "Write one word with its frequency on each line.",
            )
        frequency[word] = frequency.get(word, 0.0) + count
    return frequency
