"""Builds one Sentence from its CoNLL-U lines and checks ids and tree."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Any

from conllu.exceptions import ParseException
from conllu.models import Token
from conllu.parser import DEFAULT_FIELDS, parse_id_value, parse_int_value, parse_line

from headlens.errors import CorpusError
from headlens.text.corpus import Sentence, Word
from headlens.text.entity_marks import MarkedNode


def _cell(parse: Callable[[str], Any], expected: str) -> Callable[[list[str], int], Any]:
    def parser(cells: list[str], column: int) -> Any:
        try:
            return parse(cells[column])
        except (ParseException, ValueError):  # Python takes no number of thousands of digits
            raise ValueError(f"expected {expected}, found {cells[column]!r}.") from None

    return parser


# conllu leaves a column without a parser as it stands: FEATS, DEPS and MISC are never taken apart.
_PARSERS = {
    "id": _cell(parse_id_value, "a word id such as 3, 3-4 or 3.1 in column 1 (ID)"),
    "head": _cell(parse_int_value, "a whole number or `_` in column 7 (HEAD)"),
}


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
        token = _token(line, place)
        misc = token["misc"].split("|")
        if isinstance(token["id"], int):
            self._check_id(token["id"] == len(self._words) + 1, f"{len(self._words) + 1}", token["id"], place)
            self.nodes.append(len(self._words))
            self._words.append(_word(token, misc))
            self._places.append(place)
        elif token["id"] is not None and token["id"][1] == ".":
            major, _, minor = token["id"]
            expected = f"{len(self._words)}.{minor}"
            self._check_id(major == len(self._words), expected, f"{major}.{minor}", place)
            self.nodes.append(None)
        else:
            self._add_range(token["id"], misc, place)
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

    def _add_range(self, span: tuple[int, str, int] | None, misc: list[str], place: str) -> None:
        first = self._ranges[-1].last + 1 if self._ranges else 1
        first = max(first, len(self._words) + 1)
        found = "_" if span is None else f"{span[0]}-{span[2]}"
        right = span is not None and span[0] == first == len(self._words) + 1 and span[2] > first
        self._check_id(right, f"{len(self._words) + 1}, or a range that begins with {first}", found, place)
        if span is not None:
            self._ranges.append(_Range(span[0], span[2], misc, place))

    def _apply_range(self, span: _Range) -> None:
        last = span.last - 1
        for index in range(span.first - 1, last):
            self._words[index] = replace(self._words[index], space_after=False)
        if "SpaceAfter=No" in span.misc:
            self._words[last] = replace(self._words[last], space_after=False)
        if value := _entity(span.misc):
            first_node, last_node = self.nodes.index(span.first - 1), self.nodes.index(last)
            self.marked.append(MarkedNode(first_node, last_node, value, span.place))


def _token(line: str, place: str) -> Token:
    cells = line.split("\t")
    if len(cells) != len(DEFAULT_FIELDS):
        raise CorpusError(
            f"{place}: expected {len(DEFAULT_FIELDS)} tab-separated columns, found {len(cells)}.",
            "Write one word a line in CoNLL-U's ten columns, `_` for an empty one.",
        )
    for column, cell in enumerate(cells):
        if not cell.strip(" "):
            raise CorpusError(
                f"{place}: expected a value in column {column + 1} ({DEFAULT_FIELDS[column].upper()}), "
                "found nothing.",
                "Write `_` for an empty column.",
            )
    try:
        # conllu takes two blanks for a column's end, so runs of blanks are made one.
        return parse_line(re.sub(" {2,}", " ", line), DEFAULT_FIELDS, _PARSERS)
    except ValueError as error:
        raise CorpusError(f"{place}: {error}", "Correct the column.") from None


def _word(token: Token, misc: list[str]) -> Word:
    return Word(
        form=token["form"],
        lemma=_or_empty(token["lemma"]),
        upos=_or_empty(token["upos"]),
        head=None if token["head"] is None else token["head"] - 1,
        deprel=_or_empty(token["deprel"]).partition(":")[0],
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
