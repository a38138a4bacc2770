"""Runs of ``headlens classify`` that are done, read back from their directories."""

from __future__ import annotations

import shlex
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pandas as pd

from headlens.errors import RunError
from headlens.model.heads import STACKS, number_ranges
from headlens.util.files import SCORES, TAGS, is_directory, is_there, load_record, read_csv

FILES = ("scores.csv", "tags.csv", "run.json")
_HEAD = ["stack", "layer", "head"]
_TEXT = ("stack", "tag", "measure", "tags", "evidence", "tagged")


@dataclass(frozen=True, slots=True)
class Finished:
    """What a run of ``headlens classify`` found.

    Args:
        path: its directory, as the user wrote it.
        scores: columns as in `headlens.util.files.SCORES`.
        tags: columns as in `headlens.util.files.TAGS`; no tag is an empty text.
        run: what `run.json` says.
    """

    path: Path
    scores: pd.DataFrame = field(repr=False)
    tags: pd.DataFrame = field(repr=False)
    run: dict[str, Any] = field(repr=False)

    @property
    def model(self) -> str:
        """The model's name, without its folders; empty if the run does not say."""
        model = self.run.get("model")
        return Path(str(model.get("name") or "")).name if isinstance(model, dict) else ""

    @property
    def heads(self) -> list[tuple[str, int, int]]:
        """Stack, layer and head of every head, in model order."""
        return list(self.tags[_HEAD].itertuples(index=False, name=None))

    @property
    def shape(self) -> str:
        """Which layers and heads the model has, in words."""
        parts = []
        for stack in STACKS:
            mine = self.tags[self.tags["stack"] == stack]
            if len(mine):
                layers, heads = (number_ranges(sorted(set(mine[name]))) for name in ("layer", "head"))
                parts.append(f"{stack} layers {layers} with heads {heads}")
        return " and ".join(parts)


def read_finished(path: str | Path) -> Finished:
    """Read what a run of ``headlens classify`` left.

    Args:
        path: its directory.

    Returns:
        Its tables and its record.

    Raises:
        RunError: the directory or a file is missing, broken, or of another command.
    """
    path = Path(path)
    if not is_directory(path):
        raise RunError(f"There is no run directory {path}.", _remedy(path))
    run = _record(path)
    if run.get("command") != "classify":
        raise RunError(
            f"Expected a run of headlens classify; {path} holds one of headlens {run.get('command', '?')}.",
            "Give the --out of a headlens classify.",
        )
    scores, tags = _table(path, "scores.csv", SCORES), _table(path, "tags.csv", TAGS)
    for name, frame, key in (("scores.csv", scores, [*_HEAD, "tag", "measure"]), ("tags.csv", tags, _HEAD)):
        if frame.empty or frame.duplicated(key).any():
            what = "holds no heads" if frame.empty else "has several rows for the same head"
            raise RunError(f"{path / name} {what}.", _remedy(path))
    if not _whole(scores, tags):
        raise RunError(f"{path / 'scores.csv'} is not whole: it lacks rows of some heads.", _remedy(path))
    return Finished(path, scores, tags, run)


def _whole(scores: pd.DataFrame, tags: pd.DataFrame) -> bool:
    """Whether every tag that tags.csv names has rows, and every measure one for each head of its stacks."""
    named = {tag for cell in tags["tags"] for tag in str(cell).split(";") if tag}
    per_stack = tags.groupby("stack").size()
    counts = scores.groupby(["stack", "tag", "measure"]).size()
    expected = per_stack.reindex(counts.index.get_level_values("stack"))
    return named <= set(scores["tag"]) and bool((counts.to_numpy() == expected.to_numpy()).all())


def _record(path: Path) -> dict[str, Any]:
    for name in FILES:
        if not is_there(path / name):
            raise RunError(
                f"Expected scores.csv, tags.csv and run.json in {path}; there is no {name}.", _remedy(path)
            )
    try:
        run = load_record(path / "run.json")
    except (OSError, ValueError) as error:
        raise RunError(f"{path / 'run.json'} cannot be read: {error}.", _remedy(path)) from error
    return run if isinstance(run, dict) else {}


def _table(path: Path, name: str, columns: Sequence[str]) -> pd.DataFrame:
    file = path / name
    try:
        frame = read_csv(file, columns, [name for name in _TEXT if name in columns])
    except LookupError as error:
        raise RunError(f"{file} has no column {error.args[0]}.", _remedy(path)) from error
    except (OSError, ValueError) as error:  # pandas' own errors are ValueErrors
        raise RunError(f"{file} cannot be read: {error}.", _remedy(path)) from error
    if "tagged" not in columns:
        return frame
    if not frame["tagged"].isin(("True", "False")).all():
        raise RunError(f"{file} has rows whose tagged is neither True nor False.", _remedy(path))
    return frame.assign(tagged=frame["tagged"] == "True")


def _remedy(path: Path) -> str:
    return f"Type: headlens classify MODEL --out {shlex.quote(str(path))}"
