"""Names of datasets: ``hub:DATASET[:CONFIG[:SPLIT]]``, of the Hugging Face hub or of a local folder."""

from __future__ import annotations

import os
import re
from dataclasses import dataclass, replace
from pathlib import Path

from headlens.errors import CorpusError

PREFIX = "hub:"
FORM = "hub:DATASET[:CONFIG[:SPLIT]]"
_HUB_ID = re.compile(r"(?:[\w-][\w.-]*/)?[\w-][\w.-]*")  # owner/name, or name


@dataclass(frozen=True, slots=True)
class Place:
    """A dataset and a part of it.

    Args:
        dataset: a hub id, or a folder.
        config: which of its configurations; None for the only one, or its own default.
        split: which split; None for the one that headlens chooses.
        revision: branch, tag or commit on the hub.
    """

    dataset: str
    config: str | None = None
    split: str | None = None
    revision: str | None = None

    @property
    def folder(self) -> Path | None:
        """The folder, where it is a local dataset."""
        return Path(self.dataset).expanduser() if _is_folder(self.dataset) else None

    def __str__(self) -> str:
        dataset = self.dataset if self.revision is None else f"{self.dataset}@{self.revision}"
        parts = [dataset, self.config or "", self.split or ""]
        return PREFIX + ":".join(parts).rstrip(":")


def is_hub(text: object) -> bool:
    """Tell whether a corpus is a dataset rather than a file or folder."""
    return str(text).startswith(PREFIX)


def parse(text: str) -> Place:
    """Read what a user types for a dataset.

    Args:
        text: ``hub:DATASET``, ``hub:DATASET:CONFIG``, ``hub:DATASET:CONFIG:SPLIT``; an empty CONFIG is the
            default one. A hub id can be followed by ``@REVISION``.

    Returns:
        The place; whether there is such a dataset is not looked up.

    Raises:
        CorpusError: it is neither a folder nor a hub id.
    """
    parts = text.removeprefix(PREFIX).split(":")
    taken = next((n for n in range(len(parts), 0, -1) if _is_folder(":".join(parts[:n]))), 0)
    dataset, rest = ":".join(parts[: taken or 1]), parts[taken or 1 :]
    revision = None
    if not taken:
        dataset, at, named = dataset.partition("@")
        revision = named if at else None
        if not _HUB_ID.fullmatch(dataset) or revision == "":
            raise CorpusError(
                f"Expected a folder or the id of a dataset in {text!r}, and there is no folder {dataset!r}.",
                f"Type {FORM}, such as hub:./my-data or hub:owner/name::test.",
            )
    if len(rest) > 2:
        raise CorpusError(f"There are too many colons in {text!r}.", f"Type {FORM}.")
    config, split = [*(part or None for part in rest), None, None][:2]
    return Place(dataset, config, split, revision)


def _is_folder(text: str) -> bool:
    return bool(text) and Path(text).expanduser().is_dir()


def seen_from(text: str, folder: Path) -> str:
    """Resolve the folder of a local dataset relative to another folder, as other paths are.

    Args:
        text: what a user types for a dataset.
        folder: where it was typed, such as an experiment file's folder.

    Returns:
        The same with the folder's place; a hub id as it is.
    """
    name, colon, rest = text.removeprefix(PREFIX).partition(":")
    seen = folder / name
    return f"{PREFIX}{seen}{colon}{rest}" if name and seen.is_dir() else text


def beside(text: str, folder: Path) -> str:
    """Write the folder of a local dataset, seen from here, as `seen_from` takes it.

    Args:
        text: what a user types for a dataset.
        folder: from which it shall be seen, such as an experiment file's folder.

    Returns:
        The same with the way to the folder; a hub id, and a folder with its whole place, as it is.
    """
    name, colon, rest = text.removeprefix(PREFIX).partition(":")
    if not name or Path(name).is_absolute() or not Path(name).is_dir():
        return text
    return f"{PREFIX}{os.path.relpath(name, folder)}{colon}{rest}"


def shown(path: str) -> str:
    """Name a corpus in a record: a file without its folder, a dataset with its configuration and split.

    Args:
        path: the file, or what `Place` is written as.

    Returns:
        The name; it tells no local path.
    """
    if not is_hub(path):
        return Path(path).name
    place = parse(path)
    return path if place.folder is None else str(replace(place, dataset=place.folder.resolve().name))
