"""How broadly heads attend: entropy by layer."""

from __future__ import annotations

import numpy as np
import pandas as pd
from matplotlib.axes import Axes

from headlens.errors import InputError
from headlens.model.heads import STACKS
from headlens.report.figures import InchFigure
from headlens.report.fonts import POINTS, text_size
from headlens.report.links import link_points
from headlens.report.pages import ONE_COLUMN, TWO_COLUMNS, count_heads, head_names, page
from headlens.report.parts import MARGIN
from headlens.report.tag_styles import style_of

MEASURE = "entropy"
FEW_LAYERS = 16  # so many fit into one column
HIGH, ABOVE, BELOW, LEFT, HEADING = 1.7, 0.28, 0.36, 0.5, 0.2  # inches


def entropy_figure(scores: pd.DataFrame, model: str = "") -> InchFigure:
    """Draw the entropy of every head by layer, and the mean of each layer.

    Args:
        scores: columns as in `headlens.util.files.SCORES`, with the measure `entropy`.
        model: its name, for the title.

    Returns:
        The figure, a panel per stack.

    Raises:
        InputError: entropy was not measured.
    """
    table = scores[(scores["measure"] == MEASURE) & scores["score"].notna()]
    if table.empty:
        raise InputError("The scores have no entropy.", "Classify with the tag broad.")
    table = table.assign(name=head_names(table))
    stacks = [stack for stack in STACKS if (table["stack"] == stack).any()]
    width = TWO_COLUMNS if table["layer"].max() >= FEW_LAYERS else ONE_COLUMN
    heading = HEADING * (len(stacks) > 1)
    title = f"{model}: " * bool(model) + _finding(scores, table)
    caption = (
        "Entropy of each row of attention, divided by the logarithm of the number of keys that it may see: 0 "
        "is one key, 1 is uniform; mean over rows. Each circle is a head; filled: tagged broad. Names: the "
        "broadest and the narrowest head. Layers and heads count from 0."
    )
    figure, top = page(title, caption, (width, len(stacks) * (heading + ABOVE + HIGH + BELOW)))
    for stack in stacks:
        if heading:
            figure.write(MARGIN, top, stack, 9, fontweight="bold")
        axes = figure.place(MARGIN + LEFT, top + heading + ABOVE, width - 2 * MARGIN - LEFT, HIGH)
        _panel(figure, axes, table[table["stack"] == stack])
        top += heading + ABOVE + HIGH + BELOW
    return figure


def _panel(figure: InchFigure, axes: Axes, table: pd.DataFrame) -> None:
    tagged = table["tagged"].to_numpy(bool)
    for chosen, face, what in ((~tagged, "none", "head"), (tagged, style_of("broad").colour, "broad head")):
        axes.plot(
            table["layer"][chosen], table["score"][chosen], "o", markersize=3.5, markerfacecolor=face,
            markeredgecolor="0.3", markeredgewidth=0.6, label=what,
        )  # fmt: skip
    points = zip(table["layer"], table["score"], strict=True)
    link_points(axes, dict(zip(table["name"], points, strict=True)))
    mean = table.groupby("layer")["score"].mean()
    axes.plot(mean.index, mean, "k-", linewidth=1.3, label="mean of heads")
    for extreme, above in ((table.nlargest(1, "score"), True), (table.nsmallest(1, "score"), False)):
        row = extreme.iloc[0]
        late = row["layer"] > table["layer"].max() / 2
        away = (-4 if late else 4, 2 if above else -2)
        axes.annotate(
            row["name"], (row["layer"], row["score"]), xytext=away, fontsize=6.5,
            textcoords="offset points", ha="right" if late else "left", va="bottom" if above else "top",
            **figure.style,
        )  # fmt: skip
    layers = sorted(set(table["layer"]))
    width = axes.get_position().width * figure.get_size_inches()[0]
    needed = text_size([str(layers[-1])], 7, figure.families)[0] + 3 / POINTS
    step = max(1, int(np.ceil(needed * (layers[-1] - layers[0] + 1) / width)))
    axes.set_xticks(layers[::step], list(map(str, layers[::step])), fontsize=7, **figure.style)
    axes.set_yticks(
        np.linspace(0, 1, 6), [f"{tick:.1f}" for tick in np.linspace(0, 1, 6)], fontsize=7, **figure.style
    )
    axes.set(xlim=(layers[0] - 0.6, layers[-1] + 0.9), ylim=(-0.1, 1.13))
    axes.set_xlabel("layer", fontsize=8, labelpad=2, **figure.style)
    axes.set_ylabel("entropy / ln(visible keys)", fontsize=8, labelpad=3, **figure.style)
    axes.tick_params(length=2, pad=2)
    axes.grid(axis="y", color="0.9", linewidth=0.5)
    axes.set_axisbelow(True)
    axes.spines[["top", "right"]].set_visible(False)
    axes.legend(
        loc="lower left", bbox_to_anchor=(0, 1.0), ncols=3, frameon=False, borderpad=0.2, columnspacing=1.0,
        handletextpad=0.4, borderaxespad=0.2, prop={"family": list(figure.families), "size": 7},
    )  # fmt: skip


def _finding(scores: pd.DataFrame, table: pd.DataFrame) -> str:
    tagged = int(table["tagged"].sum())
    mean = table.groupby(["stack", "layer"])["score"].mean()
    several = table["stack"].nunique() > 1
    names = {
        place: f"{place[0]} layer {place[1]}" if several else f"layer {place[1]}" for place in mean.index
    }
    broad = f"{tagged or 'None'} of {count_heads(scores):,} heads {'is' if tagged < 2 else 'are'} broad"
    return (
        f"{broad}; attention is broadest in {names[mean.idxmax()]} (mean {mean.max():.2f}) and narrowest in "
        f"{names[mean.idxmin()]} ({mean.min():.2f})"
    )
