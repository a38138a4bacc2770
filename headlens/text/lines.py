"""The numbered lines of a text file in UTF-8; what is wrong with the file is told to a person."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Protocol

from headlens.errors import CorpusError

_BOM = b"\xef\xbb\xbf"


class Digest(Protocol):
    """What takes the bytes of files, such as `hashlib.sha256()`."""

    def update(self, data: bytes, /) -> None:
        """Take some bytes."""


def numbered_lines(path: Path, digest: Digest, kind: str) -> Iterator[tuple[int, str]]:
    """Read a file line by line.

    Args:
        path: the file.
        digest: is given the bytes of the lines as they are read.
        kind: what the file should be, for errors, such as "CoNLL-U".

    Yields:
        The 1-based number of each line, and the line without its end and without a byte order mark.

    Raises:
        CorpusError: if the file cannot be read or is no UTF-8 text.
    """
    try:
        with path.open("rb") as file:
            for number, raw in enumerate(file, start=1):
                digest.update(raw)
                text = raw.removeprefix(_BOM) if number == 1 else raw
                yield number, _decode(text, f"{path}, line {number}", kind)
    except FileNotFoundError:
        raise CorpusError(f"Expected a {kind} file at {path}, found nothing.", "Check the path.") from None
    except IsADirectoryError:
        raise CorpusError(
            f"Expected a {kind} file at {path}, found a directory.", "Name the files in it."
        ) from None
    except OSError as error:
        raise CorpusError(
            f"Expected to read the {kind} file {path}, but: {error.strerror}.", "Make the file readable."
        ) from None


def _decode(raw: bytes, place: str, kind: str) -> str:
    if b"\0" in raw:
        raise CorpusError(f"{place}: expected text, found a NUL byte.", f"Name a {kind} file in UTF-8.")
    try:
        return raw.decode("utf-8").removesuffix("\n").removesuffix("\r")
    except UnicodeDecodeError as error:
        raise CorpusError(
            f"{place}: expected UTF-8, found byte 0x{raw[error.start]:02x} at position {error.start + 1}.",
            "Convert the file to UTF-8.",
        ) from None
