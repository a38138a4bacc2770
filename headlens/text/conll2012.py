"""Reads CoNLL-2012 files (OntoNotes, WinoBias) and LitBank's: coreference, but no dependency trees."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

from headlens.errors import CorpusError
from headlens.text.conll2012_sentence import Row, build_sentence
from headlens.text.corpus import Corpus, Document, Mention, Sentence
from headlens.text.lines import Digest, numbered_lines

_KIND = "CoNLL-2012"
_BEGIN = "#begin document"
_PART = re.compile(r";\s*part\s+([0-9]{1,9})$")


def read_conll2012(paths: Sequence[Path]) -> Corpus:
    """Read CoNLL-2012 files.

    Documents stand between `#begin document (NAME); part 000` and `#end document`; every part is a document
    of its own, as its entity ids are. Columns are parted by tabs or blanks: the number of the word (3), the
    word (4), its Penn Treebank tag (5), its lemma (7) and its coreference marks (the last). The escapes for
    brackets and quotes (`-LRB-`, two backquotes) are undone. Heads and kinds of mentions are told by the
    rules in `headlens.text.treeless`, which know English only, and blanks are taken to stand between all
    words.

    Args:
        paths: the files, in order; a document never spans two of them.

    Returns:
        The corpus; no word has a head or a relation.

    Raises:
        CorpusError: if a file cannot be read, holds no sentence or is malformed.
    """
    if not paths:
        raise CorpusError(f"Expected at least one {_KIND} file, got none.", "Name one or more .conll files.")
    digest = hashlib.sha256()
    documents = tuple(document for path in paths for document in _FileReader(path).read(digest))
    return Corpus(
        documents=documents,
        paths=tuple(str(path) for path in paths),
        sha256=digest.hexdigest(),
        has_trees=False,
        has_entities=any(document.mentions for document in documents),
        has_documents=True,
    )


@dataclass(slots=True)
class _FileReader:
    """Collects the documents of one file."""

    path: Path
    documents: list[Document] = field(default_factory=list)
    name: str = ""
    begun: int | None = None  # the line where the open document begins
    rows: list[Row] = field(default_factory=list)
    sentences: list[Sentence] = field(default_factory=list)
    mentions: list[Mention] = field(default_factory=list)

    def read(self, digest: Digest) -> list[Document]:
        for number, line in numbered_lines(self.path, digest, _KIND):
            if line.startswith(_BEGIN):
                self._begin(number, line)
            elif line.startswith("#end document"):
                self._end(number)
            elif not line.strip():
                self._close_sentence()
            elif not line.startswith("#"):
                self._add(number, line)
        if self.begun is not None:
            raise CorpusError(
                f"{self.path}, line {self.begun}: expected `#end document` for the document that begins "
                "here, found the file's end.",
                "Add that line at its end, unless the file was cut off.",
            )
        if not self.documents:
            raise CorpusError(
                f"{self.path}: expected {_KIND} documents, but the file holds no sentence.",
                "Name a file with one word a line between `#begin document` and `#end document`.",
            )
        return self.documents

    def _begin(self, number: int, line: str) -> None:
        told = line.removeprefix(_BEGIN)
        rest = told.strip().removesuffix(";").rstrip()
        part = _PART.search(rest)
        name = rest[: part.start()].rstrip() if part else rest
        if not name or not told[0].isspace():
            raise CorpusError(
                f"{self.path}, line {number}: expected `#begin document (NAME); part 000`, found {line!r}.",
                "Name the document.",
            )
        if self.begun is not None:
            raise CorpusError(
                f"{self.path}, line {number}: expected `#end document` for the document that begins in line "
                f"{self.begun}, found another beginning.",
                "Add that line before this one.",
            )
        bare = name[1:-1] if name.startswith("(") and name.endswith(")") else name
        count = int(part[1]) if part else 0
        self.name, self.begun = (f"{bare} part {count}" if count else bare), number

    def _end(self, number: int) -> None:
        if self.begun is None:
            raise CorpusError(
                f"{self.path}, line {number}: expected `#begin document` before `#end document`, found none.",
                "Add `#begin document (NAME); part 000`, or remove this line.",
            )
        self._close_sentence()
        if self.sentences:
            mentions = sorted(self.mentions, key=lambda m: (m.sentence, m.head, m.start, m.end, m.entity))
            self.documents.append(Document(self.name, tuple(self.sentences), tuple(mentions)))
        self.begun, self.sentences, self.mentions = None, [], []

    def _add(self, number: int, line: str) -> None:
        if self.begun is None:
            raise CorpusError(
                f"{self.path}, line {number}: expected `#begin document (NAME); part 000` before the first "
                "word of a document, found none.",
                "Add that line and `#end document`; name CoNLL-U files .conllu.",
            )
        self.rows.append(Row.parse(line, str(self.path), number))

    def _close_sentence(self) -> None:
        if self.rows:
            sentence, mentions = build_sentence(self.rows, str(self.path), len(self.sentences))
            self.sentences.append(sentence)
            self.mentions += mentions
        self.rows = []
