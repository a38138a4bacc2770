"""Takes the value of an `Entity=` attribute apart into marks.

The order of a mark's fields is stated by `# global.Entity`. A mark opens a mention (`(e1-person-2`), closes
it (`e1)`) or does both on one line (`(e1-person-1)`); several stand in one value without a separator.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass

from headlens.errors import CorpusError

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
