"""Reads the `Entity=` marks of CorefUD and GUM into mentions.

Marks of different entities may cross; those of one entity nest, so the mention opened last is closed first.
The parts of a discontinuous mention are numbered: `e1[1/2]`, `e1[2/2]`. As in UD's own validator, no mention
crosses the end of its sentence.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from headlens.errors import CorpusError
from headlens.text.corpus import KINDS, Mention, Sentence
from headlens.text.entity_marks import EntityFields, Mark, MarkedNode, split_marks

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
