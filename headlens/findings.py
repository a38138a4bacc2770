"""What counts as found in the tables of a run: decided once, said on the screen and in reports."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import pandas as pd

from headlens.ablation.result import SIGNIFICANT

CONTROL = "control "  # how the conditions of random sets begin
ENOUGH_DRAWS = round(1 / SIGNIFICANT) - 1  # random sets; with fewer, no p of at most 0.05 can come out


def clearest(scores: pd.DataFrame, tag: str) -> pd.DataFrame:
    """Find the heads that carry a tag, each by the row that shows it most clearly.

    Args:
        scores: columns as in `headlens.util.files.SCORES`.
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
    """List the stacks of an encoder-decoder of which nothing was read: the decoder's, without targets."""
    read = scores.groupby("stack")["n"].max()
    return [str(stack) for stack in read.index[read == 0]] if len(read) > 1 and read.any() else []


def primary_rows(table: pd.DataFrame, metric: str) -> pd.DataFrame:
    """Take the rows of one metric that are no random sets.

    Args:
        table: columns as in `headlens.util.files.ABLATION`.
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


def judged(rows: pd.DataFrame) -> pd.DataFrame:
    """Take the rows of which it can be told whether something changes: with a change and a q-value.

    Args:
        rows: of one metric.

    Returns:
        The others aside: the metric was not defined there, or could not be tested.
    """
    known: pd.DataFrame = rows[np.isfinite(rows["delta"].astype(float)) & rows["q_value"].notna()]
    return known


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


def beyond_random(controls: pd.DataFrame) -> pd.DataFrame:
    """Take the sets of heads that are worse than random ones (p of at most 0.05, of each alone).

    It misleads where fewer than `ENOUGH_DRAWS` random sets were drawn: no set can then be among them.

    Args:
        controls: columns as in `headlens.util.files.CONTROLS`, of one metric.

    Returns:
        Their rows.
    """
    found: pd.DataFrame = controls[controls["at_least_as_bad"].astype(float) <= SIGNIFICANT]
    return found


def one_head_kept(best: pd.DataFrame, larger_is_better: bool) -> Mapping[str, pd.DataFrame]:
    """Judge layers of which one head is kept.

    A loss or a gain is claimed where q < 0.05. That nothing significant is lost goes by the p-value as it is
    (p of at least 0.05, or no loss at all): a correction for many layers would make it easier to claim. It
    does not show that one head is enough.

    Args:
        best: columns as in `headlens.ablation.result.BEST`.
        larger_is_better: of the metric.

    Returns:
        "worse" and "better": the rows whose change is claimed; "unsure": those of a loss by p alone;
        "no loss": those that lose nothing significant, "better" among them; "undefined": the others.
    """
    rows = with_losses(best, larger_is_better)
    known = judged(rows)
    worse, better = effects(known)
    lost = (known["loss"] > 0) & (known["p_value"] < SIGNIFICANT)
    return {
        "worse": worse,
        "better": better,
        "unsure": known[lost & ~(known["q_value"] < SIGNIFICANT)],
        "no loss": known[~lost],
        "undefined": rows.drop(known.index),
    }
