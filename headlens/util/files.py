"""Files: opened without following surprises, written whole, locked, checksummed; and tables in CSV."""

from __future__ import annotations

import errno
import hashlib
import io
import json
import os
import re
import socket
import stat
import sys
import tempfile
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from datetime import datetime
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np
import pandas as pd
from filelock import FileLock, Timeout
from numpy.typing import NDArray
from tqdm import tqdm

from headlens.errors import InputError, RunError

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


# ---- Folders and names inside a run directory: nothing is written or removed outside


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


# ---- Checksums of what a run leaves: a byte that changed, or a file of something else, is noticed


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


# ---- Tables as CSV that any program reads and no spreadsheet runs; and `HeadScores`, the one result


_HEAD = ["stack", "layer", "head"]
_PROOF = ["ci_low", "ci_high", "p_value", "q_value", "n"]
SCORES = [*_HEAD, "tag", "measure", "score", "baseline", "effect", *_PROOF, "tagged"]
TAGS = [*_HEAD, "tags", "evidence"]
ABLATION = ["condition", "sweep", "mode", "removed", "n_removed"]
ABLATION += ["metric", "value", "baseline", "delta", *_PROOF, "no_significant_loss"]
ABLATION += ["control_of", "kept", "tag"]
CONTROLS = ["condition", "metric", "value", "random_mean", "random_low", "random_high"]
CONTROLS += ["at_least_as_bad", "draws", "as_bad_or_worse"]
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

_WHOLE = frozenset((
    "layer", "head", "layer_a", "head_a", "layer_b", "head_b", "n", "n_removed", "draws", "as_bad_or_worse",
))  # fmt: skip
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
    write_text(csv_text(frame, columns), path)


def csv_text(frame: pd.DataFrame, columns: Sequence[str] | None = None) -> str:
    """A table as `write_csv` writes it."""
    table = pd.DataFrame(frame, columns=None if columns is None else list(columns)).copy()
    # as objects: a string type would refuse a lone surrogate, which is written as its escape
    table.columns = pd.Index([_harmless(name) for name in table.columns], dtype=object)
    for name in table.columns:
        if not pd.api.types.is_numeric_dtype(table[name]) and not pd.api.types.is_bool_dtype(table[name]):
            cells = [_harmless(cell) for cell in table[name]]
            table[name] = pd.Series(cells, index=table.index, dtype=object)
    return table.to_csv(index=False, float_format="%.9g", lineterminator="\n")


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


# ---- One process at a time writes into a run directory: a lock that the system takes away with the process


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
