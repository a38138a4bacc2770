"""Semantic heads: those whose content words look at related content words."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, ClassVar, Literal

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from headlens.scorers.base import Context, Counts, Gold, Rule, Scorer, WordView
from headlens.scorers.relations import Relations
from headlens.text.batches import Batch

if TYPE_CHECKING:
    from headlens.tally import Summary, Tally

Array = NDArray[np.float64]

CONTENT = frozenset({"NOUN", "PROPN", "VERB", "ADJ", "ADV"})
FARTHEST = 20  # distances beyond share a bucket, on each side
BUCKETS = 2 * FARTHEST + 1
SHUFFLES = 100


@dataclass(frozen=True, slots=True)
class _Pairs:
    """The pairs of content words of a batch that are neither neighbours nor of the same lemma.

    Args:
        inputs: index of the input, [pair].
        ends: the attending word and the attended word, [2, pair].
        bucket: signed distance, cut at `FARTHEST` on both sides, [pair].
        related: whether they are related, bool [pair].
        shuffled: whether they would be under each shuffled relation, bool [shuffle, pair].
    """

    inputs: Tensor
    ends: Tensor
    bucket: Tensor
    related: Tensor
    shuffled: Tensor


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
        n_inputs = len(batch.items)
        n = torch.zeros(n_inputs, len(self.measures))
        by_distance = torch.zeros(n_inputs, len(self.measures), BUCKETS)
        ones = torch.ones(len(pairs.inputs))
        n.index_put_((pairs.inputs, _column(pairs)), ones, accumulate=True)
        mine = pairs.related
        places = (pairs.inputs[mine], torch.zeros_like(pairs.bucket[mine]), pairs.bucket[mine])
        by_distance.index_put_(places, ones[mine], accumulate=True)
        distances = torch.nn.functional.one_hot(pairs.bucket, BUCKETS).float()
        # shuffles are summed over all inputs: the first stands for the batch
        by_distance[0, 1 + BUCKETS :] = pairs.shuffled.float() @ distances
        n[0, 1 + BUCKETS :] = pairs.shuffled.sum(1).float()
        return Gold(n, by_distance)

    def __call__(self, view: WordView) -> Counts:
        """Score one site."""
        pairs = view.batch.once(self._pairs)
        device = view.weights.device
        inputs, (source, target) = pairs.inputs.to(device), pairs.ends.to(device)
        weight = view.weights[inputs, :, source, target]  # [pair, head]
        n_heads = view.weights.shape[1]
        score = torch.zeros(len(view.batch.items), len(self.measures), n_heads, device=device)
        score.index_put_((inputs, _column(pairs).to(device)), weight, accumulate=True)
        score[0, 1 + BUCKETS :] = pairs.shuffled.to(weight) @ weight
        return Counts(score)

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
        inputs, ends, lemmas = [], [], []
        for index, item in enumerate(batch.items):
            content = [
                (place, self.relations.number(word.lemma or word.form))
                for place, word in enumerate(item.words)
                if word.upos in CONTENT
            ]
            for a, lemma_a in content:
                for b, lemma_b in content:
                    if abs(a - b) > 1 and lemma_a != lemma_b:
                        inputs.append(index)
                        ends.append((a, b))
                        lemmas.append((lemma_a, lemma_b))
        words = torch.tensor(ends, dtype=torch.long).reshape(-1, 2).T
        numbers = np.array(lemmas, dtype=np.int64).reshape(-1, 2)
        return _Pairs(
            torch.tensor(inputs, dtype=torch.long),
            words,
            (words[1] - words[0]).clamp(-FARTHEST, FARTHEST) + FARTHEST,
            torch.from_numpy(self.relations.related(numbers)),
            torch.from_numpy(self.relations.shuffled(numbers)),
        )


def content_lemmas(context: Context) -> list[str]:
    """List the lemmas of all content words of a corpus, in lower case, sorted."""
    words = (word for _, sentence in context.corpus.sentences for word in sentence.words)
    return sorted({(word.lemma or word.form).lower() for word in words if word.upos in CONTENT})


def _column(pairs: _Pairs) -> Tensor:
    """The measure that a pair belongs to: related, or unrelated at its distance."""
    return torch.where(pairs.related, 0, 1 + pairs.bucket)


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
