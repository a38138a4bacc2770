"""How rare words are: by the corpus, or by a file."""

from __future__ import annotations

import hashlib
import math
from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path

from headlens.corpus.corpus import Corpus, Word, numbered_lines
from headlens.errors import InputError
from headlens.util.formatting import decimal


def rarest(words: Sequence[Word], frequency: Mapping[str, float]) -> list[bool]:
    """Mark the two rarest words of a sentence, and all that are as rare as the second.

    Args:
        words: the sentence.
        frequency: of words in lower case; words that are not in it are the rarest.

    Returns:
        One mark per word; no marks where the sentence tells nothing: it has fewer than five words, or more
        than half of them are as rare.
    """
    counts = [frequency.get(word.form.lower(), 0.0) for word in words]
    if len(words) < 5:
        return [False] * len(words)
    limit = sorted(counts)[1]
    flags = [count <= limit for count in counts]
    return flags if 2 * sum(flags) <= len(words) else [False] * len(words)


def corpus_frequencies(corpus: Corpus) -> dict[str, float]:
    """Count the words of a corpus, in lower case.

    Args:
        corpus: the corpus.

    Returns:
        How often each word occurs.
    """
    return dict(Counter(word.form.lower() for _, sentence in corpus.sentences for word in sentence.words))


def read_frequencies(path: Path) -> dict[str, float]:
    """Read word frequencies.

    Args:
        path: text file, UTF-8: a word, a tab, a number on each line.

    Returns:
        Frequency by word, in lower case; those of spellings that differ in case are added up.

    Raises:
        InputError: the file cannot be read, or a line is no word with a number.
    """
    frequency: dict[str, float] = {}
    for number, row in table_rows(path, "frequencies"):
        word, count = row[0].lower(), decimal(row[1].strip()) if len(row) == 2 else math.nan
        if not word.strip() or not count >= 0:  # NaN is no number
            raise InputError(
                f"{path}, line {number}: expected a word, a tab and a number from 0, "
                f"found {chr(9).join(row)!r}.",
                "Write one word with its frequency on each line.",
            )
        frequency[word] = frequency.get(word, 0.0) + count
    return frequency


def table_rows(path: Path, what: str) -> list[tuple[int, list[str]]]:
    """Read the rows of a file whose cells are parted by tabs.

    Args:
        path: text file, UTF-8.
        what: what it holds, for messages.

    Returns:
        The number of each line, from 1, and its cells.

    Raises:
        CorpusError: the file cannot be read.
    """
    lines = numbered_lines(path, hashlib.sha256(), what)
    return [(number, line.split("\t")) for number, line in lines if line]
