"""Finds a split of a dataset through the `datasets` library, and says what there is where it does not."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any

from headlens.errors import CorpusError
from headlens.model.source import hub_reachable
from headlens.text.hub import Place
from headlens.text.hub_library import library, one_line, quiet, told

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

    place: Place
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


def open_place(place: Place) -> Opened:
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


def _builder(module: Any, place: Place, online: bool) -> Any:
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


def _wrong_config(module: Any, place: Place, name: str, error: ValueError) -> CorpusError:
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


def _check_kind(place: Place, kind: str, read_by: str) -> None:
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


def _split(place: Place, there: list[str]) -> str:
    if place.split in there:
        return str(place.split)
    found = there if len(there) == 1 else [name for name in PREFERRED if name in there]
    if place.split is None and found:
        return found[0]
    problem = "has several splits" if place.split is None else f"has no split {place.split!r}"
    example = replace(place, split=there[0]) if there else place
    raise CorpusError(f"{place} {problem}.", f"There are: {', '.join(there)}. Type for example {example}.")
