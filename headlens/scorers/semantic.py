"""Semantic heads: those whose content words look at related content words."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, ClassVar, Literal

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.nn.utils.rnn import pad_sequence

from headlens.corpus.batches import Batch
from headlens.corpus.inputs import Item
from headlens.scorers.base import Context, Counts, Gold, Rule, Scorer, WordView
from headlens.scorers.relations import Relations

if TYPE_CHECKING:
    from headlens.tally import Summary, Tally

Array = NDArray[np.float64]
Numbers = NDArray[np.int64]

CONTENT = frozenset({"NOUN", "PROPN", "VERB", "ADJ", "ADV"})
FARTHEST = 20  # distances beyond share a bucket, on each side
BUCKETS = 2 * FARTHEST + 1
SHUFFLES = 100


@dataclass(frozen=True, slots=True)
class _Pairs:
    """The pairs of content words of a batch that are neither neighbours nor of the same lemma.

    A pair counts for the relation or, by its distance, for none; and for every shuffled relation that relates
    it. Each entry is a pair and what it counts for; inputs with fewer entries are filled up.

    Args:
        cells: place of the pair among the attention weights, attending word x words + attended word,
            [input, entry].
        columns: the measure that it counts for, one past the last where nothing is, [input, entry].
        buckets: signed distance, cut at `FARTHEST` on both sides, [input, entry].
    """

    cells: Tensor
    columns: Tensor
    buckets: Tensor


@dataclass(frozen=True)
class Semantic(Scorer):
    """Mean weight from a content word to a related content word, neighbours and equal lemmas aside.

    Two words are related if a table says so, or if one is among the ten nearest neighbours of the other in
    the model's own input embeddings, among the content words of the corpus. Baseline: the mean weight
    between unrelated content words at the same distances, taken from the other half of the units. The
    effect must also be above the 99th percentile of what relations with shuffled words give.

    Args:
        relations: who is related.
    """

    relations: Relations = field(compare=False)
    tag: ClassVar[str] = "semantic"
    rules: ClassVar[Mapping[str, Rule]] = {"semantic": Rule("effect", 0.0, strict=True)}
    level: ClassVar[Literal["words"]] = "words"
    needs: ClassVar[tuple[str, ...]] = ("parts of speech",)
    n_baselines: ClassVar[int] = BUCKETS  # here: pairs counted by distance

    @classmethod
    def make(cls, context: Context) -> Semantic:
        """Take relations from a file, or from the model's input embeddings."""
        return cls(Relations.make(context, content_lemmas(context), SHUFFLES))

    @property
    def measures(self) -> tuple[str, ...]:
        """Weights that are summed up: related pairs, unrelated ones by distance, shuffled relations."""
        unrelated = (f"unrelated@{distance}" for distance in range(-FARTHEST, FARTHEST + 1))
        return ("related", *unrelated, *(f"shuffled@{number}" for number in range(SHUFFLES)))

    def gold(self, batch: Batch) -> Gold:
        """Count pairs: related ones of each input, unrelated ones by distance, those of each shuffle."""
        pairs = batch.once(self._pairs)
        n_measures = len(self.measures)
        places = pairs.columns * BUCKETS + pairs.buckets  # [input, entry]
        counts = torch.zeros(len(batch.items), (n_measures + 1) * BUCKETS)
        counts.scatter_add_(1, places, torch.ones(places.shape))
        by_distance = counts.view(-1, n_measures + 1, BUCKETS)[:, :-1]
        return Gold(by_distance.sum(-1), by_distance)

    def __call__(self, view: WordView) -> Counts:
        """Score one site."""
        pairs = view.batch.on(view.weights.device, self._pairs)
        n_heads = view.weights.shape[1]
        cells, columns = (x[:, None].expand(-1, n_heads, -1) for x in (pairs.cells, pairs.columns))
        weights = view.weights.flatten(2).gather(2, cells)  # [input, head, entry]
        score = weights.new_zeros(*weights.shape[:2], len(self.measures) + 1)
        return Counts(score.scatter_add_(2, columns, weights)[..., :-1].transpose(1, 2))

    def summarise(self, tally: Tally) -> list[Summary]:
        """Hold related pairs against unrelated ones at the same distances, and against shuffles."""
        from headlens.tally import Summary

        score, counts = tally.score.numpy(), tally.n[:, :, 0].numpy()
        by_distance = tally.baseline[:, :, 0].numpy()
        unrelated, apart = score[:, 1 : 1 + BUCKETS], counts[:, 1 : 1 + BUCKETS]
        overall = _means(unrelated, apart, None)
        baseline = np.empty_like(score[:, 0])
        half = np.arange(len(score)) % 2
        for mine in (0, 1):
            usual = _means(unrelated[half != mine], apart[half != mine], overall)  # [distance, head]
            baseline[half == mine] = by_distance[half == mine, 0] @ usual
        n = np.repeat(counts[:, :1], score.shape[2], axis=1)
        with np.errstate(invalid="ignore", divide="ignore"):
            beaten = baseline.sum(0) / n.sum(0) + _limit(score, counts, by_distance, overall)
        return [Summary("related", score[:, 0], n, baseline, beaten[:, None])]

    def _pairs(self, batch: Batch) -> _Pairs:
        inputs = [self._entries(item) for item in batch.items]
        nothing = (0, len(self.measures), 0)
        source, target, columns, buckets = zip(*inputs, strict=True)
        cells = [a * batch.n_words + b for a, b in zip(source, target, strict=True)]
        return _Pairs(
            *(
                pad_sequence([torch.from_numpy(x) for x in rows], batch_first=True, padding_value=fill)
                for rows, fill in zip((cells, columns, buckets), nothing, strict=True)
            )
        )

    def _entries(self, item: Item) -> tuple[Numbers, Numbers, Numbers, Numbers]:
        """Of each entry of an input: attending word, attended word, column and bucket."""
        places, lemmas = [], []
        for place, word in enumerate(item.words):
            if word.upos in CONTENT:
                places.append(place)
                lemmas.append(self.relations.number(word.lemma or word.form))
        ends = np.stack(np.triu_indices(len(places), 1))  # each pair once, [2, pair]
        words, numbers = (np.array(x, dtype=np.int64)[ends] for x in (places, lemmas))
        counted = (words[1] - words[0] > 1) & (numbers[0] != numbers[1])
        words, numbers = words[:, counted], numbers[:, counted]
        related = self.relations.related(numbers.T)
        shuffle, moved = self.relations.shuffled(numbers.T).nonzero()
        pairs = np.concatenate([np.arange(len(related)), moved])  # the pair of each entry
        found = []
        for source, target in (words, words[::-1]):  # relations go both ways
            bucket = (target - source).clip(-FARTHEST, FARTHEST) + FARTHEST
            column = np.concatenate([np.where(related, 0, 1 + bucket), 1 + BUCKETS + shuffle])
            found.append((source[pairs], target[pairs], column, bucket[pairs]))
        source, target, column, bucket = (np.concatenate(both) for both in zip(*found, strict=True))
        return source, target, column, bucket


def content_lemmas(context: Context) -> list[str]:
    """List the lemmas of all content words of a corpus, in lower case, sorted."""
    words = (word for _, sentence in context.corpus.sentences for word in sentence.words)
    return sorted({(word.lemma or word.form).lower() for word in words if word.upos in CONTENT})


def _means(sums: Array, counts: Array, otherwise: Array | None) -> Array:
    """Mean weight of unrelated pairs by distance, [distance, head]; where there are none, as otherwise."""
    total = counts.sum(0)[:, None]
    with np.errstate(invalid="ignore", divide="ignore"):
        means = np.where(total > 0, sums.sum(0) / total, 0 if otherwise is None else otherwise)
    return np.asarray(means, dtype=np.float64)


def _limit(score: Array, counts: Array, by_distance: Array, usual: Array) -> Array:
    """The 99th percentile of the effects of shuffled relations, [head]; 0 where there are none."""
    shuffles = slice(1 + BUCKETS, None)
    n = counts[:, shuffles].sum(0)
    gains = score[:, shuffles].sum(0) - by_distance[:, shuffles].sum(0) @ usual
    if not (n > 0).any():
        return np.zeros(score.shape[2])
    return np.asarray(np.percentile(gains[n > 0] / n[n > 0, None], 99, axis=0), dtype=np.float64)
