"""Figures of papers, and the numbers of a run to hold against them."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path, PurePath
from typing import Any

from headlens.errors import InputError
from headlens.experiment.quantity import TAKES, Quantity
from headlens.experiment.sections import check_key
from headlens.util.files import COLUMNS as COLUMNS_OF

NEEDED = ("what", "value", "source", "run", "table", "column")
KEYS = (*NEEDED, "bound", "where", "over", "by", "take", "above", "relative_to")
BOUNDS = ("above", "below", "at least", "at most")
"""What a paper says of a number that it does not give."""
COLUMNS = [
    "model", "seed", "what", "measured", "bound", "published", "difference", "source", "found_in",
]  # fmt: skip


@dataclass(frozen=True, slots=True)
class Published:
    """One published figure.

    Args:
        what: in words.
        value: as published, in the unit of the table.
        bound: a name in `BOUNDS` where the paper gives no more than that; empty where it gives the number.
        source: paper and place in it.
        run: the section whose results it is held against.
        quantity: which number of that run.
        relative_to: another section, whose number of the same kind this one is divided by; empty for none.
    """

    what: str
    value: float
    bound: str
    source: str
    run: str
    quantity: Quantity
    relative_to: str

    def measured(self, place: Path) -> float:
        """Look the figure up in the results of one cell.

        Args:
            place: directory of the cell.

        Returns:
            The number; NaN where the results have no such row.

        Raises:
            InputError: there is no such table, it has no such column, or several rows where one is meant.
        """
        found = self.quantity.of(place / self.run, self.what)
        if not self.relative_to:
            return found
        other = self.quantity.of(place / self.relative_to, self.what)
        return found / other if other else math.nan

    @property
    def found_in(self) -> str:
        """Where the measured number stands, for people."""
        return f"{self.run}/{self.quantity}" + (f", over that of {self.relative_to}" * bool(self.relative_to))


def as_published(bound: str, value: float) -> str:
    """Write a published figure: ``0.57``, or ``at least 0.9``."""
    return f"{bound} {value:.4g}".strip()


def _can_match(where: Any) -> bool:
    """Whether these are columns with values, or lists of values, that cells can have."""
    if not isinstance(where, dict):
        return False
    lists = [value if isinstance(value, list) else [value] for value in where.values()]
    return all(isinstance(one, str | int | float) for values in lists for one in values)


def read_published(told: Mapping[str, Any], runs: Sequence[str], file: str) -> Published:
    """Check one published figure.

    Args:
        told: what the file says.
        runs: names of its sections.
        file: its name.

    Returns:
        The figure.

    Raises:
        InputError: something is missing, unknown, or of the wrong kind.
    """
    where = f"[[published]] of {file}"
    for key in told:
        check_key(key, KEYS, where)
    for key in NEEDED:
        if key not in told:
            raise InputError(f"{where} lacks {key}: {dict(told)!r}.", "Say it.")
    for key in ("run", "relative_to"):
        if key in told and told[key] not in runs:
            raise InputError(f"{where} names the run {told[key]!r}.", f"There are: {', '.join(runs)}.")
    bound = str(told.get("bound", ""))
    check_key(bound, ["", *BOUNDS], f"bound in {where}")
    return Published(
        what=str(told["what"]),
        value=_number(told, "value", where),
        bound=bound,
        source=str(told["source"]),
        run=str(told["run"]),
        quantity=_quantity(told, where),
        relative_to=str(told.get("relative_to", "")),
    )


def _quantity(told: Mapping[str, Any], where: str) -> Quantity:
    take, by, rows = str(told.get("take", "only")), told.get("by", []), told.get("where", {})
    check_key(take, list(TAKES), f"take in {where}")
    if not _can_match(rows):
        raise InputError(f"{where} has where = {rows!r}.", 'Write where = { COLUMN = "VALUE" }.')
    if not isinstance(by, list):
        raise InputError(f"{where} has by = {by!r}.", 'Write a list such as by = ["layer", "head"].')
    if (take == "share") != ("above" in told):
        raise InputError(f"{where} has take = {take!r}.", 'take = "share" goes with above = a number.')
    if str(told["table"]).endswith(".json"):
        for key in ("where", "over", "by"):
            if key in told:
                raise InputError(f"{where} has {key}, and {told['table']} has no rows.", "Leave it out.")
    if PurePath(str(told["table"])).name != str(told["table"]):
        raise InputError(
            f"{where} names the table {told['table']!r}.", "Write the name of a file of the run."
        )
    made = Quantity(
        table=str(told["table"]),
        column=str(told["column"]),
        where=rows,
        over=str(told["over"]) if "over" in told else None,
        by=[str(name) for name in by],
        take=take,
        above=_number(told, "above", where) if "above" in told else 0.0,
    )
    for name in made.columns:
        check_key(name, COLUMNS_OF.get(made.table, made.columns), f"{made.table} in {where}")
    return made


def _number(told: Mapping[str, Any], key: str, where: str) -> float:
    if isinstance(told[key], bool) or not isinstance(told[key], int | float):
        raise InputError(f"{where} has {key} = {told[key]!r}.", "Write a number.")
    if not math.isfinite(told[key]):
        raise InputError(f"{where} has {key} = {told[key]!r}.", "Write a number that is finite.")
    return float(told[key])
