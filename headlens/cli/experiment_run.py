"""Runs the steps of an experiment, each once: what is finished is not run again."""

from __future__ import annotations

import hashlib
import json
import re
import shlex
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise, product
from pathlib import Path
from typing import Any

import click
import pandas as pd

from headlens.cli.experiment_file import Experiment, Section, as_seen, seen_from
from headlens.cli.options import CorpusPath
from headlens.corpus.hub import is_hub, parse
from headlens.report.page.experiment import COLUMNS, ExperimentResult
from headlens.runs import record as runs
from headlens.util import __version__
from headlens.util.files import (
    file_sha256,
    is_directory,
    is_there,
    is_whole,
    load_json,
    write_text,
)

STATE = "experiment.json"
SMALL = 2**26  # bytes of a file that is hashed; of larger ones size and time decide

Invoke = Callable[[Sequence[str]], object]


def run(planned: Sequence[Step], out: Path, invoke: Invoke, say: Callable[[str], object]) -> None:
    """Run the steps of an experiment that are not finished.

    Args:
        planned: all of its steps.
        out: directory of all results.
        invoke: runs one command line, given without "headlens".
        say: told what happens.

    Raises:
        HeadlensError: whatever a command raises; what was finished stays, and is not run again.
    """
    state = _state(out / STATE)
    for number, step in enumerate(planned, 1):
        key = str(step.out.relative_to(out))
        told = {"typed": list(step.typed), "inputs": _digest(step, out)}
        say(f"\n[{number}/{len(planned)}] headlens {shlex.join(step.typed)}")
        known = state.get(key)
        if known == {**told, "finished": True} and _is_there(step):
            say("Finished before; nothing has changed since.")
            continue
        changed = known is not None and any(known.get(name) != value for name, value in told.items())
        replaces = changed or (known is not None and known.get("replaces") is True)
        unfinished = {**told, "finished": False, "replaces": replaces}
        _note(state, key, unfinished, out)  # if it is interrupted, it goes on from there
        invoke([*step.typed, *_overwriting(step, replaces)])
        _note(state, key, {**told, "finished": True}, out)


def conclude(experiment: Experiment, out: Path, planned: Sequence[Step]) -> pd.DataFrame:
    """Hold the results against the published figures, and write table, record and report.

    Args:
        experiment: what was run.
        out: directory of all results.
        planned: its steps.

    Returns:
        A row for every published figure and cell: `COLUMNS`.

    Raises:
        RunError: a file cannot be written.
    """
    from headlens.report.page.write import write_report

    table = _compared(experiment, out)
    facts = {
        "title": experiment.title,
        "note": experiment.note,
        "file": experiment.path.name,
        "file_sha256": experiment.sha256,
        "models": list(experiment.models),
        "seeds": list(experiment.seeds),
        "steps": [{"writes": str(step.out.relative_to(out)), "typed": list(step.typed)} for step in planned],
    }
    ExperimentResult(table, runs.record_without_model("run", facts)).write(out)
    pages = [cell.place / name for cell in cells(experiment, out) for name in experiment.report.runs]
    write_report([out, *pages], out / experiment.report.out)
    return table


def _compared(experiment: Experiment, out: Path) -> pd.DataFrame:
    """Measured and published figures side by side."""
    rows = []
    for cell in cells(experiment, out):
        for figure in experiment.published:
            measured = figure.measured(cell.place)
            row = (cell.shown, cell.seed, figure.what, measured, figure.bound, figure.value)
            rows.append((*row, measured - figure.value, figure.source, figure.found_in))
    return pd.DataFrame(rows, columns=COLUMNS)


def _note(state: dict[str, Any], key: str, told: Mapping[str, Any], out: Path) -> None:
    state[key] = dict(told)
    write_text(json.dumps(state, indent=2) + "\n", out / STATE)


def _overwriting(step: Step, replaces: bool) -> list[str]:
    """A step whose command line changed does not go on with what was measured before."""
    can = "--overwrite" in step.section.known and "--overwrite" not in step.typed
    return ["--overwrite"] if replaces and can else []


def _is_there(step: Step) -> bool:
    """Whether its results are there, as they were written."""
    return is_there(step.out) or is_whole(step.out)


def _digest(step: Step, out: Path) -> str:
    """What a step depends on besides its command line: headlens, and the files that it names."""
    digest = hashlib.sha256(__version__.encode())
    for path in _named(step):
        if path != step.out:
            for file in sorted(path.rglob("*")) if is_directory(path) else [path]:
                if is_there(file):
                    digest.update(_of_file(file))
    return digest.hexdigest()


def _named(step: Step) -> Iterator[Path]:
    """What may be a file or directory: the model, and values of options; a text is none, whatever it says."""
    known = step.section.known
    yield Path(step.cell.model)
    for option, value in pairwise(step.typed):
        kind = known.get(option)
        if kind is not None and kind.name == "benchmark":
            yield from map(Path, filter(None, value.partition(":")[2].split(",")))
        elif kind is not None and is_hub(value):  # a dataset of the hub is none
            yield from filter(None, [parse(value).folder])
        elif kind is not None and isinstance(kind.type, click.Path) and value:
            yield Path(value)


def _of_file(file: Path) -> bytes:
    about = file.stat()
    if about.st_size <= SMALL and file.suffix not in (".safetensors", ".gguf"):
        return bytes.fromhex(file_sha256([file]))
    return f"{file.name} {about.st_size} {about.st_mtime_ns}".encode()


def _state(path: Path) -> dict[str, Any]:
    """What is known of the steps, by what each writes; nothing where the file is broken."""
    try:
        found = load_json(path)
    except (OSError, ValueError):
        return {}
    known = found if isinstance(found, dict) else {}
    return {key: told for key, told in known.items() if isinstance(told, dict)}


# ---- The grid of an experiment: every model with every seed, and the commands of each


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
    known = section.known
    options: dict[str, Any] = {}
    for name, option in known.items():
        if experiment.corpus and isinstance(option.type, CorpusPath):
            options[name] = list(experiment.corpus)
    options |= {option: value for option, value in experiment.loading.items() if option in known}
    if len(experiment.seeds) > 1 or cell.seed:
        options["--seed"] = cell.seed
    options |= section.options
    arguments = (cell.model, *section.arguments)
    placed = {option: _placed(experiment, cell, known[option], value) for option, value in options.items()}
    options_typed = list(section.typed(placed))
    if "--out" not in options:
        options_typed += ["--out", str(cell.place / section.out)]
    command = str(section.command.name)
    if any(argument.startswith("-") and argument != "-" for argument in arguments):
        yield from (command, *options_typed, "--", *arguments)
    else:
        yield from (command, *arguments, *options_typed)


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
