"""Reads CoNLL-2012 and LitBank: words, trees where they are, and coreference."""

from __future__ import annotations

import hashlib
import re
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from pathlib import Path
from typing import Any

from headlens.corpus.corpus import KINDS, Corpus, Document, InputFile, Kind, Mention, Sentence, Word
from headlens.errors import CorpusError

_KIND = "CoNLL-2012"
_BEGIN = "#begin document"
_PART = re.compile(r";\s*part\s+([0-9]{1,9})$")


def read_conll2012(paths: Sequence[Path], digest: Any = None) -> Corpus:
    """Read CoNLL-2012 files.

    Documents stand between `#begin document (NAME); part 000` and `#end document`; every part is a document
    of its own, as its entity ids are. Columns are parted by tabs or blanks: the number of the word (3), the
    word (4), its Penn Treebank tag (5), its lemma (7) and its coreference marks (the last). The escapes for
    brackets and quotes (`-LRB-`, two backquotes) are undone. Heads and kinds of mentions are told by the
    rules in `headlens.corpus.conll2012`, which know English only, and blanks are taken to stand between all
    words.

    Args:
        paths: the files, in order; a document never spans two of them.
        digest: takes their bytes, such as `hashlib.sha256()`; one of their own by default.

    Returns:
        The corpus; no word has a head or a relation.

    Raises:
        CorpusError: if a file cannot be read, holds no sentence or is malformed.
    """
    if not paths:
        raise CorpusError(f"Expected at least one {_KIND} file, got none.", "Name one or more .conll files.")
    digest = digest or hashlib.sha256()
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
    rows: list[TokenLine] = field(default_factory=list)
    sentences: list[Sentence] = field(default_factory=list)
    mentions: list[Mention] = field(default_factory=list)

    def read(self, digest: Any) -> list[Document]:
        for number, line in InputFile(self.path, _KIND, CorpusError, digest).lines():
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
        self.rows.append(TokenLine.parse(line, str(self.path), number))

    def _close_sentence(self) -> None:
        if self.rows:
            sentence, mentions = build_sentence(self.rows, str(self.path), len(self.sentences))
            self.sentences.append(sentence)
            self.mentions += mentions
        self.rows = []


# ---- Builds one Sentence and its mentions from the rows of a CoNLL-2012 sentence


MIN_COLUMNS = 12
EMPTY = frozenset({"", "-", "_", "*"})
_MARK = re.compile(r"(\()?([^()|\s]+)(\))?")
_ESCAPES = {
    "-LRB-": "(",
    "-RRB-": ")",
    "-LSB-": "[",
    "-RSB-": "]",
    "-LCB-": "{",
    "-RCB-": "}",
    "``": '"',
    "''": '"',
}
# Penn Treebank tags; JJ, NN, RB and VB begin those that are not here.
_UPOS = {
    **dict.fromkeys(("PRP", "PRP$", "WP", "WP$", "EX"), "PRON"),
    **dict.fromkeys(("NNP", "NNPS"), "PROPN"),
    **dict.fromkeys(("DT", "PDT", "WDT"), "DET"),
    **dict.fromkeys(("IN", "RP"), "ADP"),
    **dict.fromkeys(("TO", "POS"), "PART"),
    **dict.fromkeys(("$", "#", "SYM"), "SYM"),
    "MD": "AUX",
    "CC": "CCONJ",
    "CD": "NUM",
    "UH": "INTJ",
    "WRB": "ADV",
}
_FAMILIES = {"JJ": "ADJ", "NN": "NOUN", "RB": "ADV", "VB": "VERB"}


@dataclass(frozen=True, slots=True)
class TokenLine:
    """The line of one word.

    Args:
        number: the word's number in its sentence, as the file has it.
        word: the word, with its universal part of speech and without a head.
        marks: the value of the last column.
        columns: how many columns the line has.
        line: its 1-based number in the file.
        place: the file and line, for errors.
    """

    number: int
    word: Word
    marks: str
    columns: int
    line: int
    place: str

    @classmethod
    def parse(cls, text: str, path: str, line: int) -> TokenLine:
        """Take a line apart.

        Args:
            text: the line without its end; its columns are parted by tabs if it has any, else by blanks.
            path: the file, as it was named.
            line: its 1-based number in the file.

        Returns:
            The row.

        Raises:
            CorpusError: if columns are missing, or the word or its number is.
        """
        place = f"{path}, line {line}"
        cells = [cell.strip() for cell in text.split("\t")] if "\t" in text else text.split()
        if len(cells) < MIN_COLUMNS:
            raise CorpusError(
                f"{place}: expected {MIN_COLUMNS} columns or more, parted by tabs or blanks, "
                f"found {len(cells)}.",
                "Write one word a line: document, part, number, word, part of speech and so on, with the "
                "coreference marks last; name CoNLL-U files .conllu.",
            )
        if not cells[3]:
            raise CorpusError(f"{place}: expected a word in column 4, found nothing.", "Give the word.")
        if not re.fullmatch(r"[0-9]{1,9}", cells[2]):
            raise CorpusError(
                f"{place}: expected the number of the word in its sentence in column 3, found {cells[2]!r}.",
                "Number the words of a sentence 0, 1, 2 and so on.",
            )
        lemma = "" if cells[6] in EMPTY else cells[6]
        word = Word(_ESCAPES.get(cells[3], cells[3]), lemma, universal(cells[4]), None, "", True)
        return cls(int(cells[2]), word, cells[-1], len(cells), line, place)


def universal(tag: str) -> str:
    """Turn a part of speech of the Penn Treebank into a universal one.

    Single words decide it in UD ("to", "that", "have"), here the tag alone does: good enough to tell
    pronouns, names and other nouns, not for more. Tags of other tagsets are "X".

    Args:
        tag: the tag.

    Returns:
        The universal part of speech, "" where the file has none.
    """
    if tag in EMPTY:
        return ""
    if tag in _UPOS:
        return _UPOS[tag]
    if not tag[0].isalpha():
        return "PUNCT"
    return "PUNCT" if tag == "HYPH" else _FAMILIES.get(tag[:2], "X")


def build_sentence(rows: Sequence[TokenLine], path: str, index: int) -> tuple[Sentence, list[Mention]]:
    """Make a sentence of its rows.

    Args:
        rows: the rows; at least one.
        path: the file, as it was named.
        index: the sentence's index in its document.

    Returns:
        The sentence, and its mentions in no particular order; marks that repeat the same entity on the same
        words count once.

    Raises:
        CorpusError: if rows differ in their columns, words are not numbered one after the other, or a mark is
            malformed, never closed or never opened.
    """
    for before, row in pairwise(rows):
        if row.columns != rows[0].columns:
            raise CorpusError(
                f"{row.place}: expected {rows[0].columns} columns as in the lines before, "
                f"found {row.columns}.",
                "Give all words of a sentence the same columns.",
            )
        if row.number != before.number + 1:
            raise CorpusError(
                f"{row.place}: expected the word number {before.number + 1} in column 3, found {row.number}.",
                "Number the words of a sentence 0, 1, 2 and so on, and part sentences by a blank line.",
            )
    sentence = Sentence(tuple(row.word for row in rows), "", path, rows[0].line)
    mentions = []
    for entity, start, end in sorted(set(_spans(rows))):
        head = top_word(sentence.words, start, end)
        mentions.append(
            Mention(entity, index, start, end, head, mention_kind(sentence.words, start, end, head))
        )
    return sentence, mentions


def _spans(rows: Sequence[TokenLine]) -> list[tuple[str, int, int]]:
    """(entity, start, end) of every mention; of one entity the mention opened last is closed first."""
    waiting: dict[str, list[int]] = defaultdict(list)
    spans = []
    for place, row in enumerate(rows):
        for opens, entity, closes in _marks(row):
            if opens:
                waiting[entity].append(place)
            if closes and not waiting[entity]:
                raise CorpusError(
                    f"{row.place}: expected an open mention of entity {entity!r} to close, found none.",
                    f"Add the opening mark `({entity}` in the same sentence, or remove `{entity})`.",
                )
            if closes:
                spans.append((entity, waiting[entity].pop(), place + 1))
    for entity, places in waiting.items():
        for place in places:
            raise CorpusError(
                f"{rows[place].place}: expected the mention of entity {entity!r} to be closed in its "
                "sentence, found the sentence's end.",
                f"Add `{entity})` to the mention's last word; a mention cannot cross into the next sentence.",
            )
    return spans


def _marks(row: TokenLine) -> list[tuple[bool, str, bool]]:
    """(opens, entity, closes) of every mark of a row."""
    if row.marks in EMPTY:
        return []
    found = [_MARK.fullmatch(mark) for mark in row.marks.split("|")]
    marks = [(bool(match[1]), match[2], bool(match[3])) for match in found if match is not None]
    if len(marks) < len(found) or not all(opens or closes for opens, _, closes in marks):
        raise CorpusError(
            f"{row.place}: expected coreference marks such as (12, 12) or (12), joined with |, in the last "
            f"column, found {row.marks!r}.",
            "Correct the marks, or write `-` for none.",
        )
    return marks


# ---- The head word and the kind of an English mention in files that have no dependency trees


def _listed(words: str) -> frozenset[str]:
    return frozenset(words.split())


_CUTS = frozenset({"ADP", "SCONJ", "CCONJ", "VERB", "AUX", "PART", "PUNCT"})
_NOMINAL = frozenset({"NOUN", "PROPN", "PRON", "NUM"})
_SIGNS = _listed(", ; : . ! ? -- --- \u2013 \u2014 ( ) [ ] -LRB- -RRB- ' \" `` '' \u201c \u201d")
_POSSESSIVES = _listed("my your his her its our their whose thy 's ' \u2019s \u2019")
_DETERMINERS = _listed("a an the no every each")
_PRONOUNS = _listed(
    "i me mine myself you yours yourself yourselves ye thou thee thine he him himself she hers herself "
    "it itself we us ours ourselves they them theirs themselves oneself who whom 'em"
)
_ALONE = _listed("this that these those which")  # pronouns where they are the whole mention
_NO_NAMES = _listed(
    "some none many most all both others here there somebody someone anybody anyone everybody everyone "
    "nobody one two three men people"
)
_RELATIVES = _listed("that which whom whose what where when")
_CLOSED = _listed(
    "of in on at by for with from to into upon about over under between among against through during "
    "without within near behind beside beyond above below across after before like as than until towards "
    "toward around along off out and or but nor because if when where while who whom whose which that is "
    "are was were be been being am has have had having do does did will would can could may might must "
    "shall should called named"
)


def top_word(words: Sequence[Word], start: int, end: int) -> int:
    """Find the head word of a mention without a tree.

    It misleads where something that cuts stands before the head: adjectives with commas or "and" between them
    ("a conceited, silly father") when parts of speech are unknown, compounds such as "in-laws" written as
    several words, and titles of works. In names it takes the last word ("Sir Walter Elliot" is "Elliot"),
    where UD trees take the first. It knows English only.

    Args:
        words: the words of the sentence.
        start: index of the mention's first word.
        end: index of its last word, plus one.

    Returns:
        The index of the head word.
    """
    last = None
    for index in range(start, end):
        if index > start and _cuts(words[index]) and last is not None:
            return last
        if _nominal(words[index], index == end - 1):
            last = index
    if last is not None:
        return last
    return next((i for i in range(end - 1, start, -1) if not _punctuation(words[i])), start)


def mention_kind(words: Sequence[Word], start: int, end: int, head: int) -> Kind:
    """Tell the kind of a mention.

    Without parts of speech a capital letter makes a name, so that "the Captain", a noun in a headline, and a
    plain noun that begins its sentence without an article ("Men") are taken for one.

    Args:
        words: the words of the sentence.
        start: index of the mention's first word.
        end: index of its last word, plus one.
        head: index of its head word.

    Returns:
        "pronoun", "proper" or "nominal", by the head's part of speech where it has one; else by a list of
        pronouns and by capital letters. Possessives ("her") and "this" are pronouns where they stand alone.
    """
    word, alone = words[head], end - start == 1
    form = word.form.lower()
    if form in _PRONOUNS or (alone and form in _ALONE | _POSSESSIVES):
        return "pronoun"
    if word.upos:
        return KINDS.get(word.upos, "nominal")
    return "proper" if word.form[:1].isupper() and form not in _NO_NAMES else "nominal"


def _cuts(word: Word) -> bool:
    form = word.form.lower()
    if form in _POSSESSIVES or form == "-":
        return False
    if form in _PRONOUNS or form in _RELATIVES:
        return True
    return word.upos in _CUTS if word.upos else form in _CLOSED or form in _SIGNS


def _nominal(word: Word, is_last: bool) -> bool:
    form = word.form.lower()
    if form in _POSSESSIVES and not is_last:
        return False
    if word.upos:
        return word.upos in _NOMINAL
    return form != "-" and form not in _CLOSED | _SIGNS | _DETERMINERS | _POSSESSIVES


def _punctuation(word: Word) -> bool:
    return word.upos == "PUNCT" or word.form in _SIGNS
