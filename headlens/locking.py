"""One process at a time writes into a run directory: a lock that the system takes away with the process."""

from __future__ import annotations

import errno
import json
import os
import socket
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from datetime import datetime
from pathlib import Path

from filelock import FileLock, Timeout
from tqdm import tqdm

from headlens.errors import RunError
from headlens.places import FOLDERS
from headlens.regular import load_json
from headlens.tables import PART, write_text

LOCK = ".headlens.lock"
HOLDER = ".headlens.holder"  # who has the lock, for people; the lock itself says only that somebody has
_WITHOUT_LOCKS = (errno.ENOSYS, errno.ENOTSUP, errno.EOPNOTSUPP, errno.ENOLCK)  # file systems that have none


@contextmanager
def locked(out: Path) -> Iterator[Path]:
    """Keep other processes from writing into a run directory while the block lasts.

    The same thread may ask again inside the block. What a killed process left behind is removed first.

    Args:
        out: the directory; it is made where it is missing, and goes again if nothing was written.

    Yields:
        The same.

    Raises:
        RunError: another process writes there, or the directory cannot be made or written.
    """
    made = _made(out)
    lock = FileLock(out.resolve() / LOCK, is_singleton=True, fallback_to_soft=False)
    if lock.is_locked:
        yield out
        return
    try:
        _take(lock, out)
        try:
            _tell(out)
            _remove_leftovers(out)
            yield out
        finally:
            with suppress(OSError):  # the folder may be gone, or no longer be writable
                for name in (HOLDER, LOCK):
                    (out / name).unlink(missing_ok=True)
            lock.release()
    finally:
        if made:
            with suppress(OSError):  # something was written
                out.rmdir()


def _made(out: Path) -> bool:
    """Make a directory; False where it was there."""
    try:
        there = out.is_dir()
        out.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        problem = f"The directory {out} cannot be made: {error.strerror}."
        raise RunError(problem, "Choose another --out.") from error
    return not there


def _take(lock: FileLock, out: Path) -> None:
    try:
        lock.acquire(blocking=False)
    except Timeout:
        raise _held(out) from None
    except OSError as error:
        if error.errno in _WITHOUT_LOCKS:
            note = f"The file system of {out} has no locks: let no other headlens write there."
            tqdm.write(note, file=sys.stderr)
            return
        if not os.path.lexists(out / LOCK):
            problem = f"{out} cannot be written: {error.strerror}."
            raise RunError(problem, "Choose another place with --out, or make room.") from error
        why = "it is a link" if error.errno == errno.ELOOP else error.strerror
        raise RunError(
            f"{out / LOCK} cannot be locked: {why}.",
            "Remove it if no other headlens writes there, or choose another --out.",
        ) from error


def _tell(out: Path) -> None:
    """Say who has the lock; this also finds out whether anything can be written, before work is spent."""
    since = datetime.now().astimezone().isoformat(" ", "seconds")
    told = {"process": os.getpid(), "host": socket.gethostname(), "since": since}
    write_text(json.dumps(told) + "\n", out / HOLDER)


def _held(out: Path) -> RunError:
    """What to say where another process has the lock."""
    try:
        told = load_json(out / HOLDER)
        process, host, since = int(told["process"]), str(told["host"]), str(told["since"])
    except (OSError, ValueError, LookupError, TypeError):  # it has only just taken it, or lets go of it
        return RunError(
            f"{out} is being written by another process.", "Wait until it is done, or choose another --out."
        )
    return RunError(
        f"{out} is being written by process {process} on {host}, since {since}.",
        f"Wait until it is done, end it there (kill {process}), or choose another --out.",
    )


def _remove_leftovers(out: Path) -> None:
    """Remove what killed processes had begun to write: nobody else writes here now."""
    for folder in (out, *(out / name for name in FOLDERS)):
        if folder == out or not folder.is_symlink():
            for file in folder.glob(f"{PART[0]}*{PART[1]}"):
                with suppress(OSError):
                    file.unlink()
