"""Builds one Sentence and its mentions from the rows of a CoNLL-2012 sentence."""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

from headlens.errors import CorpusError
from headlens.text.corpus import Mention, Sentence, Word
from headlens.text.treeless import mention_kind, top_word

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
class Row:
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
    def parse(cls, text: str, path: str, line: int) -> Row:
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


def build_sentence(rows: Sequence[Row], path: str, index: int) -> tuple[Sentence, list[Mention]]:
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


def _spans(rows: Sequence[Row]) -> list[tuple[str, int, int]]:
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


def _marks(row: Row) -> list[tuple[bool, str, bool]]:
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
