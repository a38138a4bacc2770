"""Tables as CSV that any program reads and no spreadsheet runs; and `HeadScores`, the one result."""

from __future__ import annotations

import os
import re
import tempfile
from collections.abc import Collection, Sequence
from pathlib import Path

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from headlens.checksums import read_checked
from headlens.errors import InputError, RunError

_HEAD = ["stack", "layer", "head"]
_PROOF = ["ci_low", "ci_high", "p_value", "q_value", "n"]
SCORES = [*_HEAD, "tag", "measure", "score", "baseline", "effect", *_PROOF, "tagged"]
TAGS = [*_HEAD, "tags", "evidence"]
ABLATION = ["condition", "sweep", "mode", "removed", "n_removed"]
ABLATION += ["metric", "value", "baseline", "delta", *_PROOF, "no_significant_loss"]
CONTROLS = ["condition", "metric", "value", "random_mean", "random_low", "random_high"]
CONTROLS += ["at_least_as_bad", "draws"]
IMPORTANCE = [*_HEAD, "method", "importance", "rank"]
GATES = [*_HEAD, "open_closing", "open_opening", "role"]
AGREEMENT = ["method_a", "method_b", "rho", "n"]
COLUMNS = {
    "scores.csv": SCORES,
    "tags.csv": TAGS,
    "ablation.csv": ABLATION,
    "controls.csv": CONTROLS,
    "importance.csv": IMPORTANCE,
    "gates.csv": GATES,
}
"""Of the tables that runs leave, by the names of their files."""

PART = (".headlens-", ".part")  # begin and end of the name of a file that is not whole yet

_WHOLE = ("layer", "head", "layer_a", "head_a", "layer_b", "head_b", "n", "n_removed", "draws")
_SIGNS = "=+\\-@\uff1d\uff0b\uff0d\uff20"
# where the comma is the decimal sign, spreadsheets take semicolons for the ends of cells, and quotes for text
_FORMULA = re.compile(f'^(?=[ \xa0]*[{_SIGNS}]|[\t\n])|([;\t\n][" ]*)(?=[{_SIGNS}])')


class HeadScores(pd.DataFrame):
    """Rows are heads, columns as in `SCORES`: a DataFrame that knows about layers and heads."""

    @property
    def _constructor(self) -> type[HeadScores]:
        return HeadScores

    def grid(self, measure: str, value: str = "score", stack: str | None = None) -> NDArray[np.float64]:
        """Lay one measure out over the model.

        Args:
            measure: a value of the column `measure`.
            value: the column to lay out.
            stack: which stack, needed where there are several.

        Returns:
            Array [layer, head], NaN where it was not measured.

        Raises:
            InputError: the measure or stack is not in the table.
        """
        rows = self[self["measure"] == measure]
        stacks = list(dict.fromkeys(rows["stack"]))
        if stack is None and len(stacks) == 1:
            stack = stacks[0]
        if stack not in stacks:
            known = ", ".join(stacks) or "none: the measures are " + ", ".join(dict.fromkeys(self["measure"]))
            problem = f"The measure {measure!r} was not taken on stack {stack!r}."
            raise InputError(problem, f"There is {known}.")
        rows = rows[rows["stack"] == stack]
        grid = np.full((int(rows["layer"].max()) + 1, int(rows["head"].max()) + 1), np.nan)
        grid[rows["layer"].to_numpy(int), rows["head"].to_numpy(int)] = rows[value].to_numpy(float)
        return grid


def write_csv(frame: pd.DataFrame, path: Path, columns: Sequence[str] | None = None) -> None:
    r"""Write a table: UTF-8, comma, header, empty cells for "not measured", the same bytes every time.

    What a spreadsheet would run as a formula (a text that begins with a tab, a line end or, behind blanks
    or not, one of ``= + - @``, or that has such a sign behind a semicolon, tab or line end) gets a quote mark
    in front. Line ends in a text are written as ``\n``.

    Args:
        frame: the table; its index is not written.
        path: the file; it appears whole or not at all.
        columns: the columns, in order; all by default.

    Raises:
        RunError: the file cannot be written.
    """
    table = pd.DataFrame(frame, columns=None if columns is None else list(columns)).copy()
    # as objects: a string type would refuse a lone surrogate, which is written as its escape
    table.columns = pd.Index([_harmless(name) for name in table.columns], dtype=object)
    for name in table.columns:
        if not pd.api.types.is_numeric_dtype(table[name]) and not pd.api.types.is_bool_dtype(table[name]):
            cells = [_harmless(cell) for cell in table[name]]
            table[name] = pd.Series(cells, index=table.index, dtype=object)
    text = table.to_csv(index=False, float_format="%.9g", lineterminator="\n")
    write_text(text, path)


def read_csv(path: Path, columns: Sequence[str], text: Collection[str]) -> pd.DataFrame:
    """Read a table that `write_csv` wrote.

    Args:
        path: the file.
        columns: that it must have.
        text: those of them that hold text; the others hold numbers, numbers of layers and heads and counts
            whole ones.

    Returns:
        These columns alone; empty texts are empty, empty numbers NaN.

    Raises:
        OSError: it cannot be read.
        LookupError: it lacks the column that this names.
        ValueError: it is no table, a number is none, or it is not as its run left it.
    """
    content, kinds = read_checked(path), dict.fromkeys(text, str)
    table = pd.read_csv(content, dtype=kinds, keep_default_na=False, na_values=[""], low_memory=False)
    for name in columns:
        if name not in table:
            raise LookupError(name)
    table = table[list(columns)].fillna(dict.fromkeys(text, ""))
    return table.assign(**{name: _numbers(table[name]) for name in columns if name not in text})


def _numbers(cells: pd.Series) -> pd.Series:
    numbers = pd.to_numeric(cells, errors="coerce").astype(float)
    right, kind = numbers.notna() | cells.isna(), "a number"
    if cells.name in _WHOLE:
        right, kind = (numbers % 1 == 0) & numbers.between(0, 2**53), "a whole number from 0"
    if not right.all():
        row = int(np.argmin(right.to_numpy()))
        found = f"row {row + 1} has {str(cells.iloc[row])!r}"
        raise ValueError(f"expected {kind} in the column {cells.name}, {found}")
    if cells.name in _WHOLE:
        return numbers.astype(np.int64)
    return cells if cells.dtype.kind in "if" else numbers


def write_text(text: str, path: Path) -> None:
    """Write a text file that appears whole or not at all.

    Args:
        text: its content; a lone surrogate is written as its escape.
        path: the file.

    Raises:
        RunError: the file cannot be written.
    """
    write_bytes(text.encode("utf-8", errors="backslashreplace"), path)


def write_bytes(content: bytes, path: Path) -> None:
    """Write a file that appears whole or not at all.

    Args:
        content: its content.
        path: the file; its folder is made where it is missing.

    Raises:
        RunError: the file cannot be written.
    """
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        handle, temporary = tempfile.mkstemp(PART[1], PART[0], path.parent)
        try:
            with os.fdopen(handle, "wb") as file:
                file.write(content)
            Path(temporary).chmod(0o666 & ~_umask())
            Path(temporary).replace(path)
        except BaseException:
            Path(temporary).unlink(missing_ok=True)
            raise
    except OSError as error:
        raise RunError(
            f"{path} cannot be written: {error.strerror}.", "Choose another place with --out, or make room."
        ) from error


def _harmless(cell: object) -> object:
    if not isinstance(cell, str):
        return cell
    lines = cell.replace("\r\n", "\n").replace("\r", "\n")  # a bare \r would begin a new row
    return _FORMULA.sub(lambda found: f"{found[1] or ''}'", lines)


def _umask() -> int:
    mask = os.umask(0)
    os.umask(mask)
    return mask
