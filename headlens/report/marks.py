"""What finished runs say about heads: tags from classify, importance from ablate."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from pathlib import Path

import pandas as pd

from headlens.errors import RunError
from headlens.heads import Head
from headlens.report.tag_map import tags_by_head
from headlens.report.viewer_data import Marks


def read_marks(runs: Iterable[str | Path], heads: Sequence[Head]) -> Marks:
    """Read the tags and the importance of a model's heads from run directories.

    Args:
        runs: directories of ``headlens classify`` (tags.csv) or ``headlens ablate`` (importance.csv); where
            several say the same, the last one counts.
        heads: all heads of the model.

    Returns:
        What they say. Of several methods of importance it is the first in the file.

    Raises:
        RunError: a directory holds neither table, one cannot be read, or is about another model's heads.
    """
    tags, importance, method = None, None, ""
    for run in map(Path, runs):
        found = {name: run / name for name in ("tags.csv", "importance.csv") if (run / name).is_file()}
        if not found:
            raise RunError(
                f"Expected the --out of a headlens classify or ablate; {run} has no tags.csv and no "
                "importance.csv.",
                f"Type first: headlens classify MODEL --out {run}",
            )
        if "tags.csv" in found:
            table = _read(found["tags.csv"], ["stack", "layer", "head", "tags"])
            tags = tags_by_head(table)
            _check(run, tags, heads)
        if "importance.csv" in found:
            table = _read(found["importance.csv"], ["stack", "layer", "head", "method", "importance"])
            method = str(table["method"].iloc[0]) if len(table) else ""
            rows = table[table["method"] == method]
            columns = [rows[name] for name in ("stack", "layer", "head", "importance")]
            importance = {Head(str(s), int(x), int(h)): float(v) for s, x, h, v in zip(*columns, strict=True)}
            _check(run, importance, heads)
    return Marks(tags, importance or None, method)


def _read(path: Path, columns: Sequence[str]) -> pd.DataFrame:
    try:
        table = pd.read_csv(path)
        return table[list(columns)]
    except (OSError, ValueError, KeyError) as error:  # pandas' own errors are ValueErrors
        raise RunError(f"{path} cannot be read: {error}.", "Make the run again.") from error


def _check(run: Path, found: Iterable[Head], heads: Sequence[Head]) -> None:
    strange = set(found) - set(heads)
    if strange:
        raise RunError(
            f"{run} is about another model: it has head {min(strange)}, which this model has not.",
            "Give a run of the same model.",
        )
