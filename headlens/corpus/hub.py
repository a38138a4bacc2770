"""Datasets of the Hugging Face hub: how they are named and opened, and the corpus that their columns hold."""

from __future__ import annotations

import ast
import hashlib
import importlib
import json
import os
import re
from collections import Counter
from collections.abc import Generator, Iterable, Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from dataclasses import dataclass, field, replace
from itertools import chain, islice
from pathlib import Path
from typing import Any, TypeVar

from headlens.corpus.conllu import ConlluReader
from headlens.corpus.corpus import Corpus, Document, Origin
from headlens.corpus.plain import LONGEST, chunks, find_parser
from headlens.errors import CorpusError
from headlens.model.source import hub_reachable
from headlens.util.formatting import decimal

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


def _library(place: DatasetPlace) -> Any:
    """Import the library."""
    try:
        return importlib.import_module("datasets")
    except ImportError:
        raise CorpusError(
            f"Reading {place} needs the package datasets, which is not installed.",
            "Type: pip install 'headlens[hub]'",
        ) from None


def _told(place: DatasetPlace, rows: Iterable[T]) -> Generator[T, None, None]:
    """Read rows, or lines."""
    try:
        yield from rows
    except Exception as error:  # of pyarrow, pandas, fsspec, the HTTP library, ...
        raise CorpusError(f"{place} cannot be read: {_one_line(error)}", "Correct the data.") from error


def _one_line(error: BaseException) -> str:
    """Write the message of a foreign error in one line, or its kind where it has none."""
    return (" ".join(str(error).split()) or type(error).__name__).rstrip(".:") + "."


@contextmanager
def _quiet(module: Any, offline: bool) -> Iterator[None]:
    """Keep the library's own bars and notes off the screen while the block lasts."""
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
class _Opened:
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
        rows = _library(self.place).load_dataset("text", data_files=file, split="train", streaming=True)
        for number, row in enumerate(_told(self.place, rows)):
            yield row["text"].removeprefix("\ufeff") if number == 0 else row["text"]


def _open_place(place: DatasetPlace) -> _Opened:
    """Find a split of a dataset. None of its rows is read yet, and no code that comes with it ever runs."""
    module = _library(place)
    online = place.folder is not None or hub_reachable()
    with _quiet(module, offline=not online):
        builder = _builder(module, place, online)
        kind = str(builder.info.builder_name or builder.name)
        _check_kind(place, kind, builder.name)
        streams = dict(_told(place, _streams(builder)))
    split = _split(place, list(map(str, streams)))
    config = None if builder.config.name in (None, "default") else str(builder.config.name)
    sizes: Mapping[str, Any] = builder.info.splits or {}
    return _Opened(
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
        problem = f"The hub has no dataset {place.dataset!r} that you may read: {_one_line(error)}"
        raise CorpusError(problem, "Check its name.") from None
    except ValueError as error:
        raise _wrong_config(module, place, name, error) from None
    except RuntimeError as error:
        if "script" not in str(error):
            raise CorpusError(f"{place} cannot be read: {_one_line(error)}") from None
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
            f"{place} holds no data that can be read: {_one_line(error)}",
            "Name one of parquet, jsonl, csv or txt files.",
        ) from None


def _wrong_config(module: Any, place: DatasetPlace, name: str, error: ValueError) -> CorpusError:
    """What is wrong with the configuration, and which there are."""
    try:
        there = ", ".join(module.get_dataset_config_names(name, revision=place.revision))
    except Exception:  # without network only the error itself knows
        remedy = "Where it has several configurations, name one: hub:DATASET:CONFIG."
        return CorpusError(f"{place} cannot be read: {_one_line(error)}", remedy)
    if place.config is None and ", " in there:
        return CorpusError(f"{place} has several configurations: {there}.", f"Type {place}:CONFIG.")
    if place.config in (None, *there.split(", ")):
        return CorpusError(f"{place} cannot be read: {_one_line(error)}", "Correct the dataset.")
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


# ---- A corpus from a dataset of the hub: its columns, its rows, its sentences


MOST = 100_000  # sentences that are read unless the user says how many
NO_WORDS = "rows without words, or with a blank one"
HEADLESS = "tokens without a head (multiword tokens, empty nodes)"


def read_dataset(
    place: DatasetPlace,
    parser: str | None = None,
    columns: Sequence[str] = (),
    max_sentences: int | None = None,
) -> Corpus:
    """Read a dataset.

    A row of running text is a document, read as a plain-text file is; so is each file of a dataset of .txt
    files. A row of words is a sentence, and the split is one document unless a column `comments` says where
    documents begin. Rows are read one after the other, and none beyond those that are wanted.

    Args:
        place: which.
        parser: "spacy:NAME" parses running text.
        columns: columns to read; by default they are found by name, see `choose`.
        max_sentences: stop as soon as so many are read; the last text may bring a few more.

    Returns:
        The corpus; its `sha256` is that of what was read, whatever files it stood in.

    Raises:
        CorpusError: it cannot be had or read, or has more than 100,000 sentences and `max_sentences` is None.
    """
    opened = _open_place(place)
    reader = _Reader(opened, max_sentences)
    if opened.rows is None:
        return reader.of_files(parser)
    with closing(_told(opened.place, opened.rows)) as rows:
        first = next(rows, None)
        if first is None:
            raise CorpusError(f"{opened.place} has no rows.", "Name another split.")
        chosen = choose(opened.place, first, opened.features, columns)
        every = chain([first], rows)
        return (
            reader.of_texts(chosen, every, parser) if chosen.running_text else reader.of_words(chosen, every)
        )


@dataclass(slots=True)
class _Reader:
    """Reads one split, and counts."""

    opened: _Opened
    max_sentences: int | None
    n_rows: int = 0
    n_sentences: int = 0
    left_out: Counter[str] = field(default_factory=Counter)
    digest: Any = field(default_factory=hashlib.sha256)

    def of_words(self, columns: _Columns, rows: Iterable[Mapping[str, Any]]) -> Corpus:
        name = str(self.opened.place)
        reader = ConlluReader(name, Path(self.opened.place.dataset).name, "row")
        reader.read(self._conllu(columns, rows))
        return self._corpus(reader.documents, columns.names.values(), None, reader.n_newdocs > 0)

    def _conllu(self, columns: _Columns, rows: Iterable[Mapping[str, Any]]) -> Iterator[tuple[int, str]]:
        for number, row in self._wanted(rows):
            lines = list(_conllu_lines(columns, number, row))
            n_words = sum(map(_is_word, lines))
            self.left_out[HEADLESS] += len(row[columns.names["words"]]) - n_words if n_words else 0
            self.left_out[NO_WORDS] += not n_words
            self.n_sentences += n_words > 0
            for line in (*lines, "") if n_words else ():
                self.digest.update(f"{line}\n".encode())
                yield number, line

    def of_texts(self, columns: _Columns, rows: Iterable[Mapping[str, Any]], parser: str | None) -> Corpus:
        parse, name = find_parser(parser), str(self.opened.place)
        documents = []
        for number, row in self._wanted(rows):
            text = columns.text(number, row)
            self.digest.update(json.dumps(text).encode())
            lines = ((number, line) for line in text.split("\n"))
            sentences = tuple(parse(chunks(lines, LONGEST), name))
            self.left_out[NO_WORDS] += not sentences
            self.n_sentences += len(sentences)
            if sentences:
                documents.append(Document(f"{Path(self.opened.place.dataset).name}-{number}", sentences, ()))
        return self._corpus(documents, columns.names.values(), parser, True)

    def of_files(self, parser: str | None) -> Corpus:
        parse = find_parser(parser)
        documents = []
        for _, file in self._wanted(self.opened.files):
            room = self._most + 1 - self.n_sentences
            lines = enumerate(self._lines(file), start=1)
            sentences = tuple(islice(parse(chunks(lines, LONGEST), file), room))
            self.n_sentences += len(sentences)
            if sentences:
                documents.append(Document(Path(file).stem, sentences, ()))
        self._check_most()
        return self._corpus(documents, ("text",), parser, False)

    def _lines(self, file: str) -> Iterator[str]:
        for line in self.opened.lines(file):
            self.digest.update(f"{line}\n".encode())
            yield line
        self.digest.update(b"\0")

    @property
    def _most(self) -> int:
        return MOST if self.max_sentences is None else self.max_sentences

    def _wanted(self, rows: Iterable[Any]) -> Iterator[tuple[int, Any]]:
        """Number the rows, and stop where enough sentences are read."""
        for row in rows:
            if self.n_sentences >= self._most:
                self._check_most(more=True)
                return
            self.n_rows += 1
            yield self.n_rows, row

    def _check_most(self, more: bool = False) -> None:
        if self.max_sentences is None and self.n_sentences + more > MOST:
            raise CorpusError(
                f"{self.opened.place} has more than {MOST:,} sentences, which take long and much memory.",
                f"Say how many of the first to read, as in --max-sentences {MOST}.",
            )

    def _corpus(
        self, documents: Sequence[Document], columns: Iterable[str], parser: str | None, marked: bool
    ) -> Corpus:
        place, sha256 = self.opened.place, self.digest.hexdigest()
        if not documents:
            raise CorpusError(f"{place} holds no word.", "Name another split, or other --columns.")
        trees = all(sentence.has_tree for document in documents for sentence in document.sentences)
        origin = Origin(
            place.dataset, place.config, str(place.split), self.opened.revision, tuple(columns),
            self.n_rows, self.opened.n_rows, dict(+self.left_out), sha256,
        )  # fmt: skip
        return Corpus(
            documents=tuple(documents),
            paths=(str(place),),
            sha256=sha256,
            has_trees=trees,
            has_entities=any(document.mentions for document in documents),
            has_documents=marked,
            parser=parser,
            datasets=(origin,),
        )


# ---- The columns of a dataset that are read


TEXT = ("text", "sentence", "content", "document")
WORDS: Mapping[str, tuple[str, ...]] = {
    "words": ("tokens", "words", "form"),
    "upos": ("upos",),
    "head": ("head", "heads"),
    "deprel": ("deprel", "deprels"),
    "lemmas": ("lemmas", "lemma"),
}
"""What is known of words, and the names that such columns have."""
BESIDES = ("misc", "mwt", "comments", "sent_id")
CHOICES = (("text",), ("tokens", "upos", "head", "deprel"), ("tokens", "upos", "head", "deprel", "lemmas"))


@dataclass(frozen=True, slots=True)
class _Columns:
    """Which columns are read.

    Args:
        place: the dataset, for messages.
        names: column by what it holds: "text" alone, or "words" and what else of `WORDS` and `BESIDES`.
        labels: for columns of numbered classes the names of the classes.
    """

    place: DatasetPlace
    names: Mapping[str, str]
    labels: Mapping[str, Sequence[str]]

    @property
    def running_text(self) -> bool:
        """Whether rows are texts; else they are sentences in words."""
        return "text" in self.names

    def wrong(self, number: int, what: str, expected: str, found: object) -> CorpusError:
        """Say what a cell should have been."""
        return CorpusError(
            f"{self.place}, row {number}: expected {expected} in the column {self.names[what]}, found "
            f"{str(found)[:40]!r}.",
            "Correct the data, or choose other columns with --columns.",
        )

    def text(self, number: int, row: Mapping[str, Any]) -> str:
        """Read a row of running text, "" where it has none."""
        text = row[self.names["text"]]
        if not isinstance(text, str | None):
            raise self.wrong(number, "text", "a text", text)
        return text or ""

    def lists(self, number: int, row: Mapping[str, Any], what: str) -> list[Any]:
        """Read what is known of each word, None where there is no such column."""
        n_words = len(row[self.names["words"]] or ())
        if what not in self.names:
            return [None] * n_words
        cells = row[self.names[what]]
        if not isinstance(cells, list | None):
            raise self.wrong(number, what, "a list", cells)
        if len(cells or ()) != n_words:
            raise self.wrong(number, what, f"{n_words} entries, one for each word,", len(cells or ()))
        names = self.labels.get(self.names[what])
        named = [_label(names, cell) if names is not None else cell for cell in cells or ()]
        kinds = {"words": str, "head": str | int | None}.get(what, str | None)
        for cell in named:
            if not isinstance(cell, kinds):
                raise self.wrong(number, what, "whole numbers" if what == "head" else "texts", cell)
        return named


def choose(
    place: DatasetPlace, row: Mapping[str, Any], types: Mapping[str, Any], wanted: Sequence[str]
) -> _Columns:
    """Settle which columns to read.

    Args:
        place: the dataset, for messages.
        row: its first row.
        types: the types of its columns, where they are known.
        wanted: columns that the user names: one of text or of words, or those of words, parts of speech,
            heads and relations, and of lemmas.

    Returns:
        The columns: those wanted; else words, with trees where the dataset has them; else text.

    Raises:
        CorpusError: there are none, or one that is wanted does not exist.
    """
    names = _wanted(place, row, wanted) if wanted else _known(row)
    if not names:
        raise CorpusError(
            f"{place} has no column of text or words; it has: {', '.join(row)}.",
            f"Known are {', '.join((*TEXT, *WORDS['words']))}; choose another with --columns NAME.",
        )
    if "words" in names:
        names |= {name: name for name in BESIDES if name in row}
    labels = {name: made for name, kind in types.items() if (made := _classes(kind)) is not None}
    return _Columns(place, names, labels)


def _wanted(place: DatasetPlace, row: Mapping[str, Any], wanted: Sequence[str]) -> dict[str, str]:
    if len(wanted) not in map(len, CHOICES):
        ways = " or ".join(",".join(choice) for choice in CHOICES)
        raise CorpusError(
            f"--columns: expected names for {ways} of {place}, found {','.join(wanted)!r}.",
            "Name as many columns.",
        )
    lost = next((name for name in wanted if name not in row), None)
    if lost is not None:
        raise CorpusError(f"{place} has no column {lost!r}.", f"It has: {', '.join(row)}.")
    if len(wanted) == 1 and not isinstance(row[wanted[0]], list):
        return {"text": wanted[0]}
    return dict(zip(WORDS, wanted, strict=False))


def _known(row: Mapping[str, Any]) -> dict[str, str]:
    found = {
        what: name
        for what, known in WORDS.items()
        for name in known[::-1]  # of several the first one known stays
        if isinstance(row.get(name), list)
    }
    if not {"head", "deprel"} <= found.keys():  # half a tree is none
        found = {what: name for what, name in found.items() if what not in ("head", "deprel")}
    if "words" in found:
        return found
    text = next((name for name in TEXT if name in row and isinstance(row[name], str | None)), None)
    return {} if text is None else {"text": text}


def _classes(kind: Any) -> Sequence[str] | None:
    """The names of numbered classes, also of lists of them."""
    names = getattr(getattr(kind, "feature", kind), "names", None)
    return names if isinstance(names, list) else None


def _label(names: Sequence[str], cell: Any) -> Any:
    if not isinstance(cell, int):
        return cell
    return names[cell] if 0 <= cell < len(names) else None  # the library writes -1 for no class


# ---- Rows of words as the CoNLL-U lines that they stand for, so that one reader reads both alike


NO_HEAD = (None, "", "_", "None")  # what stands for the head of what is no word


def _conllu_lines(columns: _Columns, number: int, row: Mapping[str, Any]) -> Iterator[str]:
    """Write a row of words as CoNLL-U.

    In some datasets multiword tokens and empty nodes stand among the words, without a head. They are left
    out where other words have one, since heads do not count them.
    """
    cells = {what: columns.lists(number, row, what) for what in ("words", "lemmas", "upos", "deprel", "misc")}
    heads = [_head(columns, number, head) for head in columns.lists(number, row, "head")]
    kept = [i for i, head in enumerate(heads) if head != "_"] or range(len(heads))
    if not all(word.strip() for word in cells["words"]):
        return
    if kept:
        yield from _comments(columns, row)
    ranges = {str(span["id"]).partition("-")[0]: span for span in _records(columns, row, "mwt")}
    for index, i in enumerate(kept, start=1):
        if span := ranges.get(str(index)):
            yield _line(str(span["id"]), span["form"], misc=_misc(span.get("misc")))
        word, lemma, upos, deprel, misc = (cells[what][i] for what in cells)
        yield _line(str(index), word, lemma, upos, heads[i], deprel, _misc(misc))


def _is_word(line: str) -> bool:
    """Tell whether a line is that of a word."""
    return line.partition("\t")[0].isdigit()


def _line(
    place: str, form: str, lemma: str | None = None, upos: str | None = None, head: str = "_",
    deprel: str | None = None, misc: str = "_",
) -> str:  # fmt: skip
    cells = [place, form, lemma, upos, None, None, head, deprel, None, misc]
    return "\t".join("_" if cell is None else " ".join(cell.split()) or "_" for cell in cells)


def _head(columns: _Columns, number: int, head: Any) -> str:
    if head in NO_HEAD:
        return "_"
    value = decimal(str(head))
    if not value.is_integer():
        raise columns.wrong(number, "head", "whole numbers", head)
    return str(int(value))


def _comments(columns: _Columns, row: Mapping[str, Any]) -> Iterator[str]:
    for comment in row[columns.names["comments"]] or () if "comments" in columns.names else ():
        yield "# " + " ".join(str(comment).lstrip("#").split())
    if "sent_id" in columns.names and row["sent_id"] is not None:
        yield f"# sent_id = {row['sent_id']}"


def _records(columns: _Columns, row: Mapping[str, Any], what: str) -> list[dict[str, Any]]:
    """Records, which datasets hold as a list of them or as lists of their parts."""
    found = row[columns.names[what]] or [] if what in columns.names else []
    if isinstance(found, dict):
        return [dict(zip(found, parts, strict=True)) for parts in zip(*found.values(), strict=True)]
    return list(found)


def _misc(value: str | None) -> str:
    """The last column; some datasets hold it as Python writes a dictionary."""
    if value is None or value in NO_HEAD:
        return "_"
    try:
        found = ast.literal_eval(value) if value.startswith("{") else None
    except (ValueError, SyntaxError):
        found = None
    if not isinstance(found, dict):
        return value
    return "|".join(str(key) if told is None else f"{key}={told}" for key, told in found.items())
