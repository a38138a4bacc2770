"""How one number is made of what a run wrote: some rows of a table, and what becomes of them."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pandas as pd

from headlens.errors import InputError
from headlens.util.files import is_there, load_record, read_checked

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
        if path.suffix == ".json":
            return self._fact(_read(path, [], what))
        rows = self._rows(path, what)
        values = self._values(rows)
        if self.take == "only" and len(values) > 1:
            raise InputError(
                f"The published figure {what!r}: {len(values)} rows of {self.table} match, where take = "
                '"only" means one.',
                f"Say more under where, or take = one of {', '.join(TAKES)}.",
            )
        found = TAKES[self.take](values, self.above)
        return found if len(rows) or self.take == "count" else math.nan

    def _rows(self, path: Path, what: str) -> pd.DataFrame:
        """The rows of a table that are meant."""
        rows: pd.DataFrame = _read(path, [self.column, self.over] if self.over else [self.column], what)
        there = list(map(str, rows))
        for name in self.columns:
            if name not in rows:
                raise _not_there(what, f"{self.table} has no column {name!r}", there)
        for name, wanted in self.where.items():
            rows = rows[_matches(rows, name, wanted)]
        told = rows[self.column].dropna()
        if self.take != "count" and len(told) and _numbers(told).isna().all():
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
            parts = pd.DataFrame({"upper": upper * rows[WEIGHT], "lower": lower * rows[WEIGHT]})
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


def _read(path: Path, numbers: Sequence[str], what: str) -> Any:
    try:
        if path.suffix == ".json":
            return load_record(path)
        blank = {name: [""] for name in numbers}
        return pd.read_csv(read_checked(path), keep_default_na=False, na_values=blank)
    except (OSError, ValueError) as error:  # pandas' own errors are ValueErrors
        raise InputError(
            f"The published figure {what!r}: {path} cannot be read: {error}.", "Make the run again."
        ) from error


def _not_there(what: str, problem: str, there: Sequence[str]) -> InputError:
    return InputError(f"The published figure {what!r}: {problem}.", f"There is: {', '.join(there)}.")


def _numbers(column: pd.Series) -> pd.Series:
    return pd.to_numeric(column.replace({"True": 1, "False": 0}), errors="coerce").astype(float)


def _matches(rows: pd.DataFrame, name: str, wanted: Any) -> Any:
    """Which rows have a value in a column, or one of several; the value says whether it is text or number."""
    if isinstance(wanted, list):
        found = [_matches(rows, name, one) for one in wanted]
        return pd.concat(found, axis=1).any(axis=1) if found else rows[name] != rows[name]
    if isinstance(wanted, bool):
        return rows[name].astype(str) == str(wanted)
    if isinstance(wanted, int | float):
        return pd.to_numeric(rows[name], errors="coerce") == wanted
    return rows[name].astype(str) == wanted
