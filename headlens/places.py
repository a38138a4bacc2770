"""Folders and names inside a run directory: nothing is written or removed outside."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterable
from pathlib import Path

from headlens.errors import RunError

FOLDERS = ("figures", "units")  # of a run directory

_PLAIN = re.compile(r"[\w +,-][\w .+,-]{0,99}", re.ASCII)  # names that every file system takes as they are


def inner_folder(out: Path, name: str) -> Path:
    """Name a folder inside a run directory.

    Args:
        out: the run directory.
        name: of the folder.

    Returns:
        Its path; it need not be there.

    Raises:
        RunError: it is a link: what is written or removed there would be so somewhere else.
    """
    folder = out / name
    if folder.is_symlink():
        raise RunError(
            f"{folder} is a link, and headlens writes inside the run directory only.",
            "Remove the link, or choose another --out.",
        )
    return folder


def file_name(name: str) -> str:
    """Name a file after something: by its name, or by a digest where that is no plain one.

    Args:
        name: of what it is about.

    Returns:
        The name of a file, without an ending; other for every other name.
    """
    if _PLAIN.fullmatch(name):
        return name
    digest = hashlib.sha256(name.encode("utf-8", "surrogatepass")).hexdigest()[:32]
    return f"{re.sub(r'[^A-Za-z0-9 _-]+', '_', name)[:60]}.{digest}"


def remove(files: Iterable[Path]) -> None:
    """Remove files, those that are there.

    Args:
        files: where they are; of a link the link goes, not what it leads to.

    Raises:
        RunError: one cannot be removed.
    """
    for file in files:
        try:
            file.unlink(missing_ok=True)
        except OSError as error:
            problem = f"{file} cannot be removed: {error.strerror}."
            raise RunError(problem, "Choose another --out.") from error
