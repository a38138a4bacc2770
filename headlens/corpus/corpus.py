"""A corpus: documents of sentences of words, with trees, mentions and entities."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import Any, Literal

from headlens.errors import CorpusError, InputError
from headlens.util.files import IrregularFileError, open_regular

Kind = Literal["pronoun", "proper", "nominal"]

KINDS: dict[str, Kind] = {"PRON": "pronoun", "PROPN": "proper"}
"""The kind of a mention by the UPOS of its head word; every other UPOS makes it "nominal"."""


@dataclass(frozen=True, slots=True)
class Word:
    """One UD syntactic word.

    Args:
        form: the word as it stands in the text.
        lemma: its dictionary form, "" where the file has none.
        upos: its universal part of speech, "" where the file has none.
        head: 0-based index of its head word in the sentence, -1 for a root, None where there is no tree.
        deprel: the relation to the head without subtype ("nmod:poss" is "nmod"), "" where absent.
        space_after: whether a blank stands between this word and the next.
    """

    form: str
    lemma: str
    upos: str
    head: int | None
    deprel: str
    space_after: bool


@dataclass(frozen=True, slots=True)
class Sentence:
    """One sentence and where it was read.

    Args:
        words: its syntactic words in order.
        sent_id: the id that the file gives it, "" where it gives none.
        path: the file it was read from, as it was named.
        line: the 1-based number of the sentence's first word line in that file.
    """

    words: tuple[Word, ...]
    sent_id: str
    path: str
    line: int

    @property
    def forms(self) -> list[str]:
        """The forms of the words, in order."""
        return [word.form for word in self.words]

    @property
    def has_tree(self) -> bool:
        """Whether every word knows its head."""
        return all(word.head is not None for word in self.words)

    @property
    def text(self) -> str:
        """The forms joined with blanks where the file has blanks; none at the end.

        Where a multiword token is written otherwise than its words together (German "zum" for "zu" and
        "dem"), the words are what stands here.
        """
        return "".join(word.form + " " * word.space_after for word in self.words).rstrip(" ")

    def top_word(self, indices: Sequence[int]) -> int:
        """Find the head of a set of words by the tree.

        It is the word whose own head lies outside the set. Where several do (a span that is no subtree), it
        is the first of them that is no punctuation mark: English puts what modifies a noun phrase after it,
        and in every UD tree a conjunct, an apposition or a later part of a name follows its head.

        Args:
            indices: the words, in order; at least one, in a sentence that has a tree.

        Returns:
            The index of the head word.
        """
        inside = set(indices)
        tops = [index for index in indices if self.words[index].head not in inside]
        return next((index for index in tops if self.words[index].upos != "PUNCT"), tops[0])


@dataclass(frozen=True, slots=True)
class Mention:
    """One place in a document where an entity is named.

    Args:
        entity: the entity's id; ids mean something inside one document only.
        sentence: index of the sentence within the document.
        start: index of the mention's first word in the sentence.
        end: index of its last word, plus one; a discontinuous mention does not own every word between.
        head: index of its head word in the sentence.
        kind: "pronoun", "proper" or "nominal", by the head word's part of speech.
    """

    entity: str
    sentence: int
    start: int
    end: int
    head: int
    kind: Kind


@dataclass(frozen=True, slots=True)
class Document:
    """Consecutive sentences that belong together.

    Args:
        name: the id of its `# newdoc` line, or a name made from the file's.
        sentences: the sentences in order.
        mentions: sorted by (sentence, head, start, end, entity).
    """

    name: str
    sentences: tuple[Sentence, ...]
    mentions: tuple[Mention, ...]


@dataclass(frozen=True, slots=True)
class Origin:
    """A dataset that a corpus was read from.

    Args:
        dataset: its hub id, or its folder as it was named.
        config: which configuration, None for the default one.
        split: which split.
        revision: the commit, None for a folder.
        columns: what was read.
        rows: how many rows were read, or files of text.
        of_rows: how many rows the split has, None where that is not known.
        left_out: how many rows or tokens were left out, by reason.
        sha256: hex digest of what was read.
    """

    dataset: str
    config: str | None
    split: str
    revision: str | None
    columns: tuple[str, ...]
    rows: int
    of_rows: int | None
    left_out: Mapping[str, int]
    sha256: str


@dataclass(frozen=True, slots=True)
class Corpus:
    """Everything that was read from one or more files.

    Args:
        documents: in the order of the files; none spans two files.
        paths: the files, as they were named.
        sha256: hex digest over the bytes of all files, in order.
        has_trees: whether every sentence has a tree.
        has_entities: whether there is any mention.
        has_documents: whether any file marks documents (`# newdoc`, `#begin document`); without such marks a
            file is one document.
        parser: what parsed those sentences that came without a tree, such as "spacy:NAME": their trees are
            silver, not gold. None where every tree was read from a file.
        datasets: the datasets it was read from, in order.
        cut: how many sentences were read and then left out, because no more were wanted.
    """

    documents: tuple[Document, ...]
    paths: tuple[str, ...]
    sha256: str
    has_trees: bool
    has_entities: bool
    has_documents: bool
    parser: str | None = None
    datasets: tuple[Origin, ...] = ()
    cut: int = 0

    @property
    def sentences(self) -> Iterator[tuple[int, Sentence]]:
        """Every sentence with the index of its document, in order."""
        for index, document in enumerate(self.documents):
            for sentence in document.sentences:
                yield index, sentence

    @property
    def n_words(self) -> int:
        """How many words the corpus has."""
        return sum(len(sentence.words) for _, sentence in self.sentences)

    @classmethod
    def merge(cls, corpora: Sequence[Corpus], sha256: str) -> Corpus:
        """Put corpora together, one after the other.

        Args:
            corpora: at least one.
            sha256: hex digest over the bytes of all their files, in order; it cannot be told from theirs.

        Returns:
            The documents of all. It has trees only if all have, entities or marked documents if any has, and
            names a parser if any was parsed: then some trees may still be gold.
        """
        parsers = dict.fromkeys(corpus.parser for corpus in corpora if corpus.parser is not None)
        return cls(
            documents=tuple(document for corpus in corpora for document in corpus.documents),
            paths=tuple(path for corpus in corpora for path in corpus.paths),
            sha256=sha256,
            has_trees=all(corpus.has_trees for corpus in corpora),
            has_entities=any(corpus.has_entities for corpus in corpora),
            has_documents=any(corpus.has_documents for corpus in corpora),
            parser=", ".join(parsers) or None,
            datasets=tuple(origin for corpus in corpora for origin in corpus.datasets),
        )

    def beginning(self, n_sentences: int) -> Corpus:
        """Keep the first sentences only.

        Args:
            n_sentences: how many at most, 1 or more.

        Returns:
            The corpus of them, with the mentions inside.
        """
        kept: list[Document] = []
        room = n_sentences
        for document in self.documents:
            if room > 0:
                mentions = tuple(mention for mention in document.mentions if mention.sentence < room)
                kept.append(replace(document, sentences=document.sentences[:room], mentions=mentions))
            room -= len(document.sentences)
        entities = any(document.mentions for document in kept)
        return replace(self, documents=tuple(kept), has_entities=entities, cut=max(0, -room))


# ---- The one place that opens, hashes and reads text files, and tells a person what is wrong with them


SAMPLE = Path(__file__).parents[1] / "data" / "sample"  # what comes with the package

_BOM = b"\xef\xbb\xbf"
LONGEST = 2**26  # bytes of a line; a file of other things may have no line end for gigabytes


@dataclass(frozen=True)
class InputFile:
    """A text file in UTF-8 that is opened once: its hash is that of what was read of it.

    Args:
        path: a regular file.
        kind: what it should be, for errors, such as "CoNLL-U".
        error: what is raised.
        digest: takes its bytes; files with one hash for all share it.
    """

    path: Path
    kind: str = "text"
    error: type[InputError] = InputError
    digest: Any = field(default_factory=hashlib.sha256, compare=False)

    def __str__(self) -> str:
        return str(self.path)

    def lines(self) -> Iterator[tuple[int, str]]:
        r"""Read it line by line, once.

        Yields:
            The 1-based number of each line, and the line without its end (``\n``, ``\r\n`` or ``\r``) and
            without a byte order mark.

        Raises:
            InputError: of the kind `error`, if the file cannot be read or is no UTF-8 text.
        """
        number = 0
        try:
            with open_regular(self.path) as file:
                while raw := file.readline(LONGEST + 1):
                    self.digest.update(raw)
                    if len(raw) > LONGEST:
                        raise self._endless(raw, number + 1)
                    if number == 0:
                        raw = raw.removeprefix(_BOM)
                    for line in raw.removesuffix(b"\n").removesuffix(b"\r").split(b"\r"):
                        number += 1
                        yield number, self._decode(line, number)
        except OSError as problem:
            raise unreadable(self.path, self.kind, problem, self.error) from None

    @cached_property
    def text(self) -> str:
        r"""All of it, without byte order mark, its lines joined by ``\n``; errors as of `lines`."""
        return "\n".join(line for _, line in self.lines())

    @property
    def sha256(self) -> str:
        """Hex digest over the bytes that were read."""
        return str(self.digest.hexdigest())

    def _endless(self, raw: bytes, number: int) -> InputError:
        if b"\0" in raw:
            return self._nul(number)
        found = f"expected text, found a line of more than {LONGEST // 2**20} MiB"
        return self.error(f"{self}, line {number}: {found}.", "Break it into lines.")

    def _nul(self, number: int) -> InputError:
        problem = f"{self}, line {number}: expected text, found a NUL byte."
        return self.error(problem, f"Name a {self.kind} file in UTF-8.")

    def _decode(self, raw: bytes, number: int) -> str:
        if b"\0" in raw:
            raise self._nul(number)
        try:
            return raw.decode("utf-8")
        except UnicodeDecodeError as problem:
            found = f"byte 0x{raw[problem.start]:02x} at position {problem.start + 1}"
            told = f"{self}, line {number}: expected UTF-8, found {found}."
            raise self.error(told, "Convert the file to UTF-8.") from None


def unreadable(path: Path, kind: str, problem: OSError, error: type[InputError] = CorpusError) -> InputError:
    """Say why a file cannot be read.

    Args:
        path: the file.
        kind: what it should be, such as "CoNLL-U".
        problem: what opening or reading it raised.
        error: what is made.

    Returns:
        The error.
    """
    if isinstance(problem, FileNotFoundError):
        return error(f"Expected a {kind} file at {path}, found nothing.", "Check the path.")
    if isinstance(problem, IsADirectoryError):
        return error(f"Expected a {kind} file at {path}, found a directory.", "Name the files in it.")
    if isinstance(problem, IrregularFileError):
        return error(f"Expected a {kind} file at {path}, found {problem.found}.", problem.remedy)
    return error(
        f"Expected to read the {kind} file {path}, but: {problem.strerror}.", "Make the file readable."
    )
