"""Opens the files that users name: regular ones only, for a pipe or a device can hang or never end."""

from __future__ import annotations

import errno
import hashlib
import json
import os
import stat
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any, BinaryIO

_OTHERS = (
    (stat.S_ISFIFO, "a pipe", "Write what comes through it to a file, and name that."),
    (stat.S_ISSOCK, "a socket", "Write what comes through it to a file, and name that."),
    (stat.S_ISCHR, "a device", "Name a file."),
    (stat.S_ISBLK, "a device", "Name a file."),
)


class IrregularFileError(OSError):
    """Something that is no regular file: a pipe, a socket, a device; `strerror` says which.

    Args:
        found: what it is.
        path: where.
        remedy: what to do instead.
    """

    def __init__(self, found: str, path: Path, remedy: str) -> None:
        super().__init__(errno.EINVAL, f"it is {found}, no file", str(path))
        self.found = found
        self.remedy = remedy


def check_regular(path: Path) -> None:
    """Refuse what is no regular file, without opening it.

    Args:
        path: where it is; links are followed.

    Raises:
        OSError: it is not there, a directory, or no file (`IrregularFileError`).
    """
    try:
        mode = path.stat().st_mode
    except ValueError:  # a NUL in its name
        raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), str(path)) from None
    if stat.S_ISDIR(mode):
        raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR), str(path))
    for is_one, found, remedy in _OTHERS:
        if is_one(mode):
            raise IrregularFileError(found, path, remedy)


def open_regular(path: Path) -> BinaryIO:
    """Open a file to read its bytes.

    Args:
        path: the file.

    Returns:
        The open file.

    Raises:
        OSError: as `check_regular`, or it may not be read.
    """
    check_regular(path)
    return path.open("rb")


def file_sha256(paths: Iterable[Path]) -> str:
    """Hash the bytes of files, in order.

    Args:
        paths: the files.

    Returns:
        Hex digest.

    Raises:
        OSError: one cannot be read.
    """
    digest = hashlib.sha256()
    for path in paths:
        with open_regular(path) as file:
            while piece := file.read(2**20):
                digest.update(piece)
    return digest.hexdigest()


def load_json(path: Path) -> Any:
    """Read a JSON file.

    Args:
        path: the file.

    Returns:
        What it says.

    Raises:
        OSError: it cannot be read.
        ValueError: it is no JSON in UTF-8.
    """
    with open_regular(path) as file:
        return parse_json(file.read().decode("utf-8"))


def parse_json(text: str, made_of: Callable[[list[tuple[str, Any]]], Any] | None = None) -> Any:
    """Read JSON.

    Args:
        text: the JSON.
        made_of: makes an object of its names and values; by default a dict, in which the last of
            equal names wins.

    Returns:
        What it says.

    Raises:
        ValueError: it is no JSON, or nested deeper than can be read.
    """
    try:
        return json.loads(text, object_pairs_hook=made_of)
    except json.JSONDecodeError:
        raise
    except RecursionError:
        raise ValueError("it is nested too deeply") from None
    except ValueError:  # Python takes no integer of thousands of digits
        raise ValueError("it has a number of too many digits") from None


def is_directory(path: Path) -> bool:
    """Tell whether a directory is there; a name that no file system takes is none."""
    try:
        return path.is_dir()
    except (OSError, ValueError):
        return False


def is_there(path: Path) -> bool:
    """Tell whether a regular file is there; a name that no file system takes is none."""
    try:
        return path.is_file()
    except (OSError, ValueError):
        return False


def from_home(name: str) -> Path:
    """Read a path as a shell does: ``~`` is the home directory, but ``~x`` is a file where x is no user."""
    try:
        return Path(name).expanduser()
    except RuntimeError:
        return Path(name)
