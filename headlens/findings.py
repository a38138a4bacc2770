"""What counts as found in the tables of a run: decided once, said on the screen and in reports."""

from __future__ import annotations

import numpy as np
import pandas as pd

from headlens.ablation.result import SIGNIFICANT

CONTROL = "control "  # how the conditions of random sets begin


def clearest(scores: pd.DataFrame, tag: str) -> pd.DataFrame:
    """Find the heads that carry a tag, each by the row that shows it most clearly.

    Args:
        scores: columns as in `headlens.tables.SCORES`.
        tag: a value of the column `tag`.

    Returns:
        One row per head, that with the highest lower end of an interval first.
    """
    proven = scores[(scores["tag"] == tag) & scores["tagged"]]
    ordered = proven.sort_values("ci_low", ascending=False, kind="stable")
    return ordered.drop_duplicates(["stack", "layer", "head"])


def was_tested(scores: pd.DataFrame, tag: str) -> bool:
    """Tell whether any head had enough decisions for a test of a tag."""
    return bool(scores.loc[scores["tag"] == tag, "q_value"].notna().any())


def unscored_stacks(scores: pd.DataFrame) -> list[str]:
    """List the stacks of which nothing was read."""
    read = scores.groupby("stack")["n"].max()
    return [str(stack) for stack in read.index[read == 0]]


def primary_rows(table: pd.DataFrame, metric: str) -> pd.DataFrame:
    """Take the rows of one metric that are no random sets.

    Args:
        table: columns as in `headlens.tables.ABLATION`.
        metric: a value of the column `metric`.

    Returns:
        The rows, in order.
    """
    random = table["condition"].str.startswith(CONTROL)
    return table[(table["metric"] == metric) & ~random].reset_index(drop=True)


def with_losses(rows: pd.DataFrame, larger_is_better: bool) -> pd.DataFrame:
    """Add a column `loss` to rows of one metric, the change, positive where worse; the largest first."""
    sign = -1 if larger_is_better else 1
    return rows.assign(loss=sign * rows["delta"]).sort_values("loss", ascending=False, kind="stable")


def effects(rows: pd.DataFrame) -> tuple[pd.DataFrame, pd.DataFrame]:
    """Take the rows whose change is claimed to be an effect (q < 0.05).

    Args:
        rows: from `with_losses`.

    Returns:
        Those that are worse, and those that are better.
    """
    claimed = rows[rows["q_value"] < SIGNIFICANT]
    return claimed[claimed["loss"] > 0], claimed[claimed["loss"] < 0]


def last_without_loss(rows: pd.DataFrame, share: float) -> pd.DataFrame:
    """Find the last step of a *cumulative* sweep before the first significant loss.

    Args:
        rows: of the primary metric, random sets aside.
        share: of heads that can go, from `headlens.ablation.result.headline`.

    Returns:
        One row, or none where already the first step loses.
    """
    kept: pd.DataFrame = rows[rows["n_removed"] <= round(share * rows["n_removed"].max())]
    return kept.tail(1)


def as_bad_or_worse(at_least_as_bad: float, draws: int) -> int:
    """Count the random sets without which the model is as bad or worse; the set itself is not among them."""
    return round(at_least_as_bad * (1 + draws)) - 1 if np.isfinite(at_least_as_bad) else 0
