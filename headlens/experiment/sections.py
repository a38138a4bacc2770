"""The sections of an experiment file: one command each, with its options by their own names."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from difflib import get_close_matches
from pathlib import PurePath
from typing import Any

import click

from headlens.errors import InputError

DIRECTORIES = ("classify", "ablate", "similar", "prune")  # commands whose --out is a directory
FILES = ("view", "contributions")  # commands whose --out is a file
REPORTED = ("classify", "ablate", "similar")  # commands whose results a page shows
OWN = ("experiment.json", "published.csv", "report.html", "run.json")  # what an experiment itself writes


@dataclass(frozen=True, slots=True)
class Section:
    """One command of an experiment.

    Args:
        command: its name, such as "ablate".
        name: of its results, "ablate" or what `name` says.
        options: values by option, such as ``--sweep``.
        arguments: what stands without an option: the text of `view`.
    """

    command: str
    name: str
    options: Mapping[str, Any]
    arguments: Sequence[str] = ()

    @property
    def out(self) -> str:
        """The file or directory that it writes, inside the place of its cell."""
        return str(self.options.get("--out", self.name))


def command_of(name: str) -> click.Command:
    """Get a command of headlens by its name."""
    from headlens.cli import main

    found = main.get_command(click.Context(main), name)
    assert found is not None
    return found


def read_section(command: str, told: Mapping[str, Any], where: str) -> Section:
    """Check one section's keys against the options of its command.

    Args:
        command: its name.
        told: what the file says.
        where: the file and the section, for messages.

    Returns:
        The section.

    Raises:
        InputError: a key is no option of the command; the message has the nearest that is.
    """
    known = {option.removeprefix("--"): option for option in options_of(command)}
    takes_text = command in FILES
    options: dict[str, Any] = {}
    for key, value in told.items():
        if key == "name" or (key == "text" and takes_text):
            continue
        if key not in known:
            check_key(key, [*known, "name", *(["text"] if takes_text else [])], where)
        check_value(command, known[key], value, where)
        options[known[key]] = value
    if command in DIRECTORIES and "--out" in options:
        raise InputError(f"{where} has an out, which the experiment chooses.", "Write name instead.")
    if takes_text and not (isinstance(told.get("text"), str) and "--out" in options):
        raise InputError(f"{where} needs a text and an out.", 'Write text = "..." and out = "NAME.png".')
    if takes_text and told["text"] == "-":
        raise InputError(f"{where} has the text '-', which is what is typed.", "Write the text itself.")
    name = str(told.get("name", command if command in DIRECTORIES else options["--out"]))
    for place in (name, *(PurePath(str(options.get("--out", name))).parts or [""])):
        if PurePath(place).name != place or place[:1] in ("", ".") or place in OWN or not place.isprintable():
            raise InputError(
                f"{where} has the name {place!r}, which is no name of a directory or is taken.",
                "Write a plain one.",
            )
    return Section(command, name, options, (str(told["text"]),) if takes_text else ())


def check_value(command: str, option: str, value: Any, where: str) -> None:
    """Refuse a value of a kind that no option has.

    Args:
        command: its name.
        option: such as ``--sweep``.
        value: what the file says.
        where: the file and the section.

    Raises:
        InputError: a flag is not true or false, or another option is no text, number or list of these.
    """
    flag = options_of(command)[option].is_flag
    many = value if isinstance(value, list) and not flag else [value]
    if all(isinstance(one, bool) is flag and isinstance(one, bool | str | int | float) for one in many):
        return
    kinds = "true or false" if flag else "a text, a number or a list of these"
    raise InputError(f"{where} has {option.removeprefix('--')} = {value!r}.", f"Write {kinds}.")


def check_key(key: str, known: Sequence[str], where: str) -> None:
    """Refuse a key that means nothing, with the nearest that does.

    Args:
        key: what the file says.
        known: what it can say.
        where: the file and the section.

    Raises:
        InputError: the key is not known.
    """
    if key in known:
        return
    near = get_close_matches(key, known, n=1, cutoff=0.5)
    remedy = f"Did you mean {near[0]}?" if near else f"It can have: {', '.join(sorted(known))}."
    raise InputError(f"{where} cannot have {key!r}.", remedy)


def options_of(command: str) -> dict[str, click.Option]:
    """List what a section can say: the long options of its command."""
    found = {}
    for parameter in command_of(command).params:
        if isinstance(parameter, click.Option):
            for option in parameter.opts:
                if option.startswith("--") and option not in ("--debug", "--save-as"):
                    found[option] = parameter
    return found


def words(command: str, options: Mapping[str, Any]) -> Iterator[str]:
    """Write options as they are typed.

    Args:
        command: the command.
        options: values by option; a list is repeated where the option may be, else joined by commas; a flag
            is there or not.

    Yields:
        Words of the command line.
    """
    kinds = options_of(command)
    for option, value in options.items():
        kind = kinds[option]
        if kind.is_flag:
            if value:
                yield option
        elif isinstance(value, list) and kind.multiple:
            for one in value:
                yield from (option, str(one))
        else:
            yield from (option, ",".join(map(str, value)) if isinstance(value, list) else str(value))
