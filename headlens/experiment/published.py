"""Figures of papers, and the cells of result tables to hold against them."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path, PurePath
from typing import Any

import pandas as pd

from headlens.errors import InputError
from headlens.experiment.sections import check_key
from headlens.regular import is_there, load_json

KEYS = ("what", "value", "source", "run", "table", "where", "column", "take")
TAKES: Mapping[str, Callable[[pd.Series], float]] = {
    "only": lambda values: float(values.iloc[0]) if len(values) == 1 else math.nan,
    "max": lambda values: float(values.max()),
    "min": lambda values: float(values.min()),
    "mean": lambda values: float(values.mean()),
    "count": lambda values: float(len(values)),
}
"""How one number is made of the rows that are meant."""
COLUMNS = ["model", "seed", "what", "measured", "published", "difference", "source", "found_in"]


@dataclass(frozen=True, slots=True)
class Published:
    """One published figure.

    Args:
        what: in words.
        value: as published, in the unit of the table.
        source: paper and place in it.
        run: the section whose results it is held against.
        table: a CSV file of that run, or run.json.
        column: of the table; of run.json a path of keys joined by dots.
        where: values of other columns that the rows must have; a list means any of them.
        take: how the rows become one number, a name in `TAKES`.
    """

    what: str
    value: float
    source: str
    run: str
    table: str
    column: str
    where: Mapping[str, Any]
    take: str

    def measured(self, place: Path) -> float:
        """Look the figure up in the results of one cell.

        Args:
            place: directory of the cell.

        Returns:
            The number; NaN where the results have no such row, or several where one is meant.

        Raises:
            InputError: there is no such table, or it has no such column.
        """
        path = place / self.run / self.table
        if not is_there(path):
            there = [*sorted(one.name for one in path.parent.glob("*.csv")), "run.json"]
            raise self._wrong(f"the run {self.run} wrote no {self.table}", there)
        if path.suffix == ".json":
            value = self._read(path)
            for key in self.column.split("."):
                value = value.get(key) if isinstance(value, dict) else None
            return float(value) if isinstance(value, int | float) and abs(value) < 2**63 else math.nan
        rows = self._read(path)
        for name in (self.column, *self.where):
            if name not in rows:
                raise self._wrong(f"{self.table} has no column {name!r}", list(map(str, rows)))
        for name, wanted in self.where.items():
            rows = rows[_matches(rows, name, wanted)]
        values = pd.to_numeric(rows[self.column].replace({"True": 1, "False": 0}), errors="coerce")
        found = TAKES[self.take](values.astype(float))
        return found if len(rows) or self.take == "count" else math.nan

    def _read(self, path: Path) -> Any:
        try:
            if path.suffix == ".json":
                return load_json(path)
            return pd.read_csv(path, keep_default_na=False, na_values={self.column: [""]})
        except (OSError, ValueError) as error:  # pandas' own errors are ValueErrors
            raise InputError(
                f"The published figure {self.what!r}: {path} cannot be read: {error}.", "Make the run again."
            ) from error

    def _wrong(self, problem: str, there: Sequence[str]) -> InputError:
        return InputError(f"The published figure {self.what!r}: {problem}.", f"There is: {', '.join(there)}.")

    @property
    def found_in(self) -> str:
        """Where the measured number stands, for people."""
        rows = ", ".join(f"{name} {value}" for name, value in self.where.items())
        return f"{self.run}/{self.table}: {self.take} of {self.column}" + (f" where {rows}" if rows else "")


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
    for key in ("what", "value", "source", "run", "table", "column"):
        if key not in told:
            raise InputError(f"{where} lacks {key}: {dict(told)!r}.", "Say it.")
    if told["run"] not in runs:
        raise InputError(f"{where} names the run {told['run']!r}.", f"There are: {', '.join(runs)}.")
    take = str(told.get("take", "only"))
    check_key(take, list(TAKES), f"take in {where}")
    if PurePath(str(told["table"])).name != str(told["table"]):
        raise InputError(
            f"{where} names the table {told['table']!r}.", "Write the name of a file of the run."
        )
    if not _can_match(told.get("where", {})):
        raise InputError(f"{where} has where = {told['where']!r}.", 'Write where = { COLUMN = "VALUE" }.')
    if isinstance(told["value"], bool) or not isinstance(told["value"], int | float):
        raise InputError(f"{where} has value = {told['value']!r}.", "Write a number.")
    return Published(
        str(told["what"]), float(told["value"]), str(told["source"]), str(told["run"]),
        str(told["table"]), str(told["column"]), dict(told.get("where", {})), take,
    )  # fmt: skip
