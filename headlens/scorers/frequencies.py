"""How rare words are: by the corpus, or by a file."""

from __future__ import annotations

import csv
from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path

from headlens.errors import InputError
from headlens.text.corpus import Corpus, Word


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
        try:
            word, count = row
            frequency[word.lower()] = frequency.get(word.lower(), 0.0) + float(count)
        except ValueError:
            raise InputError(
                f"{path}, line {number}: expected a word, a tab and a number, found {chr(9).join(row)!r}.",
                "Write one word with its frequency on each line.",
            ) from None
    return frequency


def table_rows(path: Path, what: str) -> list[tuple[int, list[str]]]:
    """Read the rows of a file whose cells are parted by tabs.

    Args:
        path: text file, UTF-8.
        what: what it holds, for the message.

    Returns:
        The number of each line, from 1, and its cells.

    Raises:
        InputError: the file cannot be read.
    """
    try:
        with path.open(encoding="utf-8-sig", newline="") as file:
            rows = csv.reader(file, delimiter="\t", quoting=csv.QUOTE_NONE)
            return [(number, row) for number, row in enumerate(rows, 1) if row]
    except (OSError, UnicodeDecodeError, csv.Error) as error:
        raise InputError(f"The {what} {path} cannot be read: {error}.", "Check the path.") from error
