"""Runs the steps of an experiment, each once: what is finished is not run again."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import pandas as pd

import headlens
from headlens import runs
from headlens.experiment.cells import Step, cells, steps
from headlens.experiment.file import Experiment
from headlens.experiment.published import COLUMNS
from headlens.experiment.sections import command_of
from headlens.tables import write_csv, write_text
from headlens.text.hub import is_hub, parse

STATE = "experiment.json"
SMALL = 2**26  # bytes of a file that is hashed; of larger ones size and time decide

Invoke = Callable[[Sequence[str]], object]


def run(experiment: Experiment, out: Path, invoke: Invoke, say: Callable[[str], object]) -> list[Step]:
    """Run an experiment.

    Args:
        experiment: what to run.
        out: directory of all results.
        invoke: runs one command line, given without "headlens".
        say: told what happens.

    Returns:
        All its steps.

    Raises:
        HeadlensError: whatever a command raises; what was finished stays, and is not run again.
    """
    planned = list(steps(experiment, out))
    state = _read(out / STATE)
    for number, step in enumerate(planned, 1):
        key = str(step.out.relative_to(out))
        told = {"typed": list(step.typed), "inputs": _digest(step, out)}
        shown = " ".join(f'"{word}"' if " " in word else word for word in step.typed)
        say(f"\n[{number}/{len(planned)}] headlens {shown}")
        known = state.get(key)
        if known == {**told, "finished": True} and _is_there(step):
            say("Finished before; nothing has changed since.")
            continue
        changed = known is not None and known != {**told, "finished": known.get("finished")}
        _note(state, key, {**told, "finished": False}, out)  # if it is interrupted, it goes on from there
        invoke([*step.typed, *_overwriting(step, changed)])
        _note(state, key, {**told, "finished": True}, out)
    return planned


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

    table = compare(experiment, out)
    write_csv(table, out / "published.csv", COLUMNS)
    facts = {
        "title": experiment.title,
        "note": experiment.note,
        "file": experiment.path.name,
        "file_sha256": runs.file_sha256([experiment.path]),
        "models": list(experiment.models),
        "seeds": list(experiment.seeds),
        "steps": [{"writes": str(step.out.relative_to(out)), "typed": list(step.typed)} for step in planned],
    }
    runs.save(out, runs.record_without_model("run", facts))
    pages = [cell.place / name for cell in cells(experiment, out) for name in experiment.report.runs]
    write_report([out, *pages], out / experiment.report.out)
    return table


def compare(experiment: Experiment, out: Path) -> pd.DataFrame:
    """Put measured and published figures side by side.

    Args:
        experiment: what was run.
        out: directory of all results.

    Returns:
        A row for every published figure and cell: `COLUMNS`.
    """
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


def _overwriting(step: Step, changed: bool) -> list[str]:
    """A step whose command line changed does not go on with what was measured before."""
    can = any("--overwrite" in one.opts for one in command_of(step.section.command).params)
    return ["--overwrite"] if changed and can and "--overwrite" not in step.typed else []


def _is_there(step: Step) -> bool:
    return step.out.is_file() or (step.out / "run.json").is_file()


def _digest(step: Step, out: Path) -> str:
    """What a step depends on besides its command line: headlens, and the files that it names."""
    digest = hashlib.sha256(headlens.__version__.encode())
    for word in step.typed[1:]:
        for path in _paths(word):
            if path == step.out or len(str(path)) > 1000 or not path.exists():
                continue
            for file in sorted(path.rglob("*")) if path.is_dir() else [path]:
                if file.is_file():
                    digest.update(_of_file(file))
    return digest.hexdigest()


def _paths(word: str) -> list[Path]:
    """The files and folders that a word of a command line may name; a dataset of the hub is none."""
    if is_hub(word):
        folder = parse(word).folder
        return [] if folder is None else [folder]
    return [Path(part) for part in (word, *word.partition(":")[2].split(",")) if part]


def _of_file(file: Path) -> bytes:
    about = file.stat()
    if about.st_size <= SMALL and file.suffix not in (".safetensors", ".gguf"):
        return hashlib.sha256(file.read_bytes()).digest()
    return f"{file.name} {about.st_size} {about.st_mtime_ns}".encode()


def _read(path: Path) -> dict[str, Any]:
    try:
        found = json.loads(path.read_text("utf-8"))
    except (OSError, ValueError):
        return {}
    known = found if isinstance(found, dict) else {}
    return {key: told for key, told in known.items() if isinstance(told, dict)}
