"""Results and their runs: tables and a record, saved, opened, drawn and reported in one way."""

from __future__ import annotations

import json
import math
import platform
import shlex
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass, is_dataclass, replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any, ClassVar

import click
import numpy as np
import pandas as pd

from headlens.errors import InputError, RunError
from headlens.model.lens import Lens
from headlens.runs.read import File, TableForm, read_form, read_run
from headlens.util import __version__
from headlens.util.drawing import artist
from headlens.util.files import (
    FOLDERS,
    csv_text,
    inner_folder,
    is_there,
    load_json,
    locked,
    remove,
    with_checksums,
    write_csv,
    write_text,
)

if TYPE_CHECKING:
    from matplotlib.figure import Figure
    from typing_extensions import Self


EXAMPLES = "examples.json"
_SUMS = ("tables", "sha256")  # checksums in run.json, which only the file has


@dataclass(frozen=True, slots=True)
class Examples:
    """What a report shows of single inputs: how to look at them, or, of an opened run, what was seen.

    Args:
        lens: the model.
        source: a corpus or a benchmark, whose first suitable inputs are shown.
        text: the file ``examples.json`` of a run.
    """

    lens: Any = None
    source: Any = None
    text: str = ""


class Result:
    """What a command found: frozen, with one table per attribute in `forms`, and what `run.json` says.

    Two results are equal if their tables say the same as files (nine digits of every number) and their
    records do.
    """

    command: ClassVar[str]
    forms: ClassVar[tuple[TableForm, ...]]
    run: Mapping[str, Any]
    """What run.json says, without checksums."""
    examples: Examples | None = None

    @property
    def tables(self) -> dict[str, pd.DataFrame]:
        """Its tables by the names of their files, without those that are optional and empty."""
        found = {form.file: (form, getattr(self, form.name)) for form in self.forms}
        return {file: table for file, (form, table) in found.items() if len(table) or not form.optional}

    @property
    def model(self) -> str:
        """The model's name, without its folders; empty if the run does not say."""
        model = self.run.get("model")
        return Path(str(model.get("name") or "")).name if isinstance(model, Mapping) else ""

    def noting(self, **facts: Any) -> Self:
        """The same result with more in its record: ``found.noting(checks=checks)``."""
        return replace(self, run={**self.run, **plain(facts)})  # type: ignore[type-var,unused-ignore]

    def fault(self) -> str:
        """Say what is wrong with it, since tables can be edited and replaced; nothing where it is whole."""
        if self.run.get("command") != self.command:
            return f"its record is none of headlens {self.command}"
        lacking = (
            f"{form.file} has no column {name}"
            for form in self.forms
            for name in form.columns
            if name not in getattr(self, form.name)
        )
        return next(lacking, "")

    def save(self, out: str | Path) -> Path:
        """Write a run directory: tables, figures, examples, ``report.html`` and ``run.json``.

        `headlens.open` gives the result back, equal to this one.

        Args:
            out: the directory; what the same command left there is replaced.

        Returns:
            The directory.

        Raises:
            InputError: the result is not whole.
            RunError: it cannot be written, or holds what another command wrote.
        """
        with prepare(Path(out), self.command) as place:
            self.write(place)
            self.show(place)
        return Path(out)

    def write(self, out: Path) -> None:
        """Write tables, figures and the record into a directory that `prepare` made ready."""
        if fault := self.fault():
            raise InputError(f"This {type(self).__name__} is not whole: {fault}.", "Put its tables right.")
        tables = self.tables
        for form in self.forms:
            if form.file in tables:
                write_csv(tables[form.file], out / form.file, form.columns)
        remove(out / form.file for form in self.forms if form.file not in tables)
        artist().save_figures(self, out)
        remove([out / EXAMPLES, out / "report.html"])
        save(out, self.run, tuple(tables))

    def show(self, out: Path) -> None:
        """Write examples and the page into a directory that has the rest."""
        artist().save_examples(self, out)
        artist().write_report([out], out / "report.html")

    def report(self, file: str | Path) -> Path:
        """Write one page with everything that was found: it needs no network and no other file.

        Args:
            file: where to write it.

        Returns:
            The file.

        Raises:
            InputError: the result is not whole.
            RunError: it cannot be written.
        """
        with TemporaryDirectory() as place:
            out = Path(place) / self.command
            out.mkdir()
            self.write(out)
            artist().save_examples(self, out)
            artist().write_report([out], Path(file))
        return Path(file)

    def plot(self, name: str | None = None) -> Figure:
        """Draw one figure.

        Args:
            name: of the figure, as in ``figures/``; the one that tells most by default.

        Returns:
            A matplotlib figure.

        Raises:
            InputError: there is no such figure.
        """
        names = []
        for found, figure in artist().figures(self):
            if name in (None, found):
                return figure
            names.append(found)
        if not names:
            raise InputError(
                "This result has no figure: its tables say all.", "Look at its tables, or report(FILE)."
            )
        raise InputError(f"There is no figure {name!r} of this result.", f"There is: {', '.join(names)}.")

    def _repr_html_(self) -> str:
        return artist().html(self)

    def __repr__(self) -> str:
        sizes = ", ".join(f"{file.removesuffix('.csv')}={len(table)}" for file, table in self.tables.items())
        return f"{type(self).__name__}({self.model!r}, {sizes})"

    def __eq__(self, other: object) -> bool:
        if type(other) is not type(self):
            return NotImplemented
        return self._written() == other._written()

    __hash__ = None  # type: ignore[assignment]

    def _written(self) -> tuple[str, dict[str, str]]:
        """The record and the tables as files say them."""
        tables = self.tables
        texts = {
            form.file: csv_text(tables[form.file], form.columns) for form in self.forms if form.file in tables
        }
        return json.dumps(self.run, sort_keys=True, ensure_ascii=False), texts

    @classmethod
    def read(cls, path: Path) -> Self:
        """Read a run directory of this command; see `headlens.open`."""
        told = read_run(path, [cls.command])
        run = {name: value for name, value in told.items() if name not in _SUMS}
        tables = {form.name: read_form(path, form) for form in cls.forms}
        examples = (
            Examples(text=File.read(path / EXAMPLES).content.decode()) if is_there(path / EXAMPLES) else None
        )
        return cls(run=run, **tables, examples=examples)  # type: ignore[call-arg]


# ---- The record of a run, `run.json`, and the directory that it describes


@dataclass(slots=True)
class Clock:
    """Measures the wall time of a run from the moment it is made."""

    started: float

    @classmethod
    def start(cls) -> Clock:
        """Begin to measure."""
        return cls(time.perf_counter())

    @property
    def seconds(self) -> float:
        """Seconds since the start."""
        return round(time.perf_counter() - self.started, 3)


@contextmanager
def prepare(out: Path, command: str) -> Iterator[Path]:
    """Have a run directory to oneself, before any work is spent, until the block ends.

    Args:
        out: the directory.
        command: what will be written there.

    Yields:
        The same.

    Raises:
        RunError: it cannot be made or written, is a file, holds what another command wrote, has a link in the
            place of a folder, or another process writes there.
    """
    with locked(out):
        other = _command_of(out / "run.json")
        if other not in (None, command):
            raise RunError(f"{out} holds what headlens {other} wrote.", "Choose another --out.")
        for name in FOLDERS:
            inner_folder(out, name)
        yield out


def _command_of(path: Path) -> str | None:
    """The command that wrote a run.json; None where there is none to keep."""
    try:
        return str(load_json(path)["command"])
    except (OSError, ValueError, KeyError, TypeError):
        return None


def _command_line() -> str:
    """Write the command that is running as it would be typed; nothing where Python was called."""
    context = click.get_current_context(silent=True)
    if context is None:
        return ""
    typed = context.meta.get("headlens.typed")
    return " ".join(map(shlex.quote, ["headlens", *(sys.argv[1:] if typed is None else typed)]))


def record(
    command: str, lens: Lens, options: Mapping[str, Any], facts: Mapping[str, Any], clock: Clock
) -> dict[str, Any]:
    """Put together what `run.json` holds.

    Args:
        command: "classify", "ablate", ...
        lens: the model that was measured.
        options: every option of the run, with its value.
        facts: what else is worth knowing: the corpus and its hash, what was left out and why, ...
        clock: started when the run began.

    Returns:
        Plain data.
    """
    anatomy, source = lens.anatomy, lens.source
    return {
        "headlens": __version__,
        "command": command,
        "arguments": _command_line(),
        "model": {
            "name": source.name if source else type(lens.model).__name__,
            "revision": source.options.get("revision") if source else None,
            "weights_sha256": source.sha256() if source else {},
            "missing_weights": list(lens.missing),
            "architecture": anatomy.architecture,
            "parameters": anatomy.n_parameters,
            "heads": len(anatomy.heads),
            "captured_by": "attention interface" if anatomy.by_interface else "forward hooks",
            "dtype": str(lens.model.dtype).removeprefix("torch."),
            "device": str(lens.device),
            **_device_map(lens),
            "tokenizer": type(lens.tokenizer).__name__ if lens.tokenizer else None,
            "remote_code": bool(source and source.options.get("trust_remote_code")),
        },
        "options": plain(options),
        **plain(facts),
        "versions": _versions(),
        "wall_seconds": clock.seconds,
        "peak_memory_mb": _peak_megabytes(),
    }


def _device_map(lens: Lens) -> dict[str, Any]:
    """Where the parts of a model are that is spread over devices."""
    places = getattr(lens.model, "hf_device_map", None)
    return {} if places is None else {"device_map": {name: str(place) for name, place in places.items()}}


def record_without_model(command: str, facts: Mapping[str, Any]) -> dict[str, Any]:
    """Put together what `run.json` holds of work on results alone.

    Args:
        command: "compare" or "run".
        facts: what else is worth knowing: which runs, what a reader must know, ...

    Returns:
        Plain data.
    """
    return {
        "headlens": __version__,
        "command": command,
        "arguments": _command_line(),
        **plain(facts),
        "versions": _versions(),
    }


def save(out: Path, run: Mapping[str, Any], tables: Sequence[str] = ()) -> None:
    """Write `run.json` into a run directory, last of all that it is about.

    Args:
        out: the directory.
        run: from `record`.
        tables: names of the tables that were written, whose checksums it keeps.

    Raises:
        RunError: it cannot be written.
    """
    try:
        run = with_checksums(run, out, tables)
    except OSError as error:
        raise RunError(f"{error.filename} is gone: {error.strerror}.", "Make the run again.") from error
    write_text(json.dumps(run, indent=2, ensure_ascii=False, allow_nan=False) + "\n", out / "run.json")


def _versions() -> dict[str, str]:
    import torch
    import transformers

    return {
        "python": platform.python_version(),
        "torch": torch.__version__,
        "transformers": transformers.__version__,
        "numpy": np.__version__,
        "platform": platform.platform(),
    }


def _peak_megabytes() -> float | None:
    try:
        import resource
    except ImportError:  # Windows does not tell
        return None
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return round(peak / (2**20 if sys.platform == "darwin" else 2**10), 1)


def plain(value: Any) -> Any:
    """Turn a value into what JSON can hold: paths become text, what is not finite becomes nothing."""
    if is_dataclass(value) and not isinstance(value, type):
        return plain(asdict(value))
    if isinstance(value, Mapping):
        return {str(key): plain(item) for key, item in value.items()}
    if isinstance(value, set | frozenset):
        return sorted(map(str, value))
    if isinstance(value, list | tuple):
        return [plain(item) for item in value]
    if isinstance(value, np.generic):
        return plain(value.item())
    if isinstance(value, float) and not math.isfinite(value):
        return None  # JSON has no such number
    return value if value is None or isinstance(value, bool | int | float | str) else str(value)
