"""The numbered lines of a text file in UTF-8; what is wrong with the file is told to a person."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Protocol

from headlens.errors import CorpusError, InputError
from headlens.util.files import IrregularFileError, open_regular

_BOM = b"\xef\xbb\xbf"
LONGEST = 2**26  # bytes of a line; a file of other things may have no line end for gigabytes


class Digest(Protocol):
    """What takes the bytes of files, such as `hashlib.sha256()`."""

    def update(self, data: bytes, /) -> None:
        """Take some bytes."""


def numbered_lines(
    path: Path, digest: Digest, kind: str, error: type[InputError] = CorpusError
) -> Iterator[tuple[int, str]]:
    r"""Read a file line by line.

    Args:
        path: the file; a regular one.
        digest: is given the bytes of the lines as they are read.
        kind: what the file should be, for errors, such as "CoNLL-U".
        error: what is raised.

    Yields:
        The 1-based number of each line, and the line without its end (``\n``, ``\r\n`` or ``\r``) and without
        a byte order mark.

    Raises:
        InputError: of the kind `error`, if the file cannot be read or is no UTF-8 text.
    """
    number = 0
    try:
        with open_regular(path) as file:
            while raw := file.readline(LONGEST + 1):
                digest.update(raw)
                if len(raw) > LONGEST:
                    raise _endless(raw, f"{path}, line {number + 1}", kind, error)
                if number == 0:
                    raw = raw.removeprefix(_BOM)
                for line in raw.removesuffix(b"\n").removesuffix(b"\r").split(b"\r"):
                    number += 1
                    yield number, _decode(line, f"{path}, line {number}", kind, error)
    except OSError as problem:
        raise unreadable(path, kind, problem, error) from None


def read_text(path: Path, kind: str = "text", error: type[InputError] = InputError) -> str:
    r"""Read a text file.

    Args:
        path: the file; a regular one.
        kind: what the file should be, for errors.
        error: what is raised.

    Returns:
        Its text, without byte order mark, its lines joined by ``\n``.

    Raises:
        InputError: of the kind `error`, if the file cannot be read or is no UTF-8 text.
    """
    return "\n".join(line for _, line in numbered_lines(path, _Nothing(), kind, error))


class _Nothing:
    def update(self, data: bytes, /) -> None:
        """Take no notice."""


def unreadable(path: Path, kind: str, problem: OSError, error: type[InputError] = CorpusError) -> InputError:
    """Say why a file cannot be read.

    Args:
        path: the file.
        kind: what it should be, such as "CoNLL-U".
        problem: what opening or reading it raised.
        error: what is made.

    Returns:
        The error.
    """
    if isinstance(problem, FileNotFoundError):
        return error(f"Expected a {kind} file at {path}, found nothing.", "Check the path.")
    if isinstance(problem, IsADirectoryError):
        return error(f"Expected a {kind} file at {path}, found a directory.", "Name the files in it.")
    if isinstance(problem, IrregularFileError):
        return error(f"Expected a {kind} file at {path}, found {problem.found}.", problem.remedy)
    return error(
        f"Expected to read the {kind} file {path}, but: {problem.strerror}.", "Make the file readable."
    )


def _endless(raw: bytes, place: str, kind: str, error: type[InputError]) -> InputError:
    if b"\0" in raw:
        return _nul(place, kind, error)
    size = f"{LONGEST // 2**20} MiB"
    return error(f"{place}: expected text, found a line of more than {size}.", "Break it into lines.")


def _nul(place: str, kind: str, error: type[InputError]) -> InputError:
    return error(f"{place}: expected text, found a NUL byte.", f"Name a {kind} file in UTF-8.")


def _decode(raw: bytes, place: str, kind: str, error: type[InputError]) -> str:
    if b"\0" in raw:
        raise _nul(place, kind, error)
    try:
        return raw.decode("utf-8")
    except UnicodeDecodeError as problem:
        found = f"byte 0x{raw[problem.start]:02x} at position {problem.start + 1}"
        raise error(f"{place}: expected UTF-8, found {found}.", "Convert the file to UTF-8.") from None
