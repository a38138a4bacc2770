"""Reads datasets as corpora: running text as plain text is read, rows of words as CoNLL-U is."""

from __future__ import annotations

import hashlib
import json
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass, field
from itertools import chain, islice
from pathlib import Path
from typing import Any

from headlens.errors import CorpusError
from headlens.text.chunks import chunks
from headlens.text.conllu import ConlluReader
from headlens.text.corpus import Corpus, Document, Origin
from headlens.text.hub import Place
from headlens.text.hub_columns import Columns, choose
from headlens.text.hub_library import told
from headlens.text.hub_opening import Opened, open_place
from headlens.text.hub_sentences import conllu_lines, is_word
from headlens.text.plain import LONGEST, find_parser

MOST = 100_000  # sentences that are read unless the user says how many
NO_WORDS = "rows without words, or with a blank one"
HEADLESS = "tokens without a head (multiword tokens, empty nodes)"


def read_dataset(
    place: Place, parser: str | None = None, columns: Sequence[str] = (), max_sentences: int | None = None
) -> Corpus:
    """Read a dataset.

    A row of running text is a document, read as a plain-text file is; so is each file of a dataset of .txt
    files. A row of words is a sentence, and the split is one document unless a column `comments` says where
    documents begin. Rows are read one after the other, and none beyond those that are wanted.

    Args:
        place: which.
        parser: "spacy:NAME" parses running text.
        columns: columns to read; by default they are found by name, see `choose`.
        max_sentences: stop as soon as so many are read; the last text may bring a few more.

    Returns:
        The corpus; its `sha256` is that of what was read, whatever files it stood in.

    Raises:
        CorpusError: it cannot be had or read, or has more than 100,000 sentences and `max_sentences` is None.
    """
    opened = open_place(place)
    reader = _Reader(opened, max_sentences)
    if opened.rows is None:
        return reader.of_files(parser)
    with closing(told(opened.place, opened.rows)) as rows:
        first = next(rows, None)
        if first is None:
            raise CorpusError(f"{opened.place} has no rows.", "Name another split.")
        chosen = choose(opened.place, first, opened.features, columns)
        every = chain([first], rows)
        return (
            reader.of_texts(chosen, every, parser) if chosen.running_text else reader.of_words(chosen, every)
        )


@dataclass(slots=True)
class _Reader:
    """Reads one split, and counts."""

    opened: Opened
    max_sentences: int | None
    n_rows: int = 0
    n_sentences: int = 0
    left_out: Counter[str] = field(default_factory=Counter)
    digest: Any = field(default_factory=hashlib.sha256)

    def of_words(self, columns: Columns, rows: Iterable[Mapping[str, Any]]) -> Corpus:
        name = str(self.opened.place)
        reader = ConlluReader(name, Path(self.opened.place.dataset).name, "row")
        reader.read(self._conllu(columns, rows))
        return self._corpus(reader.documents, columns.names.values(), None, reader.n_newdocs > 0)

    def _conllu(self, columns: Columns, rows: Iterable[Mapping[str, Any]]) -> Iterator[tuple[int, str]]:
        for number, row in self._wanted(rows):
            lines = list(conllu_lines(columns, number, row))
            n_words = sum(map(is_word, lines))
            self.left_out[HEADLESS] += len(row[columns.names["words"]]) - n_words if n_words else 0
            self.left_out[NO_WORDS] += not n_words
            self.n_sentences += n_words > 0
            for line in (*lines, "") if n_words else ():
                self.digest.update(f"{line}\n".encode())
                yield number, line

    def of_texts(self, columns: Columns, rows: Iterable[Mapping[str, Any]], parser: str | None) -> Corpus:
        parse, name = find_parser(parser), str(self.opened.place)
        documents = []
        for number, row in self._wanted(rows):
            text = columns.text(number, row)
            self.digest.update(json.dumps(text).encode())
            lines = ((number, line) for line in text.split("\n"))
            sentences = tuple(parse(chunks(lines, LONGEST), name))
            self.left_out[NO_WORDS] += not sentences
            self.n_sentences += len(sentences)
            if sentences:
                documents.append(Document(f"{Path(self.opened.place.dataset).name}-{number}", sentences, ()))
        return self._corpus(documents, columns.names.values(), parser, True)

    def of_files(self, parser: str | None) -> Corpus:
        parse = find_parser(parser)
        documents = []
        for _, file in self._wanted(self.opened.files):
            room = self._most + 1 - self.n_sentences
            lines = enumerate(self._lines(file), start=1)
            sentences = tuple(islice(parse(chunks(lines, LONGEST), file), room))
            self.n_sentences += len(sentences)
            if sentences:
                documents.append(Document(Path(file).stem, sentences, ()))
        self._check_most()
        return self._corpus(documents, ("text",), parser, False)

    def _lines(self, file: str) -> Iterator[str]:
        for line in self.opened.lines(file):
            self.digest.update(f"{line}\n".encode())
            yield line
        self.digest.update(b"\0")

    @property
    def _most(self) -> int:
        return MOST if self.max_sentences is None else self.max_sentences

    def _wanted(self, rows: Iterable[Any]) -> Iterator[tuple[int, Any]]:
        """Number the rows, and stop where enough sentences are read."""
        for row in rows:
            if self.n_sentences >= self._most:
                self._check_most(more=True)
                return
            self.n_rows += 1
            yield self.n_rows, row

    def _check_most(self, more: bool = False) -> None:
        if self.max_sentences is None and self.n_sentences + more > MOST:
            raise CorpusError(
                f"{self.opened.place} has more than {MOST:,} sentences, which take long and much memory.",
                f"Say how many of the first to read, as in --max-sentences {MOST}.",
            )

    def _corpus(
        self, documents: Sequence[Document], columns: Iterable[str], parser: str | None, marked: bool
    ) -> Corpus:
        place, sha256 = self.opened.place, self.digest.hexdigest()
        if not documents:
            raise CorpusError(f"{place} holds no word.", "Name another split, or other --columns.")
        trees = all(sentence.has_tree for document in documents for sentence in document.sentences)
        origin = Origin(
            place.dataset, place.config, str(place.split), self.opened.revision, tuple(columns),
            self.n_rows, self.opened.n_rows, dict(+self.left_out), sha256,
        )  # fmt: skip
        return Corpus(
            documents=tuple(documents),
            paths=(str(place),),
            sha256=sha256,
            has_trees=trees,
            has_entities=any(document.mentions for document in documents),
            has_documents=marked,
            parser=parser,
            datasets=(origin,),
        )
