"""The ratios of a table as bars."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pandas as pd
from matplotlib import rc_context
from matplotlib.axes import Axes
from matplotlib.figure import Figure

UNITS = ("MB", "KB", "s", "nats", "heads", "Spearman")
BARE, FASTER, EVEN, SLOWER = "#9a9a9a", "#2f6db5", "#a9c3e2", "#c8743c"
ALIKE = 0.03  # ratios this near to 1 come out on the other side of it in another run
NAMES = {BARE: "against a bare pass", FASTER: "faster", EVEN: "within 3 % of the other", SLOWER: "slower"}
STYLE = {"font.size": 7, "ytick.labelsize": 6.5, "svg.hashsalt": "headlens"}


def ratios(table: pd.DataFrame) -> pd.DataFrame:
    """The rows that are drawn: ratios, but for the steps of classify and single scorers."""
    steps = table["of"].eq("classify as a whole")
    single = table["part"].str.startswith("scoring") & table["what"].ne("all scorers")
    return table[~table["of"].isin(UNITS) & ~steps & ~single]


def draw(table: pd.DataFrame, path: Path) -> None:
    """Draw the ratios of a table, grouped by part, with a line where both take as long.

    Args:
        table: columns part, what, value, of.
        path: of the figure; nothing is written where there is no ratio.
    """
    rows = ratios(table)
    if rows.empty:
        return
    places: list[float] = []
    titles: dict[str, float] = {}
    for part, group in rows.groupby("part", sort=False):
        titles[str(part)] = places[-1] + 1.7 if places else 0.0
        places += [titles[str(part)] + 1 + number for number in range(len(group))]
    with rc_context(STYLE):
        figure = Figure(figsize=(7, 0.155 * places[-1] + 0.7), layout="constrained")
        bars(figure.subplots(), rows, places, titles)
        figure.legend(loc="outside upper center", ncols=len(NAMES), fontsize=6.5, frameon=False)
        figure.savefig(path, metadata={"Date": None} if path.suffix == ".svg" else None, dpi=150)


def bars(axes: Axes, rows: pd.DataFrame, places: list[float], titles: dict[str, float]) -> None:
    """Fill the axes: a bar for each row, at its place, under the title of its part."""
    values = rows["value"].to_numpy()
    bare = rows["of"].str.endswith(" pass")
    kinds = [bare, np.abs(values - 1) <= ALIKE, values < 1]
    colours = np.select(kinds, [BARE, EVEN, FASTER], SLOWER)
    for colour, name in NAMES.items():
        mine = colours == colour
        if mine.any():
            axes.barh(np.array(places)[mine], values[mine], height=0.72, color=colour, label=name)
    points = {"textcoords": "offset points", "va": "center"}
    blank = {"facecolor": "white", "linewidth": 0, "pad": 0.5}
    for place, value in zip(places, values, strict=True):
        axes.annotate(f"{value:.2f}", (value, place), (3, 0), **points, bbox=blank)
    for title, place in titles.items():
        where = ("axes fraction", "data")
        axes.annotate(title, (0, place), (-4, 0), xycoords=where, **points, ha="right", weight="bold")
    axes.set_yticks(places, [f"{what} / {of}" for what, of in zip(rows["what"], rows["of"], strict=True)])
    axes.axvline(1, color="black", linewidth=0.8)
    axes.set(xlim=(0, 1.1 * values.max()), ylim=(places[-1] + 0.8, -0.8))
    axes.set_xlabel("CPU time of headlens / CPU time of the other")
    axes.tick_params(axis="y", length=0)
    axes.spines[["top", "right"]].set_visible(False)
