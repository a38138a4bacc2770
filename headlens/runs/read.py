"""Reads runs back from their directories: records, tables, what they mark heads with."""

from __future__ import annotations

import base64
import shlex
import warnings
import zlib
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pandas as pd

from headlens.errors import RunError
from headlens.model.heads import Head
from headlens.model.lens import Lens
from headlens.util.files import (
    from_home,
    is_directory,
    is_there,
    load_json,
    load_record,
    open_regular,
    read_checked,
    read_csv,
)

# ---- What finished runs say about heads: tags from classify, importance from ablate


HEAD = ("stack", "layer", "head")


@dataclass(frozen=True, slots=True)
class Marks:
    """What earlier runs say about heads.

    Args:
        tags: of each head, strongest first; None where nobody looked.
        importance: of each head, None where nobody measured.
        method: how importance was estimated.
    """

    tags: Mapping[Head, Sequence[str]] | None = None
    importance: Mapping[Head, float] | None = None
    method: str = ""


def tags_by_head(tags: pd.DataFrame) -> dict[Head, tuple[str, ...]]:
    """Read the column `tags`.

    Args:
        tags: columns as in `headlens.util.files.TAGS`, also as read from a file.

    Returns:
        Every head's tags, strongest first.
    """
    columns = (tags["stack"], tags["layer"], tags["head"], tags["tags"].astype(object).fillna(""))
    return {
        Head(str(stack), int(layer), int(head)): tuple(filter(None, str(mine).split(";")))
        for stack, layer, head, mine in zip(*columns, strict=True)
    }


def read_marks(runs: Iterable[str | Path], model: Lens | Sequence[Head]) -> Marks:
    """Read the tags and the importance of a model's heads from run directories.

    It misleads where it is given heads in place of a lens: many models have the same layers and heads, so a
    run of another one is then not noticed.

    Args:
        runs: directories of ``headlens classify`` (tags.csv) or ``headlens ablate`` (importance.csv); where
            several say the same, the last one counts.
        model: the model, so that runs of another one are refused; or all of its heads.

    Returns:
        What they say. Of several methods of importance it is the first in the file.

    Raises:
        RunError: a directory holds neither table, one cannot be read, or is about another model.
    """
    heads = model.anatomy.heads if isinstance(model, Lens) else model
    same = _SameModel(model) if isinstance(model, Lens) else None
    tags, importance, method = None, None, ""
    for run in map(Path, runs):
        found = {name: run / name for name in ("tags.csv", "importance.csv") if is_there(run / name)}
        if not found:
            raise RunError(
                f"Expected the --out of a headlens classify or ablate; {run} has no tags.csv and no "
                "importance.csv.",
                f"Type first: headlens classify MODEL --out {shlex.quote(str(run))}",
            )
        if "tags.csv" in found:
            tags = read_tags(run)
            _check(run, tags, heads, whole=True)
        if "importance.csv" in found:
            columns = [*HEAD, "method", "importance"]
            importance, method = _first_method(
                _read_table(found["importance.csv"], columns, ("stack", "method"))
            )
            _check(run, importance, heads)
        if same is not None:
            same.check(run)
    return Marks(tags, importance or None, method)


def read_tags(run: Path) -> dict[Head, tuple[str, ...]]:
    """Read the tags of each head, strongest first, from a run of ``headlens classify``.

    Raises:
        RunError: it has no table of tags, or one that cannot be read.
    """
    if not is_there(run / "tags.csv"):
        raise RunError(
            f"Expected the --out of a headlens classify; {run} has no tags.csv.",
            f"Type first: headlens classify MODEL --out {shlex.quote(str(run))}",
        )
    return tags_by_head(_read_table(run / "tags.csv", [*HEAD, "tags"], ("stack", "tags")))


def tags_of(lens: Lens, run: Path) -> dict[Head, tuple[str, ...]]:
    """Read the tags of each head, as `read_tags`, of a run that must be about the model at hand."""
    tags = read_tags(run)
    _check(run, tags, lens.anatomy.heads, whole=True)
    _SameModel(lens).check(run)
    return tags


def tagged_heads(lens: Lens, run: Path) -> dict[str, tuple[Head, ...]]:
    """Read which heads carry which tags.

    Args:
        lens: the model that is to be ablated; it must be the one that was classified.
        run: run directory of `classify`.

    Returns:
        Heads of each tag that any head carries, tags in the order of the alphabet.

    Raises:
        RunError: the directory holds no such run, or that of another model, or no head has a tag.
    """
    tags = tags_of(lens, run)
    names = sorted({tag for carried in tags.values() for tag in carried})
    if not names:
        raise RunError(f"No head has a tag in {run}.", "Classify on a larger corpus, and name that run.")
    return {name: tuple(head for head, carried in tags.items() if name in carried) for name in names}


def marks_of(tables: Mapping[str, pd.DataFrame]) -> Marks:
    """What the tables of a result say about heads: tags, and importance by the first method."""
    tags = tags_by_head(tables["tags.csv"]) if "tags.csv" in tables else None
    if "importance.csv" not in tables:
        return Marks(tags)
    importance, method = _first_method(tables["importance.csv"])
    return Marks(tags, importance or None, method)


def _first_method(table: pd.DataFrame) -> tuple[dict[Head, float], str]:
    """The importance of each head by the first method of an `importance.csv`, and its name."""
    method = str(table["method"].iloc[0]) if len(table) else ""
    rows = table[table["method"] == method]
    values = [rows[name] for name in (*HEAD, "importance")]
    heads = {Head(str(s), int(x), int(h)): float(v) for s, x, h, v in zip(*values, strict=True)}
    return heads, method


def _check(run: Path, found: Mapping[Head, Any], heads: Sequence[Head], whole: bool = False) -> None:
    """Refuse a run of another model: with heads that this one has not, or, of tags, without all it has."""
    strange, absent = set(found) - set(heads), set(heads) - set(found)
    if strange or (whole and absent):
        head, lacking = (min(strange), "this model") if strange else (min(absent), "it")
        raise RunError(
            f"{run} is about another model: {lacking} has no head {head}.", "Give a run of the same model."
        )


# ---- Whether a finished run is about the model at hand: shapes alone do not tell, since models share them


class _SameModel:
    """Holds runs against one model; its weight files are hashed once, and only if a run has hashes.

    Args:
        lens: the model.
    """

    def __init__(self, lens: Lens) -> None:
        self._lens = lens
        self._found: Mapping[str, str] | None = None

    def check(self, run: Path) -> None:
        """Refuse a run of another model, and warn where it cannot be told.

        Where both have hashes of weight files, these decide; else the names and revisions do. It misleads
        where a checkpoint without such files was changed in its place: its name is still the same.
        """
        file = run / "run.json"
        told = read_json(file) if is_there(file) else {}
        told = told if isinstance(told, Mapping) else {}
        theirs = at(told, "model", default={})
        name = str(at(theirs, "name", default=""))
        if not name:
            warnings.warn(
                f"{run} does not say which model it is about: be sure it is this one.", stacklevel=3
            )
        elif self._lens.source is None:
            kind = f" (a {kind})" if (kind := at(theirs, "architecture")) else ""
            warnings.warn(
                f"{run} is about {name}{kind}; whether that is the model at hand cannot be told, since this "
                "one was not loaded from a place.",
                stacklevel=3,
            )
        elif (hashes := at(theirs, "weights_sha256", default={})) and self._lens.source.files:
            if hashes != self._hashes:
                raise self._another(run, at(told, "command"), name, "with other weights than")
        elif not _same_place(name, self._lens.source.name) or self._other_revision(theirs):
            raise self._another(run, at(told, "command"), name, "not with")

    @property
    def _hashes(self) -> Mapping[str, str]:
        if self._found is None:
            self._found = self._lens.source.sha256() if self._lens.source else {}
        return self._found

    def _other_revision(self, theirs: Mapping[str, Any]) -> bool:
        source = self._lens.source
        mine, its = source.options.get("revision") if source else None, at(theirs, "revision")
        return mine is not None and its is not None and mine != its

    def _another(self, run: Path, command: Any, name: str, how: str) -> RunError:
        mine = self._lens.source.name if self._lens.source else ""
        wanted = f"headlens {command if command == 'ablate' else 'classify'} {shlex.quote(mine)} --out DIR"
        return RunError(
            f"{run} is about another model: it was made with {name}, {how} {mine} as it is now.",
            f"Type first: {wanted}, and give that run.",
        )


def _same_place(one: str, other: str) -> bool:
    paths = [from_home(name) for name in (one, other)]
    return one == other or (
        all(is_there(path) or is_directory(path) for path in paths) and paths[0].samefile(paths[1])
    )


# ---- Reading what a finished run left, and carrying its files inside a page


AGAIN = "Make the run again."
_VALUE_KINDS = (Mapping, str, int | float, list | tuple)


@dataclass(frozen=True, slots=True)
class File:
    """A file that a page carries, to be saved from it as it is on disk.

    Args:
        name: of the file.
        content: its bytes.
    """

    name: str
    content: bytes

    @classmethod
    def read(cls, path: Path) -> File:
        """Read it.

        Args:
            path: where it is.

        Returns:
            The file.

        Raises:
            RunError: it cannot be read.
        """
        try:
            with open_regular(path) as file:
                return cls(path.name, file.read())
        except OSError as error:
            raise RunError(f"{path} cannot be read: {error.strerror}.", AGAIN) from error

    @property
    def size(self) -> str:
        """Its size for readers."""
        count = len(self.content)
        return f"{count / 1000:,.0f} kB" if count >= 1000 else f"{count} bytes"

    @property
    def coded(self) -> str:
        """Its bytes as base64 of a zlib stream, which browsers can open."""
        return base64.b64encode(zlib.compress(self.content, 9)).decode()


def read_run(path: Path, known: Sequence[str]) -> dict[str, Any]:
    """Read the run.json of a run directory.

    Args:
        path: the directory.
        known: commands whose runs are wanted.

    Returns:
        What it says.

    Raises:
        RunError: it is not there, broken, or of another command.
    """
    wanted = f"a finished run of headlens {_either(known)}"
    if not is_directory(path):
        raise RunError(
            f"Expected the directory of {wanted}; there is no directory {path}.", _run_remedy(known)
        )
    if not is_there(path / "run.json"):
        inside = sorted(str(file.parent) for file in path.glob("*/run.json"))
        remedy = f"Give the runs inside it: {shlex.join(inside)}" if inside else _run_remedy(known)
        raise RunError(f"Expected {wanted}; {path} has no run.json.", remedy)
    run = read_record(path / "run.json")
    command = run.get("command") if isinstance(run, dict) else None
    if command not in known:
        raise RunError(
            f"Expected {wanted}; {path} holds one of headlens {command or '?'}.", _run_remedy(known)
        )
    return dict(run)


def read_json(file: Path) -> Any:
    """Read a JSON file of a run.

    Args:
        file: where it is.

    Returns:
        What it says.

    Raises:
        RunError: it cannot be read.
    """
    return _loaded(file, load_json)


def read_record(file: Path) -> Any:
    """Read the run.json of a run, whatever it says.

    Args:
        file: where it is.

    Returns:
        What it says.

    Raises:
        RunError: it cannot be read, or is not as its run left it.
    """
    return _loaded(file, load_record)


def _loaded(file: Path, load: Callable[[Path], Any]) -> Any:
    try:
        return load(file)
    except (OSError, ValueError) as error:
        raise RunError(f"{file} cannot be read: {error}.", AGAIN) from error


def _read_table(file: Path, columns: Sequence[str], text: Sequence[str]) -> pd.DataFrame:
    """Read a table of a run."""
    if not is_there(file):
        raise RunError(f"Expected {file.name} in {file.parent}; it is not there.", AGAIN)
    try:
        return read_csv(file, columns, text)
    except LookupError as error:
        raise RunError(f"{file} has no column {error.args[0]}.", AGAIN) from error
    except (OSError, ValueError) as error:  # pandas' own errors are ValueErrors
        raise RunError(f"{file} cannot be read: {error}.", AGAIN) from error


def read_cells(file: Path) -> pd.DataFrame:
    """Read a table of a run whose columns are not known before.

    Args:
        file: where it is.

    Returns:
        All of its columns; every cell is text as it is written, empty where it is empty.

    Raises:
        RunError: it cannot be read, or is not as its run left it.
    """
    cells: pd.DataFrame = _loaded(
        file, lambda path: pd.read_csv(read_checked(path), dtype=str, keep_default_na=False)
    )
    return cells


@dataclass(frozen=True, slots=True)
class TableForm:
    """The form of one table of a result.

    Args:
        name: of the attribute that holds it, such as "scores"; its file is ``scores.csv``.
        columns: in the order of the file.
        text: those that hold text, empty where there is none; all in none of these lists hold numbers.
        flags: those that hold True or False, or nothing.
        gaps: those that hold whole numbers, or nothing.
        optional: whether a run without rows of it leaves no file.
        kind: of table: `pandas.DataFrame`, or a subclass.
        stem: the name of its file without the ending, where it is not that of the attribute.
    """

    name: str
    columns: Sequence[str]
    text: Sequence[str]
    flags: Sequence[str] = ()
    gaps: Sequence[str] = ()
    optional: bool = False
    kind: type[pd.DataFrame] = pd.DataFrame
    stem: str = ""

    @property
    def file(self) -> str:
        """The name of its file."""
        return f"{self.stem or self.name}.csv"


def read_form(place: Path, form: TableForm) -> pd.DataFrame:
    """Read one table of a result."""
    file = place / form.file
    if form.optional and not is_there(file):
        return form.kind(columns=list(form.columns))
    table = _read_table(file, form.columns, (*form.text, *form.flags, *form.gaps))
    for name in form.flags:
        if not table[name].isin(("True", "False", "")).all():
            raise RunError(f"{file} has rows whose {name} is neither True nor False.", AGAIN)
        said = table[name].map({"True": True, "False": False, "": None})
        table[name] = said.astype(bool if said.notna().all() else "boolean")
    for name in form.gaps:
        if not table[name].str.fullmatch(r"[0-9]{0,9}").all():
            raise RunError(f"{file} has rows whose {name} is no whole number.", AGAIN)
        table[name] = pd.to_numeric(table[name]).astype("Int64")
    return form.kind(table)


def failed_checks(run: Mapping[str, Any]) -> list[str]:
    """Say which of the checks that were made before a run failed, and what that means.

    Args:
        run: its run.json.

    Returns:
        A sentence or two for each.
    """
    checks = at(run, "checks")
    return [
        f"The check {name} failed: {at(facts, 'said')}. {at(facts, 'meaning')}"
        for name, facts in (checks.items() if isinstance(checks, Mapping) else ())
        if at(facts, "passed") is False
    ]


def at(run: Mapping[str, Any], *path: str, default: Any = None) -> Any:
    """Look something up in a run.json, which may say nothing about it.

    Args:
        run: what it says.
        path: names, from the outside in.
        default: what is found where it says nothing; what it says must be of the same kind, a list or tuple,
            a number, text, ... None takes any.

    Returns:
        What it says there.

    Raises:
        RunError: it says something of another kind.
    """
    found: Any = run
    for name in path:
        found = found.get(name) if isinstance(found, Mapping) else None
    if found is None or default is None:
        return default if found is None else found
    kind = next(kind for kind in _VALUE_KINDS if isinstance(default, kind))
    number = (
        isinstance(found, int | float) and not isinstance(found, bool) and abs(found) < 2**63
    )  # NaN is none
    if not isinstance(found, kind) or (kind == int | float and not number):
        raise RunError(f"run.json has {'.'.join(path)} = {found!r}, which headlens never writes.", AGAIN)
    return found


def _run_remedy(known: Sequence[str]) -> str:
    return f"Give what you gave a headlens {_either(known)} as --out."


def _either(known: Sequence[str]) -> str:
    return " or ".join(filter(None, [", ".join(known[:-1]), known[-1]]))
