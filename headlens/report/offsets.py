"""Attention by relative offset, a small panel per layer."""

from __future__ import annotations

import math

import numpy as np
import pandas as pd
from matplotlib.axes import Axes

from headlens.errors import InputError
from headlens.model.heads import STACKS
from headlens.report.figures import InchFigure
from headlens.report.links import link_lines
from headlens.report.pages import INSIDE, TWO_COLUMNS, count_heads, head_names, listing, page
from headlens.report.parts import MARGIN
from headlens.report.tag_styles import style_of

STEM = "mass@"
PER_ROW = 6
HIGH, ABOVE, GAP = 0.62, 0.3, 0.12  # inches: a panel, what is above it, between panels
ROOMY = 0.9  # inches: a panel where there is one row of them
LEFT, BELOW, KEY, HEADING = 0.5, 0.36, 0.22, 0.22  # inches
NAMED = 3  # heads that the title names


def offset_table(scores: pd.DataFrame) -> pd.DataFrame:
    """Pick the rows that measure mean attention on one relative offset.

    Args:
        scores: columns as in `headlens.util.files.SCORES`.

    Returns:
        The rows ``mass@k`` that were measured, with the columns `offset` and `name` (of the head) added.
    """
    mine = scores[scores["measure"].str.startswith(STEM) & scores["score"].notna()]
    offsets = mine["measure"].str.removeprefix(STEM).astype(int)
    return mine.assign(offset=offsets, name=head_names(mine))


def offset_figure(scores: pd.DataFrame, model: str = "") -> InchFigure:
    """Draw mean attention by relative offset: per layer every head, their mean and the strongest head.

    Args:
        scores: columns as in `headlens.util.files.SCORES`.
        model: its name, for the title.

    Returns:
        The figure, a panel per layer.

    Raises:
        InputError: the table has no measure ``mass@k``.
    """
    table = offset_table(scores)
    if table.empty:
        raise InputError("The scores have no mass@k.", "Classify with the tag positional.")
    layers = table[["stack", "layer"]].drop_duplicates()
    stacks = [(stack, layers.loc[layers["stack"] == stack, "layer"].tolist()) for stack in STACKS]
    stacks = [(stack, sorted(numbers)) for stack, numbers in stacks if numbers]
    heading = HEADING * (len(stacks) > 1)
    rows = [math.ceil(len(numbers) / PER_ROW) for _, numbers in stacks]
    height = KEY + sum(heading + count * (_high(count) + ABOVE) + BELOW for count in rows)
    title = f"{model}: " * bool(model) + _finding(scores, table)
    figure, top = page(title, _caption(table), (TWO_COLUMNS, height))
    pieces: list[Axes] = []
    key_top, top = top, top + KEY
    for (stack, numbers), count in zip(stacks, rows, strict=True):
        if heading:
            figure.write(MARGIN, top, stack, 9, fontweight="bold")
        pieces += _panels(figure, table[table["stack"] == stack], numbers, top + heading)
        top += heading + count * (_high(count) + ABOVE) + BELOW
    width, total = figure.get_size_inches()
    figure.legend(
        *pieces[0].get_legend_handles_labels(), loc="upper left", ncols=4, frameon=False, borderpad=0,
        bbox_to_anchor=(MARGIN / width, 1 - key_top / total), borderaxespad=0, columnspacing=1.5,
        prop={"family": list(figure.families), "size": 7},
    )  # fmt: skip
    return figure


def _panels(figure: InchFigure, table: pd.DataFrame, layers: list[int], top: float) -> list[Axes]:
    columns = min(PER_ROW, len(layers))
    wide = min((INSIDE - LEFT + GAP) / columns, 2.0) - GAP
    n_rows = math.ceil(len(layers) / columns)
    high = _high(n_rows)
    offsets = sorted(set(table["offset"]))
    made = []
    for index, layer in enumerate(layers):
        row, column = divmod(index, columns)
        place = MARGIN + LEFT + column * (wide + GAP), top + ABOVE + row * (high + ABOVE)
        axes = figure.place(*place, wide, high)
        _panel(figure, axes, table[table["layer"] == layer])
        axes.set(xlim=(offsets[0] - 0.5, offsets[-1] + 0.5), ylim=(-0.03, 1.03))
        shown = [offset for offset in sorted({offsets[0], 0, offsets[-1]}) if offset in offsets]
        lowest = index + columns >= len(layers)
        names = [_signed(offset) for offset in shown] if lowest else []
        axes.set_xticks(shown, names or [""] * len(shown), fontsize=6.5, **figure.style)
        axes.set_yticks(
            [0, 0.5, 1], ["0", "0.5", "1"] if column == 0 else [""] * 3, fontsize=6.5, **figure.style
        )
        axes.tick_params(length=2, pad=2)
        axes.spines[["top", "right"]].set_visible(False)
        made.append(axes)
    middle = LEFT + (columns * (wide + GAP) - GAP) / 2
    bottom = top + n_rows * (high + ABOVE) + 0.17
    figure.write(MARGIN + middle, bottom, "offset of the key from the query (tokens)", 8, ha="center")
    _, total = figure.get_size_inches()
    centre = top + ABOVE + (n_rows * (high + ABOVE) - ABOVE) / 2
    said = "mean attention weight" if n_rows > 1 else "mean weight"
    figure.text(
        MARGIN / TWO_COLUMNS, 1 - centre / total, said, rotation=90, fontsize=8, va="center", **figure.style
    )
    return made


def _panel(figure: InchFigure, axes: Axes, table: pd.DataFrame) -> None:
    mass = table.pivot(index="offset", columns="name", values="score").sort_index()  # [offset, head]
    uniform = table.groupby("offset")["baseline"].mean()
    strongest = table.nlargest(1, "score").iloc[0]
    for number, name in enumerate(mass):
        axes.plot(mass.index, mass[name], color="0.75", linewidth=0.5, label="" if number else "each head")
    axes.plot(uniform.index, uniform, ":", color="black", linewidth=0.9, label="uniform attention")
    axes.plot(
        mass.index, mass[strongest["name"]], "s--", color=style_of("positional").colour, linewidth=1.0,
        markersize=2, label="the layer's strongest head",
    )  # fmt: skip
    axes.plot(
        mass.index,
        mass.mean(axis=1),
        "o-",
        color="black",
        linewidth=1.4,
        markersize=2.2,
        label="mean of heads",
    )
    # the strongest last: it lies above the others
    drawn = mass[sorted(mass, key=lambda name: bool(name == strongest["name"]))]
    link_lines(axes, {str(name): list(zip(drawn.index, drawn[name], strict=True)) for name in drawn})
    said = f"{strongest['name']}: {strongest['score']:.2f} at {_signed(strongest['offset'])}"
    axes.set_title(
        f"layer {strongest['layer']}\n{said}", fontsize=6.5, loc="left", pad=1.5, **figure.style,
    )  # fmt: skip


def _finding(scores: pd.DataFrame, table: pd.DataFrame) -> str:
    best = table.sort_values("score", ascending=False, kind="stable").drop_duplicates("name").head(NAMED)
    parts = [
        f"{name} ({score:.2f} on {_signed(offset)}{', itself' * (not offset)})"
        for name, score, offset in zip(best["name"], best["score"], best["offset"], strict=True)
    ]
    tagged = count_heads(scores[(scores["tag"] == "positional") & scores["tagged"]])
    verb = "is" if tagged == 1 else "are"
    return (
        f"{tagged} of {count_heads(scores):,} heads {verb} positional; most weight on one offset: "
        f"head{'s' * (len(parts) > 1)} {listing(parts)}"
    )


def _caption(table: pd.DataFrame) -> str:
    offsets = np.unique(table["offset"])
    return (
        "Mean attention weight from a token to the token at a relative offset (-1: the previous token), over "
        f"the queries that may see it. Offsets {_signed(offsets[0])} to {_signed(offsets[-1])} were "
        "measured. Each panel is a layer and names the head with the most weight on one offset. Layers and "
        "heads count from 0."
    )


def _signed(offset: int) -> str:
    return f"{offset:+d}" if offset else "0"


def _high(n_rows: int) -> float:
    return HIGH if n_rows > 1 else ROOMY
