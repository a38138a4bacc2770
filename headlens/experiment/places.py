"""Places in an experiment file: paths and local datasets are seen from its folder."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import click

from headlens.corpus import hub
from headlens.util.files import is_directory, is_there

WRITTEN = ("out", "save_as")  # options whose place a command makes


def seen_from(folder: Path, text: str) -> str:
    """A path or a local dataset that is seen from a folder; anything else as it is."""
    if hub.is_hub(text):
        return hub.seen_from(text, folder)
    path = folder / text
    return str(path) if text and exists(path) else text


def beside(folder: Path, text: str) -> str:
    """Write a path or a local dataset of here as it is seen from a folder; anything else as it is."""
    if hub.is_hub(text):
        return hub.beside(text, folder)
    if not text or Path(text).is_absolute() or not exists(Path(text)):
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
        return kind + colon + ",".join(see(one) for one in target.split(","))
    return see(str(value)) if isinstance(option.type, click.Path) else value


def exists(path: Path) -> bool:
    """Whether there is a file or a directory."""
    return is_there(path) or is_directory(path)


def missing(ctx: click.Context, made_here: Path) -> Path | None:
    """Find a place that a command would read and that is not there.

    Args:
        ctx: of the command, with its values.
        made_here: a directory that other commands write before.

    Returns:
        The first such place outside that directory; None where all are there.
    """
    for option in ctx.command.params:
        if isinstance(option.type, click.Path) and option.name not in WRITTEN:
            value = ctx.params[str(option.name)]
            for one in value if isinstance(value, tuple) else (value,):
                if isinstance(one, Path) and made_here not in one.parents and not exists(one):
                    return one
    return None
