"""Reads CoNLL-U with its trees and its entities."""

from __future__ import annotations

import hashlib
import re
from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from headlens.corpus.corpus import KINDS, Corpus, Document, InputFile, Mention, Sentence, Word
from headlens.errors import CorpusError

_Lines = list[tuple[int, str]]


def read_conllu(paths: Sequence[Path], digest: Any = None) -> Corpus:
    """Read CoNLL-U files sentence by sentence.

    Words are the syntactic words (integer ids); multiword tokens and empty nodes are none. Runs of blanks
    inside a column count as one. A file with `_` in every HEAD column has no trees and is accepted. Comment
    lines that a blank line parts from their sentence are counted to the next one.

    Args:
        paths: the files, in order; a document never spans two of them.
        digest: takes their bytes, such as `hashlib.sha256()`; one of their own by default.

    Returns:
        The corpus.

    Raises:
        CorpusError: if a file cannot be read, holds no sentence or is malformed.
    """
    if not paths:
        raise CorpusError("Expected at least one CoNLL-U file, got none.", "Name one or more .conllu files.")
    digest = digest or hashlib.sha256()
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
            sentence = builder.build(meta.get("sent_id", ""))
            if builder.marked:
                self._add_mentions(sentence, builder.nodes, builder.marked)
            self.sentences.append(sentence)
        self._close_document()
        return self

    def _comments(self, comments: _Lines) -> dict[str, str]:
        meta: dict[str, str] = {}
        for number, line in comments:
            key, value = (part.strip() for part in line[1:].partition("=")[::2])
            if value or key in ("newdoc", "newdoc id"):
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


def _read_file(path: Path, digest: Any) -> ConlluReader:
    file = InputFile(path, "CoNLL-U", CorpusError, digest)
    reader = ConlluReader(str(path), path.stem).read(file.lines())
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


# ---- Builds one Sentence from its CoNLL-U lines and checks ids and tree


_COLUMNS = ("ID", "FORM", "LEMMA", "UPOS", "XPOS", "FEATS", "HEAD", "DEPREL", "DEPS", "MISC")
_ID = re.compile(r"_|(0|[1-9][0-9]*)|([1-9][0-9]*)-([1-9][0-9]*)|([0-9]+)\.([1-9][0-9]*)")
_HEAD = re.compile(r"_|(0|-?[1-9][0-9]*)")


@dataclass(frozen=True, slots=True)
class _Range:
    """A multiword token's line: the ids of its first and last word, its MISC and where it stands."""

    first: int
    last: int
    misc: list[str]
    place: str


@dataclass(slots=True)
class SentenceBuilder:
    """Takes the word lines of one sentence in order.

    Args:
        path: the file they come from, for errors.
        unit: what its lines are counted in, for errors.

    Attributes:
        nodes: word index of every node so far, None for an empty node.
        marked: the lines with an Entity value; complete after `build`.
    """

    path: str
    unit: str = "line"
    nodes: list[int | None] = field(default_factory=list, init=False)
    marked: list[MarkedNode] = field(default_factory=list, init=False)
    _words: list[Word] = field(default_factory=list, init=False)
    _places: list[str] = field(default_factory=list, init=False)
    _ranges: list[_Range] = field(default_factory=list, init=False)
    _line: int = field(default=0, init=False)

    def add(self, number: int, line: str) -> None:
        """Take one line.

        Args:
            number: its 1-based number in the file.
            line: the line without its end.

        Raises:
            CorpusError: if it is no CoNLL-U word line, or its id is not the one that has to come next.
        """
        place = f"{self.path}, {self.unit} {number}"
        self._line = self._line or number
        cells = _cells(line, place)
        expected = "a word id such as 3, 3-4 or 3.1 in column 1 (ID)"
        word, first, last, major, minor = _numbers(_ID, cells[0], expected, place)
        (head,) = _numbers(_HEAD, cells[6], "a whole number or `_` in column 7 (HEAD)", place)
        misc = cells[9].split("|")
        if word is not None:
            self._check_id(word == len(self._words) + 1, f"{len(self._words) + 1}", word, place)
            self.nodes.append(len(self._words))
            self._words.append(_word(cells, head, misc))
            self._places.append(place)
        elif major is not None:
            expected = f"{len(self._words)}.{minor}"
            self._check_id(major == len(self._words), expected, f"{major}.{minor}", place)
            self.nodes.append(None)
        else:
            self._add_range(first, last, misc, place)
            return
        if value := _entity(misc):
            self.marked.append(MarkedNode(len(self.nodes) - 1, len(self.nodes) - 1, value, place))

    def build(self, sent_id: str) -> Sentence:
        """Make the sentence of all lines.

        Args:
            sent_id: the sentence's id.

        Returns:
            The sentence; `nodes` and `marked` then hold what belongs to it.

        Raises:
            CorpusError: if a multiword token reaches beyond the last word, or the heads make no tree.
        """
        if not self._words:
            raise CorpusError(
                f"{self.path}, {self.unit} {self._line}: expected a word in the sentence, found none.",
                "Remove the sentence.",
            )
        for span in self._ranges:
            if span.last > len(self._words):
                raise CorpusError(
                    f"{span.place}: expected the words {span.first} to {span.last} of this multiword token, "
                    f"found {len(self._words)} words in the sentence.",
                    "Correct the range or add the words.",
                )
            self._apply_range(span)
        _check_tree(self._words, self._places)
        return Sentence(tuple(self._words), sent_id, self.path, self._line)

    def _check_id(self, right: bool, expected: str, found: object, place: str) -> None:
        if not right:
            raise CorpusError(
                f"{place}: expected the id {expected} in column 1 (ID), found {found}.",
                "Number the words of a sentence 1, 2, 3 and so on, and part sentences by a blank line.",
            )

    def _add_range(self, first: int | None, last: int | None, misc: list[str], place: str) -> None:
        word = len(self._words) + 1
        least = max(self._ranges[-1].last + 1 if self._ranges else 1, word)
        right = first is not None and last is not None and first == least == word and last > least
        found = "_" if first is None else f"{first}-{last}"
        self._check_id(right, f"{word}, or a range that begins with {least}", found, place)
        if first is not None and last is not None:
            self._ranges.append(_Range(first, last, misc, place))

    def _apply_range(self, span: _Range) -> None:
        last = span.last - 1
        for index in range(span.first - 1, last):
            self._words[index] = replace(self._words[index], space_after=False)
        if "SpaceAfter=No" in span.misc:
            self._words[last] = replace(self._words[last], space_after=False)
        if value := _entity(span.misc):
            first_node, last_node = self.nodes.index(span.first - 1), self.nodes.index(last)
            self.marked.append(MarkedNode(first_node, last_node, value, span.place))


def _cells(line: str, place: str) -> list[str]:
    """The ten columns of a line; runs of blanks inside count as one."""
    cells = line.split("\t")
    if len(cells) != len(_COLUMNS):
        raise CorpusError(
            f"{place}: expected {len(_COLUMNS)} tab-separated columns, found {len(cells)}.",
            "Write one word a line in CoNLL-U's ten columns, `_` for an empty one.",
        )
    for number, (cell, name) in enumerate(zip(cells, _COLUMNS, strict=True), start=1):
        if not cell.strip(" "):
            raise CorpusError(
                f"{place}: expected a value in column {number} ({name}), found nothing.",
                "Write `_` for an empty column.",
            )
    return [re.sub(" {2,}", " ", cell) for cell in cells]


def _numbers(pattern: re.Pattern[str], cell: str, expected: str, place: str) -> list[int | None]:
    """The numbers that a cell's pattern has a group for; none for the others, and of `_`."""
    match = pattern.fullmatch(cell)
    try:
        numbers = [int(part) if part else None for part in match.groups()] if match else []
    except ValueError:  # Python takes no number of thousands of digits
        numbers = []
    if not numbers:
        raise CorpusError(f"{place}: expected {expected}, found {cell!r}.", "Correct the column.")
    return numbers


def _word(cells: list[str], head: int | None, misc: list[str]) -> Word:
    return Word(
        form=cells[1],
        lemma=_or_empty(cells[2]),
        upos=_or_empty(cells[3]),
        head=None if head is None else head - 1,
        deprel=_or_empty(cells[7]).partition(":")[0],
        space_after="SpaceAfter=No" not in misc,
    )


def _or_empty(cell: str) -> str:
    return "" if cell == "_" else cell


def _entity(misc: list[str]) -> str:
    return "".join(item.removeprefix("Entity=") for item in misc if item.startswith("Entity="))


def _check_tree(words: list[Word], places: list[str]) -> None:
    if all(word.head is None for word in words):
        return
    remedy = "Correct column 7 (HEAD); a sentence without a tree has `_` there in every line."
    for index, (word, place) in enumerate(zip(words, places, strict=True)):
        if word.head is None or not -1 <= word.head < len(words):
            found = "`_`" if word.head is None else word.head + 1
            raise CorpusError(
                f"{place}: expected a head from 0 to {len(words)} as the sentence has a tree, found {found}.",
                remedy,
            )
        if word.head == index:
            raise CorpusError(
                f"{place}: expected another word as the head of word {index + 1}, found itself.", remedy
            )
    heads = [-1 if word.head is None else word.head for word in words]
    if -1 not in heads:
        raise CorpusError(f"{places[0]}: expected a root (head 0) in the sentence, found none.", remedy)
    cycle = _find_cycle(heads)
    if cycle:
        raise CorpusError(
            f"{places[cycle[0]]}: expected a tree, found a cycle of the words "
            f"{', '.join(str(index + 1) for index in cycle)}.",
            remedy,
        )


def _find_cycle(heads: list[int]) -> list[int]:
    """The words of the first cycle, in order of their ids; empty for a tree."""
    safe: set[int] = {-1}
    for start in range(len(heads)):
        path: dict[int, None] = {}  # in order
        word = start
        while word not in safe and word not in path:
            path[word] = None
            word = heads[word]
        if word not in safe:
            walked = list(path)
            return sorted(walked[walked.index(word) :])
        safe.update(path)
    return []


# ---- Reads the `Entity=` marks of CorefUD and GUM into mentions


_PART = re.compile(r"(.+)\[([1-9][0-9]{0,8})/([1-9][0-9]{0,8})\]")


@dataclass(frozen=True, slots=True)
class _Span:
    """A closed mark, or one part of a discontinuous mention; node positions, both inclusive."""

    first: int
    last: int
    opening: Mark


def read_mentions(
    sentence: Sentence,
    nodes: Sequence[int | None],
    marked: Iterable[MarkedNode],
    fields: EntityFields,
    index: int,
) -> list[Mention]:
    """Read the mentions of one sentence.

    The head is the one the mark's head field names. Where the format has no such field, the field is empty or
    it names an empty node, it is `Sentence.top_word`. A mention that covers empty nodes only is left out.

    Args:
        sentence: the words.
        nodes: for every node of the sentence in file order its word index, None for an empty node.
        marked: the lines that carry an Entity value, in file order.
        fields: the order of the fields.
        index: the sentence's index in its document.

    Returns:
        The mentions, in no particular order.

    Raises:
        CorpusError: if a mark is malformed, never closed, never opened or lacks its id, if parts of a mention
            are missing, or if a head is out of range or cannot be told.
    """
    marks = [mark for node in marked for mark in split_marks(node, fields)]
    mentions = []
    for entity, spans in _join_parts(_match(sorted(marks, key=lambda mark: mark.order))):
        own = [nodes[position] for span in spans for position in range(span.first, span.last + 1)]
        words = [word for word in own if word is not None]
        if not words:
            continue
        head = _head(sentence, own, spans)
        kind = KINDS.get(sentence.words[head].upos, "nominal")
        mentions.append(Mention(entity, index, words[0], words[-1] + 1, head, kind))
    return mentions


def _match(marks: Iterable[Mark]) -> list[_Span]:
    open_marks: dict[str, list[Mark]] = defaultdict(list)
    spans = []
    for mark in marks:
        if mark.opens and mark.closes:
            spans.append(_Span(mark.node.first, mark.node.last, mark))
        elif mark.opens:
            open_marks[mark.key].append(mark)
        elif open_marks[mark.key]:
            opening = open_marks[mark.key].pop()
            spans.append(_Span(opening.node.first, mark.node.last, opening))
        else:
            raise CorpusError(
                f"{mark.node.place}: expected an open mention of entity {mark.key!r} to close, found none.",
                f"Add the opening mark `({mark.key}` in the same sentence, or remove `{mark.key})`.",
            )
    for mark in (mark for stack in open_marks.values() for mark in stack):
        raise CorpusError(
            f"{mark.node.place}: expected the mention of entity {mark.key!r} to be closed in its sentence, "
            "found the sentence's end.",
            f"Add `{mark.key})` to the mention's last word; a mention cannot cross into the next sentence.",
        )
    return spans


def _join_parts(spans: Iterable[_Span]) -> list[tuple[str, list[_Span]]]:
    """Put the parts of discontinuous mentions together, each part with the last mention that waits for it."""
    whole: list[tuple[str, list[_Span]]] = []
    waiting: dict[tuple[str, int], list[list[_Span]]] = defaultdict(list)
    for span in spans:
        part = _PART.fullmatch(span.opening.key)
        if part is None:
            whole.append((span.opening.key, [span]))
            continue
        entity, number, total = part[1], int(part[2]), int(part[3])
        groups = waiting[entity, total]
        group = [] if number == 1 else next((g for g in reversed(groups) if len(g) == number - 1), None)
        if group is None or number > total:
            raise _part_error(span.opening, f"part {number - 1} of {total} before it, found none")
        if number == 1:
            groups.append(group)
        group.append(span)
        if number == total:
            groups[:] = [other for other in groups if other is not group]
            whole.append((entity, group))
    for (_, total), groups in waiting.items():
        for group in groups:
            raise _part_error(group[-1].opening, f"part {len(group) + 1} of {total} after it, found none")
    return whole


def _part_error(mark: Mark, expected: str) -> CorpusError:
    return CorpusError(
        f"{mark.node.place}: for the mark {mark.key!r} expected {expected}.",
        "Number the parts of a discontinuous mention from 1, all in one sentence, as in e1[1/2] and e1[2/2].",
    )


def _head(sentence: Sentence, own: Sequence[int | None], spans: Sequence[_Span]) -> int:
    mark = next((span.opening for span in spans if span.opening.head), spans[0].opening)
    if mark.head is not None and mark.head > len(own):
        raise CorpusError(
            f"{mark.node.place}: expected a head from 1 to {len(own)}, the length of this mention of entity "
            f"{mark.key!r}, found {mark.head}.",
            "Count the head within the mention's own words.",
        )
    stated = None if mark.head is None else own[mark.head - 1]
    if stated is not None:
        return stated
    words = [word for word in own if word is not None]
    if len(words) > 1 and not sentence.has_tree:
        raise CorpusError(
            f"{mark.node.place}: expected a head field or a tree to tell the head of this mention of entity "
            f"{mark.key!r}, found neither.",
            "State a head field in `# global.Entity` and fill it, or parse the file first.",
        )
    return sentence.top_word(words)


# ---- Takes the value of an `Entity=` attribute apart into marks


_MARK = re.compile(r"\(?[^()]+\)?")  # a mark has one parenthesis at least
_ID_NAMES = ("eid", "GRP")


@dataclass(frozen=True, slots=True)
class EntityFields:
    """Where a mark keeps what is read from it.

    Args:
        count: how many fields a mark may have; the last one may contain hyphens.
        entity: index of the entity id among them.
        head: index of the head field, None where the format has none.
    """

    count: int
    entity: int
    head: int | None

    @classmethod
    def parse(cls, order: str, place: str) -> EntityFields:
        """Read the value of a `# global.Entity` line.

        Args:
            order: the field names, joined with hyphens.
            place: the file and line, for the error.

        Returns:
            The places of the entity id and the head.

        Raises:
            CorpusError: if no field holds the entity id.
        """
        names = order.split("-")
        entity = next((index for index, name in enumerate(names) if name in _ID_NAMES), None)
        if entity is None:
            raise CorpusError(
                f"{place}: expected a field `eid` or `GRP` in global.Entity, found {order!r}.",
                "Name the field that holds the entity id, as in `# global.Entity = eid-etype-head-other`.",
            )
        return cls(len(names), entity, names.index("head") if "head" in names else None)


@dataclass(frozen=True, slots=True)
class MarkedNode:
    """The Entity value of one line.

    Args:
        first: position of the line's node in its sentence; of the first one for a multiword token.
        last: the same, for the last node; equal to `first` for a word or empty node.
        value: what follows `Entity=`.
        place: the file and line, for errors.
    """

    first: int
    last: int
    value: str
    place: str


@dataclass(frozen=True, slots=True)
class Mark:
    """One mark.

    Args:
        order: where it takes effect; marks of a sentence are to be worked off sorted by this, stably.
        key: the entity's id, with the part number of a discontinuous mention, as written.
        opens: whether a mention begins here.
        closes: whether a mention ends here.
        head: the head among the mention's nodes, counted from 1; None where not stated.
        node: the line it stands on.
    """

    order: tuple[int, int]
    key: str
    opens: bool
    closes: bool
    head: int | None
    node: MarkedNode


def split_marks(node: MarkedNode, fields: EntityFields) -> list[Mark]:
    """Take the Entity value of one line apart.

    Args:
        node: the line.
        fields: the order of a mark's fields.

    Returns:
        Its marks, as they stand.

    Raises:
        CorpusError: if the parentheses are not balanced, an id is missing or a head is no positive number.
    """
    texts = _MARK.findall(node.value)
    whole = all(text.startswith("(") or text.endswith(")") for text in texts)
    if not texts or not whole or "".join(texts) != node.value:
        raise CorpusError(
            f"{node.place}: expected Entity marks such as `(e1-person-1`, `e1)` or `(e1-person-1)`, "
            f"found {node.value!r}.",
            "Balance the parentheses; write %28 and %29 for those that belong to a name.",
        )
    return [_mark(text, node, fields) for text in texts]


def _mark(text: str, node: MarkedNode, fields: EntityFields) -> Mark:
    opens, closes = text.startswith("("), text.endswith(")")
    values = text.strip("()").split("-", fields.count - 1)
    bare_close = not opens and len(values) == 1
    key = values[0] if bare_close else "".join(values[fields.entity : fields.entity + 1])
    if not key:
        raise CorpusError(
            f"{node.place}: expected an entity id as field {fields.entity + 1} of the mark {text!r}, "
            "found none.",
            "Give the id, or correct the order of the fields in `# global.Entity`.",
        )
    head = _head_field(values, text, node, fields) if opens else None
    # A multiword token's line stands before its words: its closing marks take effect after the last one's.
    whole_range = (node.first, 0) if opens else (node.last, 2)
    order = (node.first, 1) if node.first == node.last else whole_range
    return Mark(order, key, opens, closes, head, node)


def _head_field(values: Sequence[str], text: str, node: MarkedNode, fields: EntityFields) -> int | None:
    value = "" if fields.head is None else "".join(values[fields.head : fields.head + 1])
    if not value:
        return None
    if not re.fullmatch(r"[1-9][0-9]{0,8}", value):
        raise CorpusError(
            f"{node.place}: expected the head's place among the mention's words, counted from 1, "
            f"in the mark {text!r}, found {value!r}.",
            "Correct the head, or the order of the fields in `# global.Entity`.",
        )
    return int(value)
