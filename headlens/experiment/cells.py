"""The grid of an experiment: every model with every seed, and the commands of each."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import product
from pathlib import Path
from typing import Any

import click

from headlens.experiment.file import Experiment
from headlens.experiment.places import as_seen, seen_from
from headlens.experiment.sections import Section, options_of, words


@dataclass(frozen=True, slots=True)
class Cell:
    """One model with one seed.

    Args:
        model: its name or place, as a command takes it.
        shown: as the file, or whoever runs it, says it.
        seed: of everything drawn at random.
        place: directory of its results.
    """

    model: str
    shown: str
    seed: int
    place: Path


@dataclass(frozen=True, slots=True)
class Step:
    """One command to run.

    Args:
        cell: where.
        section: which.
        typed: its command line, without "headlens".
    """

    cell: Cell
    section: Section
    typed: tuple[str, ...]

    @property
    def out(self) -> Path:
        """What it writes."""
        return self.cell.place / self.section.out


def cells(experiment: Experiment, out: Path) -> list[Cell]:
    """Lay out the grid.

    Args:
        experiment: what to run.
        out: directory of all results.

    Returns:
        Its cells. One alone has its results in `out` itself, several have directories of their own.
    """
    found = []
    directories = _directories(list(experiment.models))
    for (shown, model), seed in product(experiment.models.items(), experiment.seeds):
        parts = [directories[shown]] if len(experiment.models) > 1 else []
        parts += [f"seed-{seed}"] if len(experiment.seeds) > 1 else []
        found.append(Cell(model, shown, seed, out.joinpath(*parts)))
    return found


def steps(experiment: Experiment, out: Path) -> Iterator[Step]:
    """List the commands, cell by cell, in the order of the file.

    Args:
        experiment: what to run.
        out: directory of all results.

    Yields:
        The steps.
    """
    for cell in cells(experiment, out):
        for section in experiment.sections:
            yield Step(cell, section, tuple(_typed(experiment, cell, section)))


def _typed(experiment: Experiment, cell: Cell, section: Section) -> Iterator[str]:
    known = options_of(section.command)
    options: dict[str, Any] = {}
    reads = next((option for option in ("--corpus", "--text") if option in known), None)
    if reads is not None and experiment.corpus:
        options[reads] = list(experiment.corpus)
    options |= {option: value for option, value in experiment.loading.items() if option in known}
    if len(experiment.seeds) > 1 or cell.seed:
        options["--seed"] = cell.seed
    options |= section.options
    arguments = (cell.model, *section.arguments)
    placed = {option: _placed(experiment, cell, known[option], value) for option, value in options.items()}
    options_typed = list(words(section.command, placed))
    if "--out" not in options:
        options_typed += ["--out", str(cell.place / section.out)]
    if any(one.startswith("-") and one != "-" for one in arguments):
        yield from (section.command, *options_typed, "--", *arguments)
    else:
        yield from (section.command, *arguments, *options_typed)


def _placed(experiment: Experiment, cell: Cell, option: click.Option, value: Any) -> Any:
    """A value that is a place: another section's by its name, or a path that is seen from the file."""
    if isinstance(value, list):
        return [_placed(experiment, cell, option, one) for one in value]
    if option.name == "out":
        return str(cell.place / str(value))
    names = [section.name for section in experiment.sections]
    if isinstance(option.type, click.Path) and value in names:
        return str(cell.place / str(value))
    return as_seen(option, value, lambda place: seen_from(experiment.path.parent, place))


def plain_name(model: str) -> str:
    """The last part of a model's name or place, as the name of a directory."""
    return _plain(Path(model).name or model)


def _directories(models: Sequence[str]) -> dict[str, str]:
    """A directory for each model: the last part of its name; all of it, or a number, where two end alike."""
    for name in (plain_name, _plain):
        found = {model: name(model) for model in models}
        if len(set(found.values())) == len(models):
            return found
    return {model: f"{number}-{_plain(model)}" for number, model in enumerate(models)}


def _plain(text: str) -> str:
    return re.sub(r"[^\w.-]+", "_", text).strip("._") or "model"
