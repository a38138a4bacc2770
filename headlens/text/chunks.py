"""Running text in pieces that know their lines: paragraphs, sentences by rule, and parts of long ones."""

from __future__ import annotations

import re
from bisect import bisect_right
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

_ENDING = re.compile(
    # not from the middle of a row of dots: trying each of them would take for ever
    "(?<![.!?\u2026\u0964\u06d4\u061f])[.!?\u2026\u0964\u06d4\u061f]+[\"'\u201d\u2019\u00bb)\\]]*(?=\\s)"
    "|[\u3002\uff01\uff1f]+[\u300d\u300f\uff09\u201d\u2019]*"
)
_ABBREVIATED = re.compile(
    r"(?:^|[\s(\"'\u201c\u2018])(?:[A-Z]|Mrs?|Ms|Messrs|Drs?|Prof|St|Rev|Hon|Gen|Col|Capt|Lt|Sgt|Jr|Sr|Esq"
    r"|vs|etc|cf|Nos?|e\.g|i\.e|a\.m|p\.m)\.$"
)


@dataclass(frozen=True, slots=True)
class Chunk:
    """Some running text with single blanks, and where it stands in its file.

    Args:
        text: the text; its lines are joined with blanks.
        starts: where in `text` each line of the file begins, from 0 on.
        numbers: the 1-based numbers of those lines.
    """

    text: str
    starts: tuple[int, ...]
    numbers: tuple[int, ...]

    def line(self, place: int) -> int:
        """Tell the number of the line that a character of the text stands on."""
        return self.numbers[bisect_right(self.starts, place) - 1]

    def part(self, start: int, end: int) -> Chunk:
        """Cut a part out, without blanks at its ends; it must not be all blank."""
        text = self.text[start:end]
        start += len(text) - len(text.lstrip())
        inside = range(bisect_right(self.starts, start) - 1, bisect_right(self.starts, end - 1))
        starts = tuple(max(self.starts[index] - start, 0) for index in inside)
        return Chunk(text.strip(), starts, tuple(self.numbers[index] for index in inside))


def chunks(lines: Iterable[tuple[int, str]], longest: int) -> Iterator[Chunk]:
    """Make chunks of the lines of a file.

    Args:
        lines: the lines with their numbers.
        longest: how many characters a chunk may have.

    Yields:
        One chunk for a paragraph (blank lines part them), runs of blanks made one. A longer paragraph is cut
        between sentences, and a sentence that is longer itself between words.
    """
    texts: list[str] = []
    numbers: list[int] = []
    for number, line in lines:
        text = " ".join(line.split())
        if text:
            texts.append(text)
            numbers.append(number)
        elif texts:
            yield from _pieces(_joined(texts, numbers), longest)
            texts, numbers = [], []
    if texts:
        yield from _pieces(_joined(texts, numbers), longest)


def sentence_spans(text: str) -> Iterator[tuple[int, int]]:
    """Find the sentences of a text by the rule that `headlens.text.plain.read_plain` states.

    Args:
        text: the text, with single blanks.

    Yields:
        (start, end) of every sentence, in order; blanks between sentences belong to the later one.
    """
    start = 0
    for ending in _ENDING.finditer(text):
        end = ending.end()
        goes_on = text[end : end + 1] == " " and text[end + 1 : end + 2].islower()
        if not goes_on and not _ABBREVIATED.search(text, max(start, end - 12), end):
            yield start, end
            start = end
    if text[start:].strip():
        yield start, len(text)


def _joined(texts: Sequence[str], numbers: Sequence[int]) -> Chunk:
    starts, place = [], 0
    for text in texts:
        starts.append(place)
        place += len(text) + 1
    return Chunk(" ".join(texts), tuple(starts), tuple(numbers))


def _pieces(chunk: Chunk, longest: int) -> Iterator[Chunk]:
    if len(chunk.text) <= longest:
        yield chunk
        return
    begin = last = 0
    for start, end in sentence_spans(chunk.text):
        if end - begin > longest and last > begin:
            yield chunk.part(begin, last)
            begin = start
        while end - begin > longest:
            blank = chunk.text.rfind(" ", begin + 1, begin + longest)
            cut = blank if blank > 0 else begin + longest
            yield chunk.part(begin, cut)
            begin = cut
        last = end
    if begin < last:
        yield chunk.part(begin, last)
