"""How methods of importance agree on the order of heads."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import seaborn as sns  # type: ignore[import-untyped]
from matplotlib.patches import Rectangle

from headlens.ablation.result import Sweep
from headlens.report.ablation_words import MISSING, estimated_on
from headlens.report.figures import InchFigure
from headlens.report.fonts import text_size
from headlens.report.pages import column, page
from headlens.report.parts import MARGIN

WIDE, HIGH, BELOW = 0.8, 0.36, 0.3  # inches
Pair = tuple[str, str, float]


def methods_figure(sweep: Sweep) -> InchFigure:
    """Draw the rank correlation of every two methods of importance, blue where they agree.

    Args:
        sweep: with importance by two methods or more.

    Returns:
        The figure.
    """
    pairs = [
        (str(a), str(b), float(rho))
        for a, b, rho in sweep.agreement[["method_a", "method_b", "rho"]].itertuples(index=False, name=None)
    ]
    methods = list(dict.fromkeys(name for a, b, _ in pairs for name in (a, b)))
    below, beside = methods[1:], methods[:-1]
    caption = (
        "Spearman's correlation of the importance of heads by two methods: 1 is the same order, 0 nothing in "
        f"common, -1 the reverse; over {_heads(sweep)}. n/a: not defined (fewer than 3 heads, or all equal). "
        f"{estimated_on(sweep)}"
    )
    left = text_size(below, 7, ("DejaVu Sans",))[0] + 0.12
    width = column(2 * MARGIN + left + WIDE * len(beside))
    figure, top = page(_finding(pairs), caption, (width, HIGH * len(below) + BELOW), methods)
    axes = figure.place(MARGIN + left, top, WIDE * len(beside), HIGH * len(below))
    rho = np.full((len(below), len(beside)), np.nan)  # [method below, method beside]
    for a, b, value in pairs:
        place = methods.index(b) - 1, methods.index(a)  # pairs come in the methods' order
        rho[place] = value + 0.0
        if np.isnan(value):
            axes.add_patch(Rectangle(place[::-1], 1, 1, facecolor=MISSING, edgecolor="white", label="n/a"))
            at = place[1] + 0.5, place[0] + 0.5
            axes.text(*at, "n/a", fontsize=7, ha="center", va="center_baseline", **figure.style)
    sns.heatmap(
        rho, ax=axes, vmin=-1, vmax=1, cmap="RdBu", cbar=False, annot=True, fmt=".2f", linewidths=1,
        annot_kws={"fontsize": 7, **figure.style}, xticklabels=beside, yticklabels=below,
    )  # fmt: skip
    axes.tick_params(length=0, pad=3)
    for text in (*axes.get_xticklabels(), *axes.get_yticklabels()):
        text.set(fontsize=7, rotation=0, **figure.style)
    return figure


def _heads(sweep: Sweep) -> str:
    """Over how many heads, which differs where some were not measured."""
    least, most = int(sweep.agreement["n"].min()), int(sweep.agreement["n"].max())
    return f"{most:,} heads" if least == most else f"{least:,} to {most:,} heads that both know"


def _finding(pairs: Sequence[Pair]) -> str:
    known = sorted((pair for pair in pairs if not np.isnan(pair[2])), key=lambda pair: pair[2])
    if not known:
        return "It is not defined how methods of importance agree on these heads"
    low, high = known[0], known[-1]
    if len(known) == 1:
        return f"Importance by {low[0]} and by {low[1]} correlate by {low[2]:.2f}"
    return (
        f"Methods of importance agree most for {high[0]} and {high[1]} ({high[2]:.2f}) and least for "
        f"{low[0]} and {low[1]} ({low[2]:.2f})"
    )
