"""Checksums of what a run leaves: a byte that changed, or a file of something else, is noticed."""

from __future__ import annotations

import hashlib
import io
import json
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from headlens.regular import file_sha256, load_json, open_regular

CHANGED = "it is not as headlens wrote it: its checksum is another"
_MARK = b"\nsha256 "
_LENGTH = len(_MARK) + 64 + 1  # with the end of the line


def seal(content: bytes, about: str) -> bytes:
    """Put a checksum behind the content of a file.

    Args:
        content: what the file holds.
        about: what it is about; a file that says the same of something else has another checksum.

    Returns:
        The content with a line more.
    """
    digest = hashlib.sha256(about.encode("utf-8", "surrogatepass") + b"\0" + content).hexdigest()
    return content + _MARK + digest.encode() + b"\n"


def unseal(sealed: bytes, about: str) -> bytes:
    """Check what `seal` made.

    Args:
        sealed: content with checksum.
        about: as it was sealed.

    Returns:
        The content.

    Raises:
        ValueError: a byte was changed, or it is about something else.
    """
    content = sealed[:-_LENGTH]
    if seal(content, about) != sealed:
        raise ValueError(CHANGED)
    return content


def with_checksums(record: Mapping[str, Any], out: Path, tables: Iterable[str]) -> dict[str, Any]:
    """Add to a record its own checksum, and those of the tables that it is about.

    Args:
        record: plain data.
        out: directory of the tables.
        tables: their names.

    Returns:
        The record with ``tables`` and ``sha256``.

    Raises:
        OSError: a table cannot be read.
    """
    whole = {**record, "tables": {name: file_sha256([out / name]) for name in tables}}
    return {**whole, "sha256": _digest(whole)}


def load_record(path: Path) -> Any:
    """Read a run.json.

    Args:
        path: the file.

    Returns:
        What it says.

    Raises:
        OSError: it cannot be read.
        ValueError: it is no JSON, or was changed since it was written; without checksum any is taken.
    """
    found = load_json(path)
    if isinstance(found, dict) and "sha256" in found:
        told = {name: value for name, value in found.items() if name != "sha256"}
        if _digest(told) != found["sha256"]:
            raise ValueError(CHANGED)
    return found


def read_checked(path: Path) -> io.BytesIO:
    """Read a table, and refuse one that is not as its run left it.

    Args:
        path: where it is; a run.json beside it may have its checksum.

    Returns:
        What it holds.

    Raises:
        OSError: it cannot be read.
        ValueError: it is another than the run wrote.
    """
    with open_regular(path) as file:
        content = file.read()
    try:
        known = load_json(path.with_name("run.json"))["tables"][path.name]
    except (OSError, ValueError, LookupError, TypeError):  # nothing is known of it
        return io.BytesIO(content)
    if hashlib.sha256(content).hexdigest() != known:
        raise ValueError(CHANGED)
    return io.BytesIO(content)


def is_whole(out: Path) -> bool:
    """Tell whether the record of a run and all tables that it names are there as they were written.

    Args:
        out: the run directory.

    Returns:
        True if so; a record without checksums is taken as it is.
    """
    try:
        tables = load_record(out / "run.json").get("tables", {})
        return all(file_sha256([out / name]) == known for name, known in tables.items())
    except (OSError, ValueError, AttributeError, TypeError):
        return False


def _digest(told: Mapping[str, Any]) -> str:
    return hashlib.sha256(json.dumps(told, sort_keys=True).encode()).hexdigest()
