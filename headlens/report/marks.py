"""What finished runs say about heads: tags from classify, importance from ablate."""

from __future__ import annotations

import shlex
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from headlens.errors import RunError
from headlens.model.heads import Head
from headlens.model.lens import Lens
from headlens.report.page.files import read_table
from headlens.report.same_model import SameModel
from headlens.report.tag_map import tags_by_head
from headlens.report.viewer_data import Marks
from headlens.util.files import is_there

HEAD = ("stack", "layer", "head")


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
    same = SameModel(model) if isinstance(model, Lens) else None
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
            table = read_table(found["tags.csv"], [*HEAD, "tags"], ("stack", "tags"))
            tags = tags_by_head(table)
            _check(run, tags, heads, whole=True)
        if "importance.csv" in found:
            columns = [*HEAD, "method", "importance"]
            table = read_table(found["importance.csv"], columns, ("stack", "method"))
            method = str(table["method"].iloc[0]) if len(table) else ""
            rows = table[table["method"] == method]
            values = [rows[name] for name in (*HEAD, "importance")]
            importance = {Head(str(s), int(x), int(h)): float(v) for s, x, h, v in zip(*values, strict=True)}
            _check(run, importance, heads)
        if same is not None:
            same.check(run)
    return Marks(tags, importance or None, method)


def _check(run: Path, found: Mapping[Head, Any], heads: Sequence[Head], whole: bool = False) -> None:
    """Refuse a run of another model: with heads that this one has not, or, of tags, without all it has."""
    strange, absent = set(found) - set(heads), set(heads) - set(found)
    if strange or (whole and absent):
        head, lacking = (min(strange), "this model") if strange else (min(absent), "it")
        raise RunError(
            f"{run} is about another model: {lacking} has no head {head}.", "Give a run of the same model."
        )
