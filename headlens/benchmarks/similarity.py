"""``similarity:FILE.tsv``: does the cosine of two texts' embeddings follow people's judgement?"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, ClassVar

import numpy as np
import torch
from torch.nn.functional import cosine_similarity

from headlens.benchmarks.base import (
    MIN_EXAMPLES,
    BenchmarkKind,
    BenchmarkOptions,
    Lot,
    longest_input,
    need_tokenizer,
)
from headlens.benchmarks.files import Row, read_rows
from headlens.benchmarks.metrics import Array, Correlation
from headlens.benchmarks.predict import embed, embed_batch, run_batches
from headlens.corpus.corpus import InputFile
from headlens.errors import InputError
from headlens.model.lens import Lens
from headlens.util.files import from_home
from headlens.util.formatting import decimal

COLUMNS = ("text_a", "text_b", "score")


@dataclass(frozen=True, eq=False)
class SimilarityBenchmark(BenchmarkKind):
    """Pairs of texts with a gold score, against the cosine of their embeddings.

    A text's embedding is the mean of the model's last hidden states over its tokens, special ones included,
    padding excluded: sentence-transformers' "mean" pooling (Reimers and Gurevych 2019). Of an
    encoder-decoder model the encoder alone is run. It misleads for a checkpoint that was trained with
    another pooling ([CLS], last token): its baseline is then low, and so is what heads can lose.

    Args:
        name: how the user writes it.
        ids: token ids of each distinct text.
        pairs: indices of the two texts of each pair.
        gold: score of each pair.
        standard: the same, less the mean over all pairs of the file, by their standard deviation.
        stacks: stacks of attention that are run.
        facts: what `run.json` says about it.
        options: how it is run.
    """

    name: str
    ids: Sequence[Sequence[int]]
    pairs: Sequence[tuple[int, int]]
    gold: Array
    standard: Array
    stacks: tuple[str, ...]
    facts: Mapping[str, Any]
    options: BenchmarkOptions = field(default_factory=BenchmarkOptions)
    metrics: ClassVar[tuple[Correlation, ...]] = (
        Correlation("spearman", "Spearman correlation with gold", ranked=True),
        Correlation("pearson", "Pearson correlation with gold", ranked=False),
    )
    kind: ClassVar[str] = "similarity"
    form: ClassVar[str] = "similarity:FILE.tsv"
    columns: ClassVar[tuple[tuple[str, ...], ...]] = (COLUMNS,)

    @classmethod
    def open(cls, target: str, lens: Lens, options: BenchmarkOptions) -> SimilarityBenchmark:
        """Read a file of pairs.

        Args:
            target: path of a tab-separated file with the columns text_a, text_b and score.
            lens: the model that will be measured.
            options: how to read and run it.

        Returns:
            The benchmark.

        Raises:
            InputError: the file is unfit; the message names file and line.
        """
        file = InputFile(from_home(target))
        rows = read_rows(file, COLUMNS, options.columns)
        if len(rows) < MIN_EXAMPLES:
            raise InputError(
                f"{file}: expected at least {MIN_EXAMPLES} pairs, found {len(rows)}.", "Give a longer file."
            )
        gold = np.array([_score(row) for row in rows])
        if np.ptp(gold) == 0:
            raise InputError(
                f"{file}: expected scores that differ, but all are {gold[0]:g}.", "Check the score column."
            )
        texts = _texts(rows)
        ids = _encode(lens, texts, longest_input(lens, options.max_length))
        number = {text: index for index, text in enumerate(texts)}
        pairs = [(number[row.cells[0]], number[row.cells[1]]) for row in rows]
        facts = {
            "kind": cls.kind,
            "path": str(file),
            "sha256": file.sha256,
            "examples": len(rows),
            "example": "pair of texts",
            "tokens": sum(map(len, ids)),
        }
        stacks = lens.anatomy.stacks
        stacks = ("encoder",) if lens.model.config.is_encoder_decoder else stacks
        standard = (gold - gold.mean()) / gold.std()
        return cls(f"{cls.kind}:{file.path.name}", ids, pairs, gold, standard, stacks, facts, options)

    def measure(self, lens: Lens) -> Array:
        """Embed every distinct text once and compare the pairs.

        Args:
            lens: the model, whatever is ablated in it now.

        Returns:
            Cosine and gold score, [pair, 2].
        """
        with torch.inference_mode():
            table = embed(lens, self.ids, self.options.batch_size)
            left, right = (table[[pair[side] for pair in self.pairs]] for side in (0, 1))
            cosine = cosine_similarity(left, right, dim=1)
        return np.column_stack([cosine.numpy(), self.gold])

    def losses(self, lens: Lens) -> Iterator[Lot]:
        """Minus the cosine times the standardised gold score, pair by pair.

        The mean over all pairs of the file is minus their covariance: Pearson's correlation times the
        standard deviation of the cosines. Scores are standardised over the file, also where only some of its
        pairs are taken.

        Args:
            lens: the model, whatever is changed in it now.

        Yields:
            Losses of some pairs after another.
        """
        standard = torch.from_numpy(self.standard)
        lengths = [2 * max(len(self.ids[side]) for side in pair) for pair in self.pairs]

        def work(group: list[int]) -> Lot:
            rows = [self.ids[self.pairs[index][side]] for side in (0, 1) for index in group]
            left, right = embed_batch(lens, rows).chunk(2)
            examples = torch.tensor(group)
            loss = -standard[examples].to(left) * cosine_similarity(left, right, dim=1)
            return Lot(examples.repeat(2), examples, loss)

        size = self.options.batch_size
        for _, lot in run_batches(lens, lengths, work, size and max(1, size // 2)):
            yield lot

    def warn(self, baseline: Array) -> tuple[str, ...]:
        """Say what looks wrong about the model without ablation.

        Args:
            baseline: per-example values without ablation.

        Returns:
            A sentence if all cosines are the same.
        """
        if np.isfinite(self.metrics[0].value(baseline)):
            return ()
        return (
            f"Without ablation all cosines of {self.name} are {baseline[0, 0]:.4f}: there is nothing to "
            "correlate. Check that the two texts of a pair differ.",
        )

    @property
    def input_keys(self) -> Sequence[tuple[int, int]]:
        """Which two texts each pair has."""
        return self.pairs

    @property
    def to_show(self) -> Sequence[Sequence[int]]:
        """Token ids of what the model reads."""
        return self.ids

    def take(self, examples: Sequence[int]) -> SimilarityBenchmark:
        """See `Benchmark.take`."""
        pairs = [self.pairs[example] for example in examples]
        used = sorted({text for pair in pairs for text in pair})
        number = {text: index for index, text in enumerate(used)}
        ids = [self.ids[text] for text in used]
        facts = {**self.facts, "examples": len(pairs), "tokens": sum(map(len, ids))}
        return replace(
            self,
            ids=ids,
            pairs=[(number[left], number[right]) for left, right in pairs],
            gold=self.gold[list(examples)],
            standard=self.standard[list(examples)],
            facts=facts,
        )


def _texts(rows: Sequence[Row]) -> dict[str, str]:
    """Every distinct text, in order, with the place where it first stands."""
    places: dict[str, str] = {}
    for row in rows:
        for name, text in zip(COLUMNS[:2], row.cells[:2], strict=True):
            if not text:
                raise InputError(f"{row.place}: expected a text in the column {name}, found nothing.")
            places.setdefault(text, row.place)
    return places


def _score(row: Row) -> float:
    score = decimal(row.cells[2])
    if math.isnan(score):
        raise InputError(
            f"{row.place}: expected a number in the column score, found {row.cells[2]!r}.",
            "Correct the line, or choose the columns with --columns.",
        )
    return score


def _encode(lens: Lens, texts: Mapping[str, str], longest: int | None) -> list[list[int]]:
    ids: list[list[int]] = need_tokenizer(lens)(list(texts))["input_ids"]
    for row, place in zip(ids, texts.values(), strict=True):
        if not row:
            raise InputError(f"{place}: the tokenizer makes no token of a text.", "Correct the line.")
        if longest is not None and len(row) > longest:
            raise InputError(
                f"{place}: a text has {len(row)} tokens, and inputs may have {longest}.",
                "Shorten it; headlens cuts no text off.",
            )
    return ids
