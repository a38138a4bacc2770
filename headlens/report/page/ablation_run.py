"""A run of ``headlens ablate``, read back from its directory."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pandas as pd

from headlens.ablation.result import BEST
from headlens.errors import RunError
from headlens.findings import primary_rows, with_losses
from headlens.runs.read import at, read_table
from headlens.util.files import ABLATION, CONTROLS, GATES, IMPORTANCE

_TEXT = ("condition", "sweep", "mode", "removed", "metric", "no_significant_loss")
OPTIONAL = {
    "controls.csv": (CONTROLS, ("condition", "metric")),
    "gates.csv": (GATES, ("stack", "role")),
    "best_of_layers.csv": (BEST, ("layer", "kept")),
}


@dataclass(frozen=True, slots=True)
class Ablation:
    """A finished sweep.

    Args:
        run: `run.json`.
        kind: of the sweep.
        table: `ablation.csv`.
        importance: `importance.csv`.
        others: `controls.csv`, `gates.csv` and `best_of_layers.csv`, those that there are.
        metric: the primary metric.
        larger_is_better: whether a larger value of it is a better one.
    """

    run: Mapping[str, Any]
    kind: str
    table: pd.DataFrame
    importance: pd.DataFrame
    others: Mapping[str, pd.DataFrame]
    metric: str
    larger_is_better: bool

    @property
    def rows(self) -> pd.DataFrame:
        """The rows of the primary metric, random sets aside, with their `loss`, the largest first."""
        return with_losses(primary_rows(self.table, self.metric), self.larger_is_better)

    def other(self, name: str) -> pd.DataFrame | None:
        """One of the other tables; None where there is none or it is empty."""
        table = self.others.get(name)
        return None if table is None or table.empty else table

    @property
    def controls(self) -> pd.DataFrame:
        """The primary metric against random sets."""
        table = self.others.get("controls.csv", pd.DataFrame(columns=CONTROLS))
        return table[table["metric"] == self.metric]

    @property
    def heads(self) -> list[tuple[str, int, int]]:
        """Stack, layer and head of every head that it speaks of, in model order."""
        named = {tuple(name.split(".")) for cell in set(self.table["removed"]) for name in cell.split()}
        ranked = self.importance[["stack", "layer", "head"]].itertuples(index=False, name=None)
        found = {(str(s), int(x), int(h)) for s, x, h in [*named, *ranked]}
        return sorted(found, key=lambda one: (_STACKS.get(one[0], 9), *one))


_STACKS = {"encoder": 0, "decoder": 1, "cross": 2}


def read_ablation(path: Path, run: Mapping[str, Any]) -> Ablation:
    """Read what a run of ``headlens ablate`` left.

    Args:
        path: its directory.
        run: its `run.json`.

    Returns:
        Its tables and its record.

    Raises:
        RunError: a file is missing or broken, or does not fit the others.
    """
    table = read_table(path / "ablation.csv", ABLATION, _TEXT)
    importance = read_table(path / "importance.csv", IMPORTANCE, ("stack", "method"))
    others = {
        name: read_table(path / name, columns, text)
        for name, (columns, text) in OPTIONAL.items()
        if (path / name).is_file()
    }
    better = at(run, "larger_is_better", default={})
    if table.empty or not isinstance(better, Mapping) or table["metric"].iloc[0] not in better:
        what = (
            f"{path / 'ablation.csv'} holds no rows"
            if table.empty
            else f"{path / 'run.json'} does not say which"
        )
        what += "." if table.empty else f" values of {table['metric'].iloc[0]} are better."
        raise RunError(what, "Type the same headlens ablate again: what was measured is kept.")
    metric = str(table["metric"].iloc[0])
    bad = table.loc[
        ~table["removed"].str.fullmatch(r"|(\w+\.\d{1,9}\.\d{1,9})( \w+\.\d{1,9}\.\d{1,9})*"), "removed"
    ]
    if len(bad):
        raise RunError(
            f"Expected heads such as encoder.2.8 in the column removed of {path / 'ablation.csv'}; found "
            f"{bad.iloc[0]!r}.",
            "Make the run again.",
        )
    return Ablation(run, str(table["sweep"].iloc[0]), table, importance, others, metric, bool(better[metric]))
