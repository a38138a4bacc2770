"""Which words are related: by a table, or by the model's own input embeddings."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from headlens.errors import InputError
from headlens.model.devices import weight_of
from headlens.model.lens import Lens, check_ids
from headlens.scorers.base import Context
from headlens.scorers.frequencies import table_rows

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
    """Pair each word with its nearest neighbours by the model's input embeddings.

    A word is the mean of its pieces' embeddings, less the mean over all words; nearness is the cosine.

    Args:
        lens: the model.
        words: the words.

    Returns:
        Pairs of places in `words`, ten for each word (fewer where there are fewer words), [pair, 2].
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
    """Read a table of related words.

    Args:
        path: text file, UTF-8: two words (lemmas) with a tab between on each line.

    Returns:
        The pairs, in lower case.

    Raises:
        InputError: the file cannot be read, or a line does not hold two words.
    """
    pairs = []
    for number, row in table_rows(path, "relations"):
        if len(row) != 2 or not all(cell.strip() for cell in row):
            raise InputError(
                f"{path}, line {number}: expected two words with a tab between, found {chr(9).join(row)!r}.",
                "Write one pair of related words on each line.",
            )
        pairs.append((row[0].strip().lower(), row[1].strip().lower()))
    return pairs
