"""Datasets of the Hugging Face hub: how they are named, found and opened."""

from __future__ import annotations

import importlib
import os
import re
from collections.abc import Generator, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, TypeVar

from headlens.errors import CorpusError
from headlens.model.source import hub_reachable

PREFIX = "hub:"
FORM = "hub:DATASET[:CONFIG[:SPLIT]]"
_HUB_ID = re.compile(r"(?:[\w-][\w.-]*/)?[\w-][\w.-]*")  # owner/name, or name


@dataclass(frozen=True, slots=True)
class DatasetPlace:
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


def parse(text: str) -> DatasetPlace:
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
    return DatasetPlace(dataset, config, split, revision)


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
        path: the file, or what `DatasetPlace` is written as.

    Returns:
        The name; it tells no local path.
    """
    if not is_hub(path):
        return Path(path).name
    place = parse(path)
    return path if place.folder is None else str(replace(place, dataset=place.folder.resolve().name))


# ---- The `datasets` library, quiet, and with its errors told in one line


T = TypeVar("T")


def library(place: DatasetPlace) -> Any:
    """Import the library.

    Args:
        place: what it is wanted for.

    Returns:
        The module.

    Raises:
        CorpusError: it is not installed.
    """
    try:
        return importlib.import_module("datasets")
    except ImportError:
        raise CorpusError(
            f"Reading {place} needs the package datasets, which is not installed.",
            "Type: pip install 'headlens[hub]'",
        ) from None


def told(place: DatasetPlace, rows: Iterable[T]) -> Generator[T, None, None]:
    """Read rows, or lines.

    Args:
        place: where they come from.
        rows: what is read.

    Yields:
        Each of them.

    Raises:
        CorpusError: one of them cannot be read.
    """
    try:
        yield from rows
    except Exception as error:  # of pyarrow, pandas, fsspec, the HTTP library, ...
        raise CorpusError(f"{place} cannot be read: {one_line(error)}", "Correct the data.") from error


def one_line(error: BaseException) -> str:
    """Write the message of a foreign error in one line, or its kind where it has none."""
    return (" ".join(str(error).split()) or type(error).__name__).rstrip(".:") + "."


@contextmanager
def quiet(module: Any, offline: bool) -> Iterator[None]:
    """Keep the library's own bars and notes off the screen while the block lasts.

    Args:
        module: the library.
        offline: have it look in its cache only: otherwise it tries for half a minute.

    Yields:
        Nothing.
    """
    log, bars = module.utils.logging, not module.are_progress_bars_disabled()
    level, was_offline = log.get_verbosity(), module.config.HF_HUB_OFFLINE
    log.set_verbosity_error()
    module.disable_progress_bars()
    module.config.HF_HUB_OFFLINE = offline or was_offline
    try:
        yield
    finally:
        module.config.HF_HUB_OFFLINE = was_offline
        log.set_verbosity(level)
        if bars:
            module.enable_progress_bars()


# ---- Finds a split of a dataset through the `datasets` library, and says what there is where it does not


KINDS = ("parquet", "json", "csv", "arrow", "text", "cache")
PREFERRED = ("validation", "dev", "test")  # the split that is read where several are there and none is named


@dataclass(frozen=True, slots=True)
class Opened:
    """A split of a dataset, ready to be read.

    Args:
        place: where it is; config and split are those that were found.
        rows: the rows as the library streams them, None where the split is text files.
        files: the text files, where it is some.
        revision: the commit, where it came from the hub.
        n_rows: how many rows the split has, None where that is not known.
    """

    place: DatasetPlace
    rows: Any
    files: tuple[str, ...]
    revision: str | None
    n_rows: int | None

    @property
    def features(self) -> Mapping[str, Any]:
        """The types of the columns, as far as the library knows them before it reads."""
        return getattr(self.rows, "features", None) or {}

    def lines(self, file: str) -> Iterator[str]:
        """Read one of the text files line by line."""
        rows = library(self.place).load_dataset("text", data_files=file, split="train", streaming=True)
        for number, row in enumerate(told(self.place, rows)):
            yield row["text"].removeprefix("\ufeff") if number == 0 else row["text"]


def open_place(place: DatasetPlace) -> Opened:
    """Find a split of a dataset. None of its rows is read yet, and no code that comes with it ever runs.

    Args:
        place: which; without a split the only one, else the first of `PREFERRED` that there is.

    Returns:
        The split.

    Raises:
        CorpusError: it cannot be had; the message says why, and what there is.
    """
    module = library(place)
    online = place.folder is not None or hub_reachable()
    with quiet(module, offline=not online):
        builder = _builder(module, place, online)
        kind = str(builder.info.builder_name or builder.name)
        _check_kind(place, kind, builder.name)
        streams = dict(told(place, _streams(builder)))
    split = _split(place, list(map(str, streams)))
    config = None if builder.config.name in (None, "default") else str(builder.config.name)
    sizes: Mapping[str, Any] = builder.info.splits or {}
    return Opened(
        place=replace(place, config=config, split=split),
        rows=None if kind == "text" else streams[split],
        files=tuple(map(str, builder.config.data_files[split])) if kind == "text" else (),
        revision=None if place.folder is not None else str(builder.hash),
        n_rows=sizes[split].num_examples if split in sizes else None,
    )


def _streams(builder: Any) -> Iterator[tuple[str, Any]]:
    """Each split with its rows; some kinds of files are looked into here."""
    yield from builder.as_streaming_dataset().items()


def _builder(module: Any, place: DatasetPlace, online: bool) -> Any:
    name = place.dataset if place.folder is None else str(place.folder.resolve())
    try:
        return module.load_dataset_builder(name, place.config, revision=place.revision)
    except module.exceptions.DatasetNotFoundError as error:
        problem = f"The hub has no dataset {place.dataset!r} that you may read: {one_line(error)}"
        raise CorpusError(problem, "Check its name.") from None
    except ValueError as error:
        raise _wrong_config(module, place, name, error) from None
    except RuntimeError as error:
        if "script" not in str(error):
            raise CorpusError(f"{place} cannot be read: {one_line(error)}") from None
        raise CorpusError(
            f"The dataset {place.dataset!r} is a loading script, and headlens runs no code that comes with "
            "data.",
            "Take a copy of it that is parquet, jsonl or csv files.",
        ) from None
    except Exception as error:  # the library raises many kinds for a place without data
        if not online:
            raise CorpusError(
                f"There is no folder {place.dataset!r}; as a dataset of the hub it is not in the cache, and "
                "the hub cannot be reached.",
                "What works without network: a local folder, as in hub:./my-data.",
            ) from None
        raise CorpusError(
            f"{place} holds no data that can be read: {one_line(error)}",
            "Name one of parquet, jsonl, csv or txt files.",
        ) from None


def _wrong_config(module: Any, place: DatasetPlace, name: str, error: ValueError) -> CorpusError:
    """What is wrong with the configuration, and which there are."""
    try:
        there = ", ".join(module.get_dataset_config_names(name, revision=place.revision))
    except Exception:  # without network only the error itself knows
        remedy = "Where it has several configurations, name one: hub:DATASET:CONFIG."
        return CorpusError(f"{place} cannot be read: {one_line(error)}", remedy)
    if place.config is None and ", " in there:
        return CorpusError(f"{place} has several configurations: {there}.", f"Type {place}:CONFIG.")
    if place.config in (None, *there.split(", ")):
        return CorpusError(f"{place} cannot be read: {one_line(error)}", "Correct the dataset.")
    return CorpusError(f"{place} has no configuration {place.config!r}.", f"There are: {there}.")


def _check_kind(place: DatasetPlace, kind: str, read_by: str) -> None:
    if kind == "text" and read_by != "text":
        raise CorpusError(
            f"{place} is text files, and its copy in the cache does not tell any more where one ends.",
            "Connect to the hub, or name a folder of the files.",
        )
    if kind == "conll":
        raise CorpusError(
            f"{place} holds CoNLL files, which have no columns that are named.",
            "Name the files, or their folder, without hub:.",
        )
    if kind not in KINDS:
        raise CorpusError(
            f"{place} is a dataset of the kind {kind!r}, which holds no text.",
            "Name one of parquet, jsonl, csv or txt files.",
        )


def _split(place: DatasetPlace, there: list[str]) -> str:
    if place.split in there:
        return str(place.split)
    found = there if len(there) == 1 else [name for name in PREFERRED if name in there]
    if place.split is None and found:
        return found[0]
    problem = "has several splits" if place.split is None else f"has no split {place.split!r}"
    example = replace(place, split=there[0]) if there else place
    raise CorpusError(f"{place} {problem}.", f"There are: {', '.join(there)}. Type for example {example}.")
