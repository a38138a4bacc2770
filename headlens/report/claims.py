"""Sentences that a figure, a page and the screen share, so that they say the same of the same numbers."""

from __future__ import annotations

import numpy as np
import pandas as pd

from headlens.ablation.result import SIGNIFICANT
from headlens.findings import ENOUGH_DRAWS, one_head_kept
from headlens.util.formatting import counted, per_cent


def too_few_draws(controls: pd.DataFrame) -> str:
    """Say where no set can be shown to be worse than random ones.

    Args:
        controls: columns as in `headlens.util.files.CONTROLS`, of one metric.

    Returns:
        Words; none where every set that was judged has `ENOUGH_DRAWS` random ones.
    """
    draws = controls.loc[controls["at_least_as_bad"].notna(), "draws"].astype(int)
    if draws.empty or draws.min() >= ENOUGH_DRAWS:
        return ""
    found = counted(int(draws.min()), "random set")
    return f"with {found} a p of at most {SIGNIFICANT} cannot come out: it takes {ENOUGH_DRAWS}"


def one_head(best: pd.DataFrame, larger_is_better: bool) -> str:
    """Say in how many layers keeping one head loses something, and in how many nothing significant.

    Args:
        best: columns as in `headlens.ablation.result.BEST`.
        larger_is_better: of the metric.

    Returns:
        A sentence without its full stop.
    """
    found = {name: len(rows) for name, rows in one_head_kept(best, larger_is_better).items()}
    said = (
        f"With one head kept, {found['worse'] or 'none'} of {counted(len(best), 'layer')} "
        f"{'is' if found['worse'] == 1 else 'are'} significantly worse (q < {SIGNIFICANT}) and "
        f"{found['no loss'] or 'none'} {'loses' if found['no loss'] == 1 else 'lose'} nothing significant "
        f"(p of at least {SIGNIFICANT}), which does not show that one head is enough"
    )
    if found["better"]:
        said += f"; {found['better']} of those {'is' if found['better'] == 1 else 'are'} significantly better"
    if found["unsure"]:
        lose = "loses" if found["unsure"] == 1 else "lose"
        said += f"; {found['unsure']} {lose} by p alone, so neither is claimed"
    return said + (f"; {found['undefined']} could not be judged" if found["undefined"] else "")


def can_go(rows: pd.DataFrame, share: float, of_model: int | None, metric: str = "") -> str:
    """Say how many heads can go without a significant loss.

    Args:
        rows: of the primary metric of a *cumulative* sweep, random sets aside.
        share: of the heads in question, from `headlens.ablation.result.headline`.
        of_model: heads of the whole model; None where a run does not say.
        metric: what is not lost; not named by default.

    Returns:
        A sentence without its full stop.
    """
    in_question, of = int(rows["n_removed"].max()), f" of {metric}" * bool(metric)
    if share > 0:
        heads = going(round(share * in_question), in_question, of_model)
        return f"{heads} can go without a significant loss{of}"
    first = rows.sort_values("n_removed", kind="stable").iloc[0]
    if pd.isna(first["delta"]):
        return "It cannot be told what can go: the metric is not defined at the first step"
    n_first = int(first["n_removed"])
    whole = of_model is None or of_model == in_question
    which = f"{in_question:,}" if whole else f"the {in_question:,} in question"
    return (
        f"No step goes without a significant loss{of}: already {counted(n_first, 'head')} of {which} "
        f"cost{'s' * (n_first == 1)} something"
    )


def going(count: int, in_question: int, of_model: int | None) -> str:
    """Say how many heads can go, and of which.

    Args:
        count: heads that can go.
        in_question: heads that might have gone.
        of_model: heads of the whole model; None where a run does not say.

    Returns:
        Words such as ``50% of the heads (4 of 8)``, or, where only some of the model's heads were in
        question, ``8 of the 12 heads in question (11% of the model's 72)``.
    """
    if of_model is None or of_model == in_question:
        return f"{per_cent(count / in_question)}% of the heads ({count:,} of {in_question:,})"
    share = per_cent(count / of_model)
    return f"{count:,} of the {in_question:,} heads in question ({share}% of the model's {of_model:,})"


def among(judged: int, total: int, what: str, how: str = "") -> str:
    """Say how many were judged, and how many could not be.

    Args:
        judged: of which something can be told.
        total: all of them.
        what: one of them, such as "head".
        how: what was done to them, such as " removed alone".

    Returns:
        ``72 heads``, or ``71 heads that could be judged (1 could not)``.
    """
    if judged == total:
        return counted(total, what) + how
    return f"{counted(judged, what)}{how} that could be judged ({total - judged:,} could not)"


def number(value: float, form: str) -> str:
    """Write a number; one that is not defined as such, an infinite one as inf."""
    return "not defined" if np.isnan(value) else format(value, form)


def interval(low: float, high: float) -> str:
    """Write the 95 % interval of a change: ``95 % interval +0.1000 to +0.3000``, or ``no interval``."""
    known = not np.isnan([low, high]).any()
    return f"95 % interval {low:+.4f} to {high:+.4f}" if known else "no interval"


def tested(name: str, value: float) -> str:
    """Write a p- or q-value: ``q = 0.03``, or ``no q-value``."""
    return f"no {name}-value" if np.isnan(value) else f"{name} = {value:.2g}"
