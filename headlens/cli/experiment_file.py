"""Reads experiments from files."""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import click

from headlens.cli.experiment_parts import (
    DIRECTORIES,
    FILES,
    REPORTED,
    Published,
    Section,
    check_key,
    check_value,
    options_of,
    read_published,
    read_section,
    seen_from,
)
from headlens.corpus.corpus import InputFile
from headlens.errors import InputError

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

TOP = ("title", "note", "model", "corpus", "seeds", "published", "report", *DIRECTORIES, *FILES)


@dataclass(frozen=True)
class Experiment:
    """What a file describes.

    Args:
        path: of the file.
        sha256: of what was read of it.
        title: of the experiment.
        note: what a reader must know: what was run with it, and what was not.
        models: where each model is, by its name in the file; each with each seed is a cell of the grid.
        loading: options of every command that loads a model (device, dtype, ...).
        corpus: what classify and similar read where their sections do not say it.
        seeds: of everything drawn at random.
        sections: the commands, in the order of the file.
        published: figures of papers to hold the results against.
        report: the page that it ends with.
    """

    path: Path
    sha256: str
    title: str
    note: str
    models: Mapping[str, str]
    loading: Mapping[str, Any]
    corpus: Sequence[str]
    seeds: Sequence[int]
    sections: Sequence[Section]
    published: Sequence[Published]
    report: Report


def read_experiment(path: Path) -> Experiment:
    """Read an experiment file.

    Args:
        path: the file.

    Returns:
        The experiment.

    Raises:
        InputError: it cannot be read, a key means nothing, or a value is of the wrong kind.
    """
    file = InputFile(path, "TOML")
    told = _toml(file)
    for key in told:
        check_key(key, TOP, path.name)
    model, sections = _table(told, "model", path), _sections(told, path)
    report = read_report(_table(told, "report", path), sections, f"[report] of {path.name}")
    _check_outputs([*(section.out for section in sections), report.out], path)
    _check_order(sections, path)
    seeds = _seeds(told, path)
    _check_seeds(sections, seeds, path)
    runs = [section.name for section in sections]
    return Experiment(
        path,
        file.sha256,
        _text(told, "title", path.stem, path),
        _text(told, "note", "", path),
        _models(model, path),
        _loading(model, path),
        _corpus(_table(told, "corpus", path), path),
        seeds,
        sections,
        [
            read_published(one, runs, path.name)
            for one in _tables(told.get("published", []), "published", path)
        ],
        report,
    )


def on_models(experiment: Experiment, models: Sequence[str]) -> Experiment:
    """Put other models in the place of those that a file names.

    Args:
        experiment: what the file describes.
        models: names or places, as a command takes them.

    Returns:
        The same experiment on these models; a revision that the file asks for was one of its own model.
    """
    loading = {option: value for option, value in experiment.loading.items() if option != "--revision"}
    return replace(experiment, models={model: model for model in models}, loading=loading)


def _toml(file: InputFile) -> dict[str, Any]:
    try:
        return tomllib.loads(file.text)
    except (
        ValueError,
        RecursionError,
    ) as error:  # of numbers that are too long, lists that are too deep, too
        raise InputError(f"{file} is no TOML: {error}.", "Strings need quotes, lists brackets.") from error


def _text(told: Mapping[str, Any], key: str, default: str, path: Path) -> str:
    value = told.get(key, default)
    if isinstance(value, str):
        return value
    raise InputError(f"{path.name} has {key} = {value!r}.", "Write a text in quotes.")


def _table(told: Mapping[str, Any], key: str, path: Path) -> Mapping[str, Any]:
    value = told.get(key, {})
    if isinstance(value, dict):
        return value
    raise InputError(f"{path.name} has {key} = {value!r}.", f"Write a section [{key}].")


def _tables(value: Any, key: str, path: Path) -> list[dict[str, Any]]:
    """A section that may be there several times."""
    found = value if isinstance(value, list) else [value]
    if all(isinstance(one, dict) for one in found):
        return found
    raise InputError(f"{path.name} has {key} = {value!r}.", f"Write a section [{key}].")


def _sections(told: Mapping[str, Any], path: Path) -> list[Section]:
    sections = [
        read_section(command, one, f"[{command}] of {path.name}")
        for command, value in told.items()
        if command in (*DIRECTORIES, *FILES)
        for one in _tables(value, command, path)
    ]
    if not sections:
        raise InputError(f"{path.name} runs nothing.", f"Add a section: {', '.join((*DIRECTORIES, *FILES))}.")
    return sections


def _check_outputs(names: Sequence[str], path: Path) -> None:
    twice = next((name for name in names if names.count(name) > 1), None)
    if twice is not None:
        raise InputError(f"Two sections of {path.name} write to {twice!r}.", "Give one a name of its own.")


def _check_once(values: Sequence[Any], what: str) -> None:
    twice = next((value for value in values if values.count(value) > 1), None)
    if twice is not None:
        raise InputError(f"{what} {twice!r} twice.", "One run of it is enough: it would come out the same.")


def _check_order(sections: Sequence[Section], path: Path) -> None:
    """Refuse a section that reads one that is not run before it."""
    names = [section.name for section in sections]
    for number, section in enumerate(sections):
        for option, value in section.options.items():
            kind = options_of(section.command)[option]
            for one in value if isinstance(value, list) else [value]:
                if one in names[number:] and isinstance(kind.type, click.Path) and kind.name != "out":
                    raise InputError(
                        f"[{section.command}] of {path.name} reads {one!r}, which is not run before it.",
                        f"Move the section {one!r} above it.",
                    )


def _check_seeds(sections: Sequence[Section], seeds: Sequence[int], path: Path) -> None:
    """Refuse a section that has a seed of its own beside several of the file: its runs would be the same."""
    for section in sections:
        if len(seeds) > 1 and "--seed" in section.options:
            raise InputError(
                f"[{section.command}] of {path.name} has a seed, and the file has the seeds {seeds}.",
                "Leave one of the two out.",
            )


def _models(model: Mapping[str, Any], path: Path) -> dict[str, str]:
    """Where each model is, by its name in the file."""
    if "name" in model and "names" in model:
        raise InputError(f"[model] of {path.name} has name and names.", "Leave one of the two out.")
    names = model.get("names", [model["name"]] if "name" in model else [])
    if isinstance(names, list) and names and all(isinstance(name, str) for name in names):
        _check_once(names, f"[model] of {path.name} names the model")
        return {name: seen_from(path.parent, name) for name in names}
    raise InputError(f"{path.name} does not say which model.", 'Write [model] and name = "minilm" below it.')


def _loading(model: Mapping[str, Any], path: Path) -> dict[str, Any]:
    where, classify = f"[model] of {path.name}", options_of("classify")
    options = [option for option in options_of("describe") | classify if option != "--out"]
    known = [option.removeprefix("--") for option in options]
    loading = {f"--{key}": value for key, value in model.items() if key not in ("name", "names")}
    for key in model:
        check_key(key, [*known, "name", "names"], where)
    for option, value in loading.items():
        check_value("classify" if option in classify else "describe", option, value, where)
    return loading


def _corpus(corpus: Mapping[str, Any], path: Path) -> list[str]:
    for key in corpus:
        check_key(key, ("files",), f"[corpus] of {path.name}")
    files = corpus.get("files", [])
    if isinstance(files, list) and all(isinstance(file, str) for file in files):
        return files
    raise InputError(
        f"[corpus] of {path.name} has files = {files!r}.", 'Write a list such as files = ["dev.conllu"].'
    )


def _seeds(told: Mapping[str, Any], path: Path) -> list[int]:
    seeds = told.get("seeds", [0])
    if isinstance(seeds, list) and seeds and all(type(seed) is int and seed >= 0 for seed in seeds):
        _check_once(seeds, f"{path.name} has the seed")
        return seeds
    raise InputError(f"{path.name} has seeds = {seeds!r}.", "Write a list such as seeds = [0, 1, 2].")


# ---- ``[report]`` of an experiment file: the page that it ends with


KEYS = ("out", "runs")  # the option of headlens report, and what it is given


@dataclass(frozen=True, slots=True)
class Report:
    """A page about an experiment.

    Args:
        out: its name, in the directory of the results.
        runs: the sections that are in it, in order, below what was measured and published.
    """

    out: str
    runs: Sequence[str]


def read_report(told: Mapping[str, Any], sections: Sequence[Section], where: str) -> Report:
    """Check what a file says of its page.

    Args:
        told: what it says; nothing makes a page of all runs.
        sections: its other sections.
        where: the file and the section, for messages.

    Returns:
        The page.

    Raises:
        InputError: a key is no option of the page, or it names a run that no page can show.
    """
    for key in told:
        check_key(key, KEYS, where)
    out = str(told.get("out", "report.html"))
    if Path(out).name != out or Path(out).suffix.lower() not in (".html", ".htm"):
        raise InputError(f"{where} has out = {out!r}.", 'Write the name of a page, such as "report.html".')
    possible = [section.name for section in sections if section.command in REPORTED]
    runs = told.get("runs", possible)
    if not isinstance(runs, list):
        raise InputError(f"{where} has runs = {runs!r}.", "Write a list of names of other sections.")
    for run in runs:
        check_key(str(run), possible, f"runs in {where}")
    return Report(out, list(dict.fromkeys(map(str, runs))))
