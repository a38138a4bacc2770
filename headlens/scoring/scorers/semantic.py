"""Semantic heads: attention between words that WordNet-like relations or a list of pairs bind."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any, ClassVar, Literal

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.nn.utils.rnn import pad_sequence

from headlens.corpus.batches import Batch
from headlens.corpus.corpus import InputFile
from headlens.corpus.inputs import Item
from headlens.errors import CorpusError, InputError
from headlens.model.devices import weight_of
from headlens.model.lens import Lens, check_ids
from headlens.scoring.base import Context, Counts, Gold, Rule, Scorer, Summary, Tally, WordView

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
    colour: ClassVar[str] = "#88CCEE"
    letter: ClassVar[str] = "M"  # for meaning
    meaning: ClassVar[str] = (
        "Content words give related content words more weight than unrelated ones at the same distances, "
        "and more than shuffled relations would give."
    )
    axis: ClassVar[str] = "mean attention weight on related words (0 to 1)"
    baseline: ClassVar[str] = "unrelated words at the same distances"
    words: ClassVar[Mapping[str, str]] = {"related": "weight on related words"}

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


# ---- Which words are related: by a table, or by the model's own input embeddings


NEIGHBOURS = 10
TABLE = 2**27  # bytes that a table of all pairs of words may take; with more words, pairs are searched for


@dataclass(frozen=True, eq=False)
class Relations:
    """A symmetric relation between numbered words, and shuffled copies of it.

    A shuffled relation is the same graph with the words permuted: every word keeps no more and no fewer
    relations than some word had.

    Args:
        numbers: the number of each word, in lower case.
        codes: sorted codes first x n + second of the related pairs, both ways round.
        permutations: one permutation of the words per shuffle, [shuffle, word].
    """

    numbers: dict[str, int]
    codes: NDArray[np.int64]
    permutations: NDArray[np.int64]

    @classmethod
    def make(cls, context: Context, words: Sequence[str], shuffles: int) -> Relations:
        """Relate words by the context's file of relations, else by the model's input embeddings.

        Args:
            context: the model, the corpus, the seed.
            words: the words, in lower case.
            shuffles: how many shuffled copies to make.

        Returns:
            The relations.

        Raises:
            InputError: the file cannot be read, or has nothing to do with the words.
        """
        numbers = {word: index for index, word in enumerate(words)}
        if context.relations is None:
            pairs = neighbours(context.lens, words)
        else:
            named = read_relations(context.relations)
            known = [(numbers[a], numbers[b]) for a, b in named if a in numbers and b in numbers]
            if not known:
                raise InputError(
                    f"No pair of {context.relations} is a pair of content words of the corpus.",
                    "Write lemmas of the corpus, two to a line, or leave --relations out.",
                )
            pairs = np.array(known, dtype=np.int64).reshape(-1, 2)
        both = np.concatenate([pairs, pairs[:, ::-1]])
        generator = np.random.default_rng(context.seed)
        shuffled = [generator.permutation(len(words)) for _ in range(shuffles)]
        permutations = np.array(shuffled, dtype=np.int64).reshape(shuffles, len(words))
        return cls(numbers, np.unique(both[:, 0] * len(words) + both[:, 1]), permutations)

    def number(self, word: str) -> int:
        """The number of a word."""
        return self.numbers[word.lower()]

    def related(self, pairs: NDArray[np.int64]) -> NDArray[np.bool_]:
        """Tell which pairs of numbers [pair, 2] are related, [pair]."""
        return self._holds(pairs[:, 0] * len(self.numbers) + pairs[:, 1])

    def shuffled(self, pairs: NDArray[np.int64]) -> NDArray[np.bool_]:
        """Tell which pairs of numbers [pair, 2] each shuffled relation relates, [shuffle, pair]."""
        first, second = self.permutations[:, pairs[:, 0]], self.permutations[:, pairs[:, 1]]
        first *= len(self.numbers)  # in place: these arrays are large
        first += second
        return self._holds(first)

    def _holds(self, codes: NDArray[np.int64]) -> NDArray[np.bool_]:
        if self._table is not None:
            found: NDArray[np.bool_] = self._table[codes]
            return found
        places = np.searchsorted(self.codes, codes)
        return np.asarray(np.append(self.codes, -1)[places] == codes)

    @cached_property
    def _table(self) -> NDArray[np.bool_] | None:
        """Whether each code is that of a related pair; None where there are too many words for a table."""
        size = len(self.numbers) ** 2
        if size > TABLE:
            return None
        table = np.zeros(size, dtype=np.bool_)
        table[self.codes] = True
        return table


def neighbours(lens: Lens, words: Sequence[str]) -> NDArray[np.int64]:
    """Pair each word with its ten nearest neighbours by input embeddings: places in `words` [pair, 2].

    A word is the mean of its pieces' embeddings, less the mean over all words; nearness is the cosine.
    """
    embeddings: Any = lens.model.get_input_embeddings()
    weight = weight_of(embeddings)
    assert weight is not None  # a text model looks its tokens up
    table = weight.float().cpu()
    if not words:
        return np.zeros((0, 2), dtype=np.int64)
    coded = lens.tokenizer([f" {word}" for word in words], add_special_tokens=False)["input_ids"]
    check_ids(lens, coded)
    means = [table[ids].mean(0) if ids else torch.zeros(table.shape[1]) for ids in coded]
    vectors = torch.stack(means)
    vectors = torch.nn.functional.normalize(vectors - vectors.mean(0), dim=1)
    count = min(NEIGHBOURS, len(words) - 1)
    pairs = []
    for start in range(0, len(words), 1024):
        near = vectors[start : start + 1024] @ vectors.T
        rows = torch.arange(len(near))
        near[rows, rows + start] = -2  # a word is no neighbour of its own
        best = near.topk(count, dim=1).indices
        pairs.append(torch.stack([(rows + start)[:, None].expand_as(best), best], dim=-1).flatten(0, 1))
    return torch.cat(pairs).numpy()


def read_relations(path: Path) -> list[tuple[str, str]]:
    """Read a table of related words."""
    pairs = []
    for number, line in InputFile(path, "relations", CorpusError).lines():
        if not line:
            continue
        row = line.split("\t")
        if len(row) != 2 or not all(cell.strip() for cell in row):
            raise InputError(
                f"{path}, line {number}: expected two words with a tab between, found {line!r}.",
                "Write one pair of related words on each line.",
            )
        pairs.append((row[0].strip().lower(), row[1].strip().lower()))
    return pairs
