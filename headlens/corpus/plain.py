"""Reads plain text, cut into sentences or parsed with spaCy."""

from __future__ import annotations

import hashlib
import re
from bisect import bisect_right
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from importlib import import_module
from itertools import tee
from pathlib import Path
from typing import Any

from headlens.corpus.corpus import Corpus, Document, InputFile, Sentence, Word
from headlens.corpus.words import word_spans
from headlens.errors import CorpusError

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
    """Make chunks of the lines of a file."""
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


def _sentence_spans(text: str) -> Iterator[tuple[int, int]]:
    """Find the sentences of a text by the rule that `headlens.corpus.plain.read_plain` states."""
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
    for start, end in _sentence_spans(chunk.text):
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


# ---- Reads plain text: sentences and words, by simple rules or by a parser


_KIND = "plain-text"
LONGEST = 5_000  # characters at once: a parser's memory grows with the text that it sees together

Parse = Callable[[Iterable[Chunk], str], Iterator[Sentence]]
"""Makes sentences of chunks; the second argument is the file, as it was named."""


def read_plain(paths: Sequence[Path], parser: str | None = None, digest: Any = None) -> Corpus:
    """Read plain-text files: every file is one document, and a blank line ends a sentence.

    Without a parser a sentence ends behind `.`, `!`, `?` or an ellipsis and the closing quotes and brackets
    that follow, where a blank but no small letter comes next; not behind single capital letters and a few
    English abbreviations ("Mr."). The full-width stops of Chinese and Japanese always end one. Words are
    those of `headlens.corpus.words.word_spans`: in a script without blanks a run of letters is taken for
    a word.

    With "spacy:NAME" that pipeline makes sentences, words, parts of speech, lemmas and trees. Such trees are
    silver: as good as that parser is. Labels stay as they are; English pipelines have ClearNLP's (`dobj`,
    `pobj`, `prep`), not UD's, and prepositions as heads. It sees at most 5,000 characters of a paragraph at
    once.
    """
    if not paths:
        raise CorpusError(f"Expected at least one {_KIND} file, got none.", "Name one or more .txt files.")
    parse = find_parser(parser)
    digest = digest or hashlib.sha256()
    documents = tuple(_read_file(path, digest, parse) for path in paths)
    return Corpus(
        documents=documents,
        paths=tuple(str(path) for path in paths),
        sha256=digest.hexdigest(),
        has_trees=parser is not None,
        has_entities=False,
        has_documents=False,
        parser=parser,
    )


def split_sentences(texts: Iterable[Chunk], path: str) -> Iterator[Sentence]:
    """Split chunks into sentences and words by the rules that `read_plain` states.

    Args:
        texts: the chunks.
        path: the file they come from, as it was named.

    Yields:
        The sentences, without trees.
    """
    for chunk in texts:
        for start, end in _sentence_spans(chunk.text):
            part = chunk.part(start, end)
            words = tuple(
                Word(part.text[a:b], "", "", None, "", part.text[b : b + 1] == " ")
                for a, b in word_spans(part.text)
            )
            yield Sentence(words, "", path, part.line(0))


def find_parser(parser: str | None) -> Parse:
    """Find what makes sentences of text."""
    if parser is None:
        return split_sentences
    kind, _, name = parser.partition(":")
    if kind != "spacy" or not name:
        raise CorpusError(
            f"There is no parser {parser!r}.", "Name a spaCy pipeline, as in spacy:en_core_web_sm."
        )
    return load(name)


def _read_file(path: Path, digest: Any, parse: Parse) -> Document:
    lines = InputFile(path, _KIND, CorpusError, digest).lines()
    sentences = tuple(parse(chunks(lines, LONGEST), str(path)))
    if not sentences:
        raise CorpusError(f"{path}: expected text, but the file holds no word.", "Name a file with text.")
    return Document(path.stem, sentences, ())


# ---- Sentences, words and silver trees from a spaCy pipeline


_AT_ONCE = 16  # chunks that spaCy works on together


def load(name: str) -> Callable[[Iterable[Chunk], str], Iterator[Sentence]]:
    """Load a spaCy pipeline."""
    try:
        spacy = import_module("spacy")
    except ImportError:
        raise CorpusError(
            f"The parser spacy:{name} needs spaCy, which is not installed.",
            "Type: pip install 'headlens[spacy]'",
        ) from None
    try:
        pipeline = spacy.load(name)
    except Exception as error:  # a pipeline is a package or directory of its own, and raises what it likes
        raise CorpusError(
            f"The spaCy pipeline {name!r} cannot be loaded: {_first_sentence(error)}.",
            "Install it (as in python -m spacy download en_core_web_sm), or name the directory of one.",
        ) from None
    return partial(_parse, pipeline, name)


def _parse(pipeline: Any, name: str, chunks: Iterable[Chunk], path: str) -> Iterator[Sentence]:
    own, read = tee(chunks)
    docs = pipeline.pipe((chunk.text for chunk in read), batch_size=_AT_ONCE)
    for chunk, doc in zip(own, docs, strict=True):
        if not (doc.has_annotation("DEP") and doc.has_annotation("SENT_START")):
            raise CorpusError(
                f"The spaCy pipeline {name!r} has no parser: it sets no dependencies.",
                f"Name one that has; this one has: {', '.join(pipeline.pipe_names) or 'nothing'}.",
            )
        for span in doc.sents:
            tokens = [token for token in span if not token.is_space]
            if tokens:
                yield Sentence(_words(tokens), "", path, chunk.line(tokens[0].idx))


def _words(tokens: list[Any]) -> tuple[Word, ...]:
    place = {token.i: index for index, token in enumerate(tokens)}
    return tuple(
        Word(
            form=token.text,
            lemma=token.lemma_,
            upos=token.pos_,
            head=-1 if token.head.i == token.i else place.get(token.head.i, -1),
            deprel=token.dep_.partition(":")[0],
            space_after=bool(token.whitespace_),
        )
        for token in tokens
    )


def _first_sentence(error: Exception) -> str:
    return (str(error) or type(error).__name__).split(". ")[0].split("\n")[0].rstrip(".")
