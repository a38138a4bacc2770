"""Published figures in an experiment file, and the numbers of a run to hold against them."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from difflib import get_close_matches
from pathlib import Path, PurePath
from typing import Any

import pandas as pd

from headlens.errors import InputError, RunError
from headlens.runs.read import read_cells, read_record
from headlens.util.files import COLUMNS as COLUMNS_OF
from headlens.util.files import is_there

NEEDED = ("what", "value", "source", "run", "table", "column")
KEYS = (*NEEDED, "bound", "where", "over", "by", "take", "above", "relative_to")
BOUNDS = ("above", "below", "at least", "at most")
"""What a paper says of a number that it does not give."""


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


def check_key(key: str, known: Sequence[str], where: str) -> None:
    """Refuse a key that means nothing, with the nearest that does.

    Args:
        key: what the file says.
        known: what it can say.
        where: the file and the section.

    Raises:
        InputError: the key is not known.
    """
    if key in known:
        return
    near = get_close_matches(key, known, n=1, cutoff=0.5)
    remedy = f"Did you mean {near[0]}?" if near else f"It can have: {', '.join(sorted(known))}."
    raise InputError(f"{where} cannot have {key!r}.", remedy)


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


def _can_match(where: Any) -> bool:
    """Whether these are columns with values, or lists of values, that cells can have."""
    if not isinstance(where, dict):
        return False
    lists = [value if isinstance(value, list) else [value] for value in where.values()]
    return all(isinstance(one, str | int | float) for values in lists for one in values)


def _number(told: Mapping[str, Any], key: str, where: str) -> float:
    if isinstance(told[key], bool) or not isinstance(told[key], int | float):
        raise InputError(f"{where} has {key} = {told[key]!r}.", "Write a number.")
    if not math.isfinite(told[key]):
        raise InputError(f"{where} has {key} = {told[key]!r}.", "Write a number that is finite.")
    return float(told[key])


# ---- How one number is made of what a run wrote: some rows of a table, and what becomes of them


TAKES: Mapping[str, Callable[[pd.Series, float], float]] = {
    "only": lambda values, _: float(values.iloc[0]) if len(values) else math.nan,
    "max": lambda values, _: float(values.max()),
    "min": lambda values, _: float(values.min()),
    "mean": lambda values, _: float(values.mean()),
    "count": lambda values, _: float(len(values)),
    "share": lambda values, above: float((values.dropna() > above).mean()),
}
"""How numbers become one; *share* is of those that were measured."""
WEIGHT = "n"  # the column that says what a row rests on


@dataclass(frozen=True, slots=True)
class Quantity:
    """One number of a run.

    Args:
        table: a CSV file of the run, or run.json.
        column: of the table; of run.json a path of keys joined by dots.
        where: values of other columns that the rows must have; a list means any of them.
        over: a column that this one is divided by, row by row; None for the column itself.
        by: columns; rows that agree in them become one first, each as heavy as its n.
        take: how the rows' numbers become one, a name in `TAKES`.
        above: what a number must pass to count for the take "share".
    """

    table: str
    column: str
    where: Mapping[str, Any]
    over: str | None
    by: Sequence[str]
    take: str
    above: float

    @property
    def columns(self) -> list[str]:
        """The columns that a table must have."""
        divided = [self.column, self.over] if self.over else [self.column]
        return [*divided, *self.where, *self.by, *([WEIGHT] if self.by else [])]

    def of(self, run: Path, what: str) -> float:
        """Look the number up.

        Args:
            run: directory of the run.
            what: what it is held against, for messages.

        Returns:
            The number; NaN where the results have no such row.

        Raises:
            InputError: there is no such table, it has no such column, or several rows where one is meant.
        """
        path = run / self.table
        if not is_there(path):
            there = [*sorted(one.name for one in run.glob("*.csv")), "run.json"]
            raise _not_there(what, f"the run {run.name} wrote no {self.table}", there)
        try:
            if path.suffix == ".json":
                return self._fact(read_record(path))
            table = read_cells(path)
        except RunError as error:
            raise InputError(f"The published figure {what!r}: {error.problem}", error.remedy) from error
        rows = self._rows(table, what)
        values = self._values(rows)
        if self.take == "only" and len(values) > 1:
            raise InputError(
                f"The published figure {what!r}: {len(values)} rows of {self.table} match, where take = "
                '"only" means one.',
                f"Say more under where, or take = one of {', '.join(TAKES)}.",
            )
        found = TAKES[self.take](values, self.above)
        return found if len(rows) or self.take == "count" else math.nan

    def _rows(self, rows: pd.DataFrame, what: str) -> pd.DataFrame:
        """The rows of a table that are meant."""
        there = list(map(str, rows))
        for name in self.columns:
            if name not in rows:
                raise _not_there(what, f"{self.table} has no column {name!r}", there)
        for name, wanted in self.where.items():
            rows = rows[_matches(rows[name], wanted)]
        cells = rows[self.column][rows[self.column] != ""]
        if self.take != "count" and len(cells) and _numbers(cells).isna().all():
            raise _not_there(what, f"{self.column} of {self.table} holds no numbers", there)
        return rows

    def _fact(self, value: Any) -> float:
        for key in self.column.split("."):
            value = value.get(key) if isinstance(value, dict) else None
        known = isinstance(value, int | float) and abs(value) < 2**63
        return float(value) if known else math.nan

    def _values(self, rows: pd.DataFrame) -> pd.Series:
        """The rows' numbers, or those of the rows that each group became."""
        upper = _numbers(rows[self.column])
        lower = _numbers(rows[self.over]) if self.over else pd.Series(1.0, index=rows.index)
        if self.by:
            weights = _numbers(rows[WEIGHT])
            parts = pd.DataFrame({"upper": upper * weights, "lower": lower * weights})
            groups = [rows[name] for name in self.by]
            sums = parts[parts.notna().all(axis=1)].groupby(groups, sort=False).sum()
            upper, lower = sums["upper"], sums["lower"]
        return upper / lower.where(lower != 0)

    def __str__(self) -> str:
        """Where it stands and how it is made, for people."""
        made = f"{self.table}: {self.take} of {self.column}" + (f" / {self.over}" if self.over else "")
        made += f" by {' and '.join(self.by)}" if self.by else ""
        made += f" above {self.above:g}" if self.take == "share" else ""
        rows = ", ".join(f"{name} {value}" for name, value in self.where.items())
        return made + (f" where {rows}" if rows else "")


def _not_there(what: str, problem: str, there: Sequence[str]) -> InputError:
    return InputError(f"The published figure {what!r}: {problem}.", f"There is: {', '.join(there)}.")


def _numbers(cells: pd.Series) -> pd.Series:
    """The numbers in cells of text, NaN in others; a truth is 1 or 0."""
    return pd.to_numeric(cells.replace({"True": "1", "False": "0"}), errors="coerce").astype(float)


def _matches(cells: pd.Series, wanted: Any) -> pd.Series:
    """Which cells have a value, or one of several; the value says whether it is text or number."""
    if isinstance(wanted, list):
        found = [_matches(cells, value) for value in wanted]
        return pd.concat(found, axis=1).any(axis=1) if found else cells != cells
    if isinstance(wanted, int | float) and not isinstance(wanted, bool):
        return pd.to_numeric(cells, errors="coerce") == wanted
    return cells == str(wanted)
