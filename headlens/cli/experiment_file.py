"""Experiment files: what they say, read and written."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, fields, replace
from pathlib import Path, PurePath
from typing import Any

import click

from headlens.cli.experiment_published import Published, check_key, read_published
from headlens.cli.options import Command, EngineOptions, ModelOptions
from headlens.corpus import hub
from headlens.corpus.corpus import InputFile
from headlens.errors import InputError
from headlens.util.files import is_directory, is_there, write_text

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

TOP = ("title", "note", "model", "corpus", "seeds", "published", "report")  # and the sections
OWN = ("experiment.json", "published.csv", "report.html", "run.json")  # what an experiment itself writes
NOT_LOADING = ("batch_size", "max_length", "seed", "quiet")  # of the options that come with a model


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
        corpus: what sections read that read one and do not say which.
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


def read_experiment(path: Path, commands: click.Group) -> Experiment:
    """Read an experiment file.

    Args:
        path: the file.
        commands: what its sections can be.

    Returns:
        The experiment.

    Raises:
        InputError: it cannot be read, a key means nothing, or a value is of the wrong kind.
    """
    file = InputFile(path, "TOML")
    told, possible = _toml(file), section_commands(commands)
    for key in told:
        check_key(key, [*TOP, *possible], path.name)
    model = _table(told, "model", path)
    sections = [
        _section(possible[name], section, f"[{name}] of {path.name}")
        for name, value in told.items()
        if name in possible
        for section in _tables(value, name, path)
    ]
    if not sections:
        raise InputError(f"{path.name} runs nothing.", f"Add a section: {', '.join(possible)}.")
    report = _report(_table(told, "report", path), sections, f"[report] of {path.name}")
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
        _loading(model, possible.values(), path),
        _corpus(_table(told, "corpus", path), path),
        seeds,
        sections,
        [
            read_published(figure, runs, path.name)
            for figure in _tables(told.get("published", []), "published", path)
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
            kind = section.known[option]
            for name in value if isinstance(value, list) else [value]:
                if name in names[number:] and isinstance(kind.type, click.Path) and kind.name != "out":
                    where = f"[{section.command.name}] of {path.name}"
                    raise InputError(
                        f"{where} reads {name!r}, which is not run before it.",
                        f"Move the section {name!r} above it.",
                    )


def _check_seeds(sections: Sequence[Section], seeds: Sequence[int], path: Path) -> None:
    """Refuse a section that has a seed of its own beside several of the file: its runs would be the same."""
    for section in sections:
        if len(seeds) > 1 and "--seed" in section.options:
            raise InputError(
                f"[{section.command.name}] of {path.name} has a seed, and the file has the seeds {seeds}.",
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


def _loading(model: Mapping[str, Any], commands: Iterable[Command], path: Path) -> dict[str, Any]:
    """The options that commands with a model share, as far as the file says them."""
    where = f"[model] of {path.name}"
    shared = [field.name for field in (*fields(ModelOptions), *fields(EngineOptions))]
    options = {
        name.removeprefix("--"): option
        for command in commands
        for name, option in options_of(command).items()
        if option.name in shared
    }
    told = {key: value for key, value in model.items() if key not in ("name", "names")}
    for key in told:
        check_key(key, [*options, "name", "names"], where)
    for key, value in told.items():
        _check_value(options[key], key, value, where)
    return {f"--{key}": value for key, value in told.items()}


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


# ---- Sections: each is one command, with the keys that its options have


@dataclass(frozen=True, slots=True)
class Section:
    """One command of an experiment.

    Args:
        command: the command.
        name: of its results, "ablate" or what `name` says.
        options: values by option, such as ``--sweep``.
        arguments: what stands without an option: the text of `view`.
    """

    command: Command
    name: str
    options: Mapping[str, Any]
    arguments: Sequence[str] = ()

    @property
    def out(self) -> str:
        """The file or directory that it writes, inside the place of its cell."""
        return str(self.options.get("--out", self.name))

    @property
    def known(self) -> dict[str, click.Option]:
        """The options that it can have."""
        return options_of(self.command)

    def typed(self, options: Mapping[str, Any]) -> Iterator[str]:
        """Write options as they are typed.

        Args:
            options: values by option; a list is repeated where the option may be, else joined by commas; a
                flag is there or not.

        Yields:
            Words of the command line.
        """
        known = self.known
        for option, value in options.items():
            if known[option].is_flag:
                if value:
                    yield option
            elif isinstance(value, list) and known[option].multiple:
                for item in value:
                    yield from (option, str(item))
            else:
                yield from (option, ",".join(map(str, value)) if isinstance(value, list) else str(value))


def section_commands(commands: click.Group) -> dict[str, Command]:
    """List the commands that a section can be, by name: first those that write a directory."""
    ctx = click.Context(commands)
    found = [commands.get_command(ctx, name) for name in commands.list_commands(ctx)]
    possible = [command for command in found if isinstance(command, Command) and command.writes]
    return {str(command.name): command for command in sorted(possible, key=lambda one: str(one.writes))}


def options_of(command: click.Command) -> dict[str, click.Option]:
    """List what a section can say: the long options of its command."""
    return {
        name: option
        for option in command.params
        if isinstance(option, click.Option)
        for name in option.opts
        if name.startswith("--") and name not in ("--debug", "--save-as")
    }


def _section(command: Command, told: Mapping[str, Any], where: str) -> Section:
    """Check one section's keys against the options of its command, and the places that it names."""
    known = {name.removeprefix("--"): option for name, option in options_of(command).items()}
    takes_text, is_file = (
        any(argument.name == "text" for argument in command.params),
        command.writes == "file",
    )
    others = ["name", *(["text"] if takes_text else [])]
    options: dict[str, Any] = {}
    for key, value in told.items():
        if key not in others:
            check_key(key, [*known, *others], where)
            _check_value(known[key], key, value, where)
            options[f"--{key}"] = value
    if "--out" in options and not is_file:
        raise InputError(f"{where} has an out, which the experiment chooses.", "Write name instead.")
    text = told.get("text")
    if (takes_text and not isinstance(text, str)) or (is_file and "--out" not in options):
        needs = ["a text"] * takes_text + ["an out"] * is_file
        write = ['text = "..."'] * takes_text + ['out = "NAME.png"'] * is_file
        raise InputError(f"{where} needs {' and '.join(needs)}.", f"Write {' and '.join(write)}.")
    if text == "-":
        raise InputError(f"{where} has the text '-', which is what is typed.", "Write the text itself.")
    name = str(told.get("name", options["--out"] if is_file else command.name))
    for place in (name, *(PurePath(str(options.get("--out", name))).parts or [""])):
        if PurePath(place).name != place or place[:1] in ("", ".") or place in OWN or not place.isprintable():
            raise InputError(
                f"{where} has the name {place!r}, which is no name of a directory or is taken.",
                "Write a plain one.",
            )
    return Section(command, name, options, (str(text),) if takes_text else ())


def _check_value(option: click.Option, key: str, value: Any, where: str) -> None:
    """Refuse a value of a kind that no option has: a flag is true or false, any other text or numbers."""
    flag = option.is_flag
    many = value if isinstance(value, list) and not flag else [value]
    if all(isinstance(one, bool) is flag and isinstance(one, bool | str | int | float) for one in many):
        return
    kinds = "true or false" if flag else "a text, a number or a list of these"
    raise InputError(f"{where} has {key} = {value!r}.", f"Write {kinds}.")


# ---- Places in an experiment file: paths and local datasets are seen from its folder


_WRITTEN = ("out", "save_as")  # options whose place a command makes


def seen_from(folder: Path, text: str) -> str:
    """A path or a local dataset that is seen from a folder; anything else as it is."""
    if hub.is_hub(text):
        return hub.seen_from(text, folder)
    path = folder / text
    return str(path) if text and _exists(path) else text


def _beside(folder: Path, text: str) -> str:
    """Write a path or a local dataset of here as it is seen from a folder; anything else as it is."""
    if hub.is_hub(text):
        return hub.beside(text, folder)
    if not text or Path(text).is_absolute() or not _exists(Path(text)):
        return text
    try:
        return os.path.relpath(text, folder)
    except ValueError:  # on another drive
        return str(Path(text).absolute())


def as_seen(option: click.Parameter, value: Any, see: Callable[[str], str]) -> Any:
    """Change the places in an option's value.

    Args:
        option: of a command.
        value: one value of it.
        see: changes a place.

    Returns:
        The value with its places changed; a value that is no place as it is.
    """
    if option.name == "benchmark":
        kind, colon, target = str(value).partition(":")
        return kind + colon + ",".join(see(part) for part in target.split(","))
    return see(str(value)) if isinstance(option.type, click.Path) else value


def missing(ctx: click.Context, made_here: Path) -> Path | None:
    """Find a place that a command would read and that is not there.

    Args:
        ctx: of the command, with its values.
        made_here: a directory that other commands write before.

    Returns:
        The first such place outside that directory; None where all are there.
    """
    for option in ctx.command.params:
        if isinstance(option.type, click.Path) and option.name not in _WRITTEN:
            value = ctx.params[str(option.name)]
            for place in value if isinstance(value, tuple) else (value,):
                if isinstance(place, Path) and made_here not in place.parents and not _exists(place):
                    return place
    return None


def _exists(path: Path) -> bool:
    """Whether there is a file or a directory."""
    return is_there(path) or is_directory(path)


# ---- ``[report]`` of an experiment file: the page that it ends with


_REPORT_KEYS = ("out", "runs")  # the option of headlens report, and what it is given


@dataclass(frozen=True, slots=True)
class Report:
    """A page about an experiment.

    Args:
        out: its name, in the directory of the results.
        runs: the sections that are in it, in order, below what was measured and published.
    """

    out: str
    runs: Sequence[str]


def _report(told: Mapping[str, Any], sections: Sequence[Section], where: str) -> Report:
    """Check what a file says of its page; where it says nothing, all runs are in it that a page can show."""
    for key in told:
        check_key(key, _REPORT_KEYS, where)
    out = str(told.get("out", "report.html"))
    if Path(out).name != out or Path(out).suffix.lower() not in (".html", ".htm"):
        raise InputError(f"{where} has out = {out!r}.", 'Write the name of a page, such as "report.html".')
    possible = [section.name for section in sections if section.command.reported]
    runs = told.get("runs", possible)
    if not isinstance(runs, list):
        raise InputError(f"{where} has runs = {runs!r}.", "Write a list of names of other sections.")
    for run in runs:
        check_key(str(run), possible, f"runs in {where}")
    return Report(out, list(dict.fromkeys(map(str, runs))))


# ---- Writing a command as such a file


def write_experiment(ctx: click.Context, path: Path) -> None:
    """Write the running command as an experiment file.

    Args:
        ctx: of the command, with what was typed.
        path: the file; places in it are seen from its folder.

    Raises:
        RunError: it cannot be written.
    """
    import tomli_w

    command = ctx.command
    assert isinstance(command, Command)
    loading = [field.name for field in fields(ModelOptions) if field.name not in NOT_LOADING]
    top: dict[str, Any] = {"title": f"headlens {command.name} of {ctx.params['model']}"}
    model: dict[str, Any] = {"name": _beside(path.parent, ctx.params["model"])}
    section = {"text": ctx.params["text"]} if "text" in ctx.params else {}
    for key, option in options_of(command).items():
        name = str(option.name)
        if name == "quiet" or ctx.get_parameter_source(name) is not click.core.ParameterSource.COMMANDLINE:
            continue
        value = _from_folder(path.parent, option, ctx.params[name])
        if name == "seed":
            top["seeds"] = [value]
        elif name == "out":
            section["out" if command.writes == "file" else "name"] = Path(str(value)).name
        else:
            (model if name in loading else section)[key.removeprefix("--")] = value
    write_text(tomli_w.dumps({**top, "model": model, str(command.name): section}), path)


def _from_folder(folder: Path, option: click.Option, value: Any) -> Any:
    """A value as a file in a folder says it: places are seen from there."""
    if isinstance(value, tuple | list):
        return [_from_folder(folder, option, item) for item in value]
    plain = value if isinstance(value, bool | int | float) else str(value)
    return plain if option.name == "out" else as_seen(option, plain, lambda place: _beside(folder, place))
