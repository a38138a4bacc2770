"""The heads of each tag, as a finished run of `classify` found them."""

from __future__ import annotations

from pathlib import Path

import pandas as pd

from headlens.errors import RunError
from headlens.model.heads import Head
from headlens.model.lens import Lens
from headlens.util.files import CHANGED, TAGS, file_sha256, load_json, read_checked

_KINDS: dict[str, type] = {"stack": str, "layer": int, "head": int, "tags": str, "evidence": str}


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
    table = _read(run)
    _same_model(lens, run)
    known = set(lens.anatomy.heads)
    found: dict[str, list[Head]] = {}
    for row in table.itertuples():
        head = Head(str(row.stack), int(row.layer), int(row.head))  # type: ignore[arg-type]
        if head not in known:
            raise RunError(
                f"{run} has tags for head {head}, which {type(lens.model).__name__} does not have.",
                "Name a run of the same model with --from.",
            )
        for tag in str(row.tags).split(";"):
            if tag:
                found.setdefault(tag, []).append(head)
    if not found:
        raise RunError(f"No head has a tag in {run}.", "Classify on a larger corpus, and name that run.")
    return {tag: tuple(found[tag]) for tag in sorted(found)}


def tags_sha256(run: Path) -> str:
    """Hash what says which heads carry which tags.

    Args:
        run: run directory of `classify`.

    Returns:
        Hex digest of its tags.csv.

    Raises:
        RunError: there is none, or it cannot be read.
    """
    try:
        return file_sha256([run / "tags.csv"])
    except OSError as error:
        raise _unreadable(run, error) from error


def _unreadable(run: Path, error: Exception) -> RunError:
    why = CHANGED if str(error) == CHANGED else type(error).__name__
    return RunError(
        f"Expected a finished run of headlens classify in {run}, but {run / 'tags.csv'} cannot be read "
        f"({why}).",
        "Name the directory that headlens classify wrote, with --from.",
    )


def _read(run: Path) -> pd.DataFrame:
    path = run / "tags.csv"
    try:
        table = pd.read_csv(read_checked(path), keep_default_na=False, dtype=_KINDS)
    except (OSError, ValueError, OverflowError) as error:
        raise _unreadable(run, error) from error
    if list(table.columns) != TAGS:
        raise RunError(
            f"{path}: expected the columns {', '.join(TAGS)}, found {', '.join(map(str, table.columns))}.",
            "Name the directory that headlens classify wrote, with --from.",
        )
    return table


def _same_model(lens: Lens, run: Path) -> None:
    """Refuse tags of other weights, where both sides know theirs."""
    try:
        model = load_json(run / "run.json")["model"]
        there = model["weights_sha256"]
    except (OSError, ValueError, KeyError, TypeError):
        return
    here = lens.source.sha256() if lens.source else {}
    if there and here and there != here:
        raise RunError(
            f"{run} is about other weights ({model.get('name')}).",
            "Name a run of the same model with --from.",
        )
