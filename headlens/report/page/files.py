"""Reading what a finished run left, and carrying its files inside a page."""

from __future__ import annotations

import base64
import shlex
import zlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pandas as pd

from headlens.errors import RunError
from headlens.util.files import is_directory, is_there, load_json, load_record, open_regular, read_csv

AGAIN = "Make the run again."
_KINDS = (Mapping, str, int | float, list | tuple)


@dataclass(frozen=True, slots=True)
class File:
    """A file that a page carries, to be saved from it as it is on disk.

    Args:
        name: of the file.
        content: its bytes.
    """

    name: str
    content: bytes

    @classmethod
    def read(cls, path: Path) -> File:
        """Read it.

        Args:
            path: where it is.

        Returns:
            The file.

        Raises:
            RunError: it cannot be read.
        """
        try:
            with open_regular(path) as file:
                return cls(path.name, file.read())
        except OSError as error:
            raise RunError(f"{path} cannot be read: {error.strerror}.", AGAIN) from error

    @property
    def size(self) -> str:
        """Its size for readers."""
        count = len(self.content)
        return f"{count / 1000:,.0f} kB" if count >= 1000 else f"{count} bytes"

    @property
    def coded(self) -> str:
        """Its bytes as base64 of a zlib stream, which browsers can open."""
        return base64.b64encode(zlib.compress(self.content, 9)).decode()


def read_run(path: Path, known: Sequence[str]) -> dict[str, Any]:
    """Read the run.json of a run directory.

    Args:
        path: the directory.
        known: commands whose runs are wanted.

    Returns:
        What it says.

    Raises:
        RunError: it is not there, broken, or of another command.
    """
    wanted = f"a finished run of headlens {', '.join(known[:-1])} or {known[-1]}"
    if not is_directory(path):
        raise RunError(f"Expected the directory of {wanted}; there is no directory {path}.", _remedy(known))
    if not is_there(path / "run.json"):
        inside = sorted(str(file.parent) for file in path.glob("*/run.json"))
        remedy = f"Give the runs inside it: {shlex.join(inside)}" if inside else _remedy(known)
        raise RunError(f"Expected {wanted}; {path} has no run.json.", remedy)
    run = _loaded(path / "run.json", load_record)
    command = run.get("command") if isinstance(run, dict) else None
    if command not in known:
        raise RunError(f"Expected {wanted}; {path} holds one of headlens {command or '?'}.", _remedy(known))
    return dict(run)


def read_json(file: Path) -> Any:
    """Read a JSON file of a run.

    Args:
        file: where it is.

    Returns:
        What it says.

    Raises:
        RunError: it cannot be read.
    """
    return _loaded(file, load_json)


def _loaded(file: Path, load: Callable[[Path], Any]) -> Any:
    try:
        return load(file)
    except (OSError, ValueError) as error:
        raise RunError(f"{file} cannot be read: {error}.", AGAIN) from error


def read_table(file: Path, columns: Sequence[str], text: Sequence[str]) -> pd.DataFrame:
    """Read a table of a run.

    Args:
        file: where it is.
        columns: that it must have.
        text: those of them that hold text; the others hold numbers.

    Returns:
        The table, these columns alone; empty texts are empty, empty numbers NaN.

    Raises:
        RunError: it is not there, broken, or lacks a column.
    """
    if not is_there(file):
        raise RunError(f"Expected {file.name} in {file.parent}; it is not there.", AGAIN)
    try:
        return read_csv(file, columns, text)
    except LookupError as error:
        raise RunError(f"{file} has no column {error.args[0]}.", AGAIN) from error
    except (OSError, ValueError) as error:  # pandas' own errors are ValueErrors
        raise RunError(f"{file} cannot be read: {error}.", AGAIN) from error


def failed_checks(run: Mapping[str, Any]) -> list[str]:
    """Say which of the checks that were made before a run failed, and what that means.

    Args:
        run: its run.json.

    Returns:
        A sentence or two for each.
    """
    checks = at(run, "checks")
    return [
        f"The check {name} failed: {at(facts, 'said')}. {at(facts, 'meaning')}"
        for name, facts in (checks.items() if isinstance(checks, Mapping) else ())
        if at(facts, "passed") is False
    ]


def at(run: Mapping[str, Any], *path: str, default: Any = None) -> Any:
    """Look something up in a run.json, which may say nothing about it.

    Args:
        run: what it says.
        path: names, from the outside in.
        default: what is found where it says nothing; what it says must be of the same kind, a list or tuple,
            a number, text, ... None takes any.

    Returns:
        What it says there.

    Raises:
        RunError: it says something of another kind.
    """
    found: Any = run
    for name in path:
        found = found.get(name) if isinstance(found, Mapping) else None
    if found is None or default is None:
        return default if found is None else found
    kind = next(kind for kind in _KINDS if isinstance(default, kind))
    number = (
        isinstance(found, int | float) and not isinstance(found, bool) and abs(found) < 2**63
    )  # NaN is none
    if not isinstance(found, kind) or (kind == int | float and not number):
        raise RunError(f"run.json has {'.'.join(path)} = {found!r}, which headlens never writes.", AGAIN)
    return found


def _remedy(known: Sequence[str]) -> str:
    return f"Give what you gave a headlens {', '.join(known[:-1])} or {known[-1]} as --out."
