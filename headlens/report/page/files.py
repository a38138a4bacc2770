"""Reading what a finished run left, and carrying its files inside a page."""

from __future__ import annotations

import base64
import json
import zlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pandas as pd

from headlens.errors import RunError

AGAIN = "Make the run again."


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
            return cls(path.name, path.read_bytes())
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
    if not path.is_dir():
        raise RunError(f"Expected the directory of {wanted}; there is no directory {path}.", _remedy(known))
    if not (path / "run.json").is_file():
        inside = sorted(str(file.parent) for file in path.glob("*/run.json"))
        remedy = f"Give the runs inside it: {' '.join(inside)}" if inside else _remedy(known)
        raise RunError(f"Expected {wanted}; {path} has no run.json.", remedy)
    run = read_json(path / "run.json")
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
    try:
        return json.loads(file.read_text(encoding="utf-8"))
    except (OSError, ValueError, RecursionError) as error:
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
    if not file.is_file():
        raise RunError(f"Expected {file.name} in {file.parent}; it is not there.", AGAIN)
    try:
        table = pd.read_csv(file, dtype=dict.fromkeys(text, str), keep_default_na=False, na_values=[""])
        missing = [name for name in columns if name not in table]
        if not missing:
            table = table[list(columns)].fillna(dict.fromkeys(text, ""))
            for name in columns:
                if name not in text:
                    table[name] = pd.to_numeric(table[name])
    except (OSError, ValueError) as error:  # pandas' own errors are ValueErrors
        raise RunError(f"{file} cannot be read: {error}.", AGAIN) from error
    if missing:
        raise RunError(f"{file} has no column {missing[0]}.", AGAIN)
    return table


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
        default: what is found where it says nothing.

    Returns:
        What it says there.
    """
    found: Any = run
    for name in path:
        found = found.get(name) if isinstance(found, Mapping) else None
    return default if found is None else found


def _remedy(known: Sequence[str]) -> str:
    return f"Give what you gave a headlens {', '.join(known[:-1])} or {known[-1]} as --out."
