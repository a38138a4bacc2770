"""What every result is: tables and the record of its run, saved, opened, drawn and reported in one way."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any, ClassVar

import pandas as pd

from headlens.errors import InputError
from headlens.runs import record
from headlens.runs.read import File, TableForm, read_form, read_run
from headlens.util.drawing import artist
from headlens.util.files import csv_text, is_there, remove, write_csv

if TYPE_CHECKING:
    from matplotlib.figure import Figure
    from typing_extensions import Self  # of Python 3.11


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
        return replace(self, run={**self.run, **record.plain(facts)})  # type: ignore[type-var,unused-ignore]

    def save(self, out: str | Path) -> Path:
        """Write a run directory: tables, figures, examples, ``report.html`` and ``run.json``.

        `headlens.open` gives the result back, equal to this one.

        Args:
            out: the directory; what the same command left there is replaced.

        Returns:
            The directory.

        Raises:
            RunError: it cannot be written, or holds what another command wrote.
        """
        with record.prepare(Path(out), self.command) as place:
            self.write(place)
            self.show(place)
        return Path(out)

    def write(self, out: Path) -> None:
        """Write tables, figures and the record into a directory that `prepare` made ready."""
        tables = self.tables
        for form in self.forms:
            if form.file in tables:
                write_csv(tables[form.file], out / form.file, form.columns)
        remove(out / form.file for form in self.forms if form.file not in tables)
        artist().save_figures(self, out)
        remove([out / EXAMPLES, out / "report.html"])
        record.save(out, self.run, tuple(tables))

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
