"""BLEU and chrF of a corpus as functions of sums over examples, equal to sacrebleu's numbers."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from headlens.benchmarks.metrics import Array
from headlens.errors import InputError

BLEU_COLUMNS = slice(0, 10)  # tokens of translation and reference; matched n-grams, n-grams, n = 1 to 4
CHRF_COLUMNS = slice(10, 28)  # for n = 1 to 6: character n-grams of translation and reference, matched ones


@dataclass(frozen=True, slots=True)
class CorpusScore:
    """A score of a whole corpus that depends on sums over its examples alone.

    It is no mean of scores of examples: short and long examples count as many n-grams as they have.

    Args:
        name: what it is called in tables.
        label: what it is called in figures.
        columns: the columns that are summed.
        formula: makes scores of sums [corpus, column].
        larger_is_better: whether a larger value is a better one.
    """

    name: str
    label: str
    columns: slice
    formula: Callable[[Array], Array]
    larger_is_better: bool = True

    def value(self, values: Array) -> float:
        """See `Metric.value`."""
        return float(self.formula(values[:, self.columns].sum(axis=0, keepdims=True))[0])

    def resampled(self, values: Array, drawn: Array) -> Array:
        """See `Metric.resampled`; the score of each resample's sums, not a mean of scores."""
        return self.formula(drawn @ values[:, self.columns])

    def linearised(self, values: Array) -> tuple[float, Array]:
        """See `Metric.linearised`; what the score loses when an example is left out (Efron 1982)."""
        mine = values[:, self.columns]
        n = len(mine)
        left_out = self.formula(mine.sum(axis=0) - mine)  # [example]
        influence = (left_out.mean() - left_out) * (n - 1) / n
        return self.value(values), influence - influence.mean()


def bleu(sums: Array) -> Array:
    """Compute BLEU (Papineni et al. 2002) as sacrebleu does by default (Post 2018).

    Words up to 4-grams, tokenizer 13a, one reference, precisions of 0 smoothed exponentially. It misleads
    for languages without blanks between words.

    Args:
        sums: see `BLEU_COLUMNS`, [corpus, 10].

    Returns:
        0 to 100, [corpus].
    """
    written, expected = sums[:, 0], sums[:, 1]
    right, total = sums[:, 2:6], sums[:, 6:10]
    halvings = np.cumsum(right == 0, axis=1)
    precision = np.where(right > 0, right, 0.5**halvings) / np.maximum(total, 1)
    with np.errstate(over="ignore"):
        penalty = np.exp(np.minimum(0, 1 - expected / np.maximum(written, 1)))
    score: Array = 100 * penalty * np.exp(np.log(precision).mean(axis=1))
    return np.where((right > 0).any(axis=1) & (total > 0).all(axis=1), score, 0.0)


def chrf(sums: Array) -> Array:
    """Compute chrF2 (Popovic 2015) as sacrebleu does by default: characters up to 6-grams, no blanks.

    Args:
        sums: see `CHRF_COLUMNS`, [corpus, 18].

    Returns:
        0 to 100, [corpus].
    """
    written, expected, right = (sums[:, place::3] for place in range(3))  # [corpus, order]
    used = (written > 0) & (expected > 0)
    orders = np.maximum(1, used.sum(axis=1))
    precision = np.where(used, right / np.maximum(written, 1), 0).sum(axis=1) / orders
    recall = np.where(used, right / np.maximum(expected, 1), 0).sum(axis=1) / orders
    some = precision + recall > 0
    score: Array = 500 * precision * recall / np.where(some, 4 * precision + recall, 1)
    return score


BLEU = CorpusScore("bleu", "BLEU", BLEU_COLUMNS, bleu)
CHRF = CorpusScore("chrf", "chrF", CHRF_COLUMNS, chrf)


class Ngrams:
    """Counts, with sacrebleu, what BLEU and chrF are made of.

    Args:
        references: one for each example.

    Raises:
        InputError: sacrebleu is not installed.
    """

    def __init__(self, references: Sequence[str]) -> None:
        sacrebleu = _sacrebleu()
        listed = [list(references)]
        self._kinds = (sacrebleu.BLEU(force=True, references=listed), sacrebleu.CHRF(references=listed))

    @property
    def signatures(self) -> dict[str, str]:
        """What sacrebleu calls these scores, version included."""
        names = (BLEU.name, CHRF.name)
        return {name: str(kind.get_signature()) for name, kind in zip(names, self._kinds, strict=True)}

    def count(self, translations: Sequence[str]) -> Array:
        """Count n-grams of translations and those that their references have too.

        Args:
            translations: one for each reference.

        Returns:
            float64 [example, 28]; see `BLEU_COLUMNS` and `CHRF_COLUMNS`.
        """
        counts = [kind._extract_corpus_statistics(list(translations), None) for kind in self._kinds]
        return np.hstack([np.array(rows, dtype=np.float64) for rows in counts])


def _sacrebleu() -> Any:
    try:
        from sacrebleu import metrics
    except ImportError:
        raise InputError(
            "The benchmark translation needs the package sacrebleu, which is not installed.",
            "Type: pip install 'headlens[translation]'",
        ) from None
    return metrics
