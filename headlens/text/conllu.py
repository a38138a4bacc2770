"""Reads CoNLL-U files, with their entity marks, into a Corpus; errors name the file and the line."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from conllu.parser import parse_comment_line

from headlens.errors import CorpusError
from headlens.text.conllu_sentence import SentenceBuilder
from headlens.text.corpus import Corpus, Document, Mention, Sentence
from headlens.text.entities import read_mentions
from headlens.text.entity_marks import EntityFields, MarkedNode
from headlens.text.lines import Digest, numbered_lines

_Lines = list[tuple[int, str]]
# conllu drops a comment without a value unless its key has a parser.
_COMMENT_PARSERS = {"newdoc id": lambda key, value: (key, value)}


def read_conllu(paths: Sequence[Path]) -> Corpus:
    """Read CoNLL-U files sentence by sentence.

    Words are the syntactic words (integer ids); multiword tokens and empty nodes are none. Runs of blanks
    inside a column count as one. A file with `_` in every HEAD column has no trees and is accepted. Comment
    lines that a blank line parts from their sentence are counted to the next one.

    Args:
        paths: the files, in order; a document never spans two of them.

    Returns:
        The corpus.

    Raises:
        CorpusError: if a file cannot be read, holds no sentence or is malformed.
    """
    if not paths:
        raise CorpusError("Expected at least one CoNLL-U file, got none.", "Name one or more .conllu files.")
    digest = hashlib.sha256()
    readers = [_read_file(path, digest) for path in paths]
    documents = tuple(document for reader in readers for document in reader.documents)
    return Corpus(
        documents=documents,
        paths=tuple(str(path) for path in paths),
        sha256=digest.hexdigest(),
        has_trees=all(sentence.has_tree for document in documents for sentence in document.sentences),
        has_entities=any(document.mentions for document in documents),
        has_documents=any(reader.n_newdocs for reader in readers),
    )


@dataclass(slots=True)
class ConlluReader:
    """Collects the documents of one file, or of what is written as one.

    Args:
        path: the file, as it was named.
        stem: what documents without a name are called after.
        unit: what its lines are counted in, for messages.

    Attributes:
        documents: those that were read.
        n_newdocs: how many were marked by `# newdoc`.
    """

    path: str
    stem: str
    unit: str = "line"
    documents: list[Document] = field(default_factory=list, init=False)
    n_newdocs: int = field(default=0, init=False)
    fields: EntityFields | None = field(default=None, init=False)
    name: str = field(default="", init=False)
    sentences: list[Sentence] = field(default_factory=list, init=False)
    mentions: list[Mention] = field(default_factory=list, init=False)

    def read(self, lines: Iterable[tuple[int, str]]) -> ConlluReader:
        """Read numbered lines.

        Args:
            lines: of CoNLL-U, with their numbers.

        Returns:
            The reader itself.

        Raises:
            CorpusError: they are malformed.
        """
        self.name = self.stem
        for comments, rows in _blocks(lines):
            meta = self._comments(comments)
            builder = SentenceBuilder(self.path, self.unit)
            for number, line in rows:
                builder.add(number, line)
            sentence = builder.build(meta.get("sent_id") or "")
            if builder.marked:
                self._add_mentions(sentence, builder.nodes, builder.marked)
            self.sentences.append(sentence)
        self._close_document()
        return self

    def _comments(self, comments: _Lines) -> dict[str, str | None]:
        meta: dict[str, str | None] = {}
        for number, line in comments:
            for key, value in parse_comment_line(line, _COMMENT_PARSERS):
                meta[key] = value
                if key == "global.Entity" and value:
                    self.fields = EntityFields.parse(value, f"{self.path}, {self.unit} {number}")
        if "newdoc" in meta or "newdoc id" in meta:
            self._close_document()
            self.n_newdocs += 1
            self.name = meta.get("newdoc id") or f"{self.stem}-{self.n_newdocs}"
        return meta

    def _add_mentions(self, sentence: Sentence, nodes: list[int | None], marked: list[MarkedNode]) -> None:
        if self.fields is None:
            raise CorpusError(
                f"{marked[0].place}: expected a `# global.Entity` line before any Entity mark, found none.",
                "Add one that names the fields, such as `# global.Entity = eid-etype-head-other`.",
            )
        self.mentions += read_mentions(sentence, nodes, marked, self.fields, len(self.sentences))

    def _close_document(self) -> None:
        if self.sentences:
            mentions = sorted(self.mentions, key=lambda m: (m.sentence, m.head, m.start, m.end, m.entity))
            self.documents.append(Document(self.name, tuple(self.sentences), tuple(mentions)))
        self.sentences, self.mentions = [], []


def _read_file(path: Path, digest: Digest) -> ConlluReader:
    reader = ConlluReader(str(path), path.stem).read(numbered_lines(path, digest, "CoNLL-U"))
    if not reader.documents:
        raise CorpusError(
            f"{path}: expected CoNLL-U sentences, but the file holds no sentence.",
            "Name a file with one word a line, ten tab-separated columns each.",
        )
    return reader


def _blocks(lines: Iterable[tuple[int, str]]) -> Iterator[tuple[_Lines, _Lines]]:
    """Yield the comment lines and the word lines of each sentence."""
    comments: _Lines = []
    rows: _Lines = []
    for number, line in lines:
        if line.startswith("#"):
            comments.append((number, line))
        elif line.strip():
            rows.append((number, line))
        elif rows:
            yield comments, rows
            comments, rows = [], []
    if rows:
        yield comments, rows
