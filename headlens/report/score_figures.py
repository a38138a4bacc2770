"""Figures of scores: offsets, entropy, the best heads of each measure."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
import pandas as pd
from matplotlib.axes import Axes

from headlens.errors import InputError
from headlens.model.heads import STACKS
from headlens.report.canvas import (
    INSIDE,
    MARGIN,
    ONE_COLUMN,
    POINTS,
    TWO_COLUMNS,
    InchFigure,
    count_heads,
    head_names,
    link_lines,
    link_points,
    link_rows,
    page,
    style_of,
    text_size,
)
from headlens.report.heatmaps import label
from headlens.scoring.base import Scorer
from headlens.scoring.scorers import SCORERS
from headlens.util.formatting import counted, listing

STEM = "mass@"
PER_ROW = 6
OFFSETS_HIGH, OFFSETS_ABOVE, OFFSETS_GAP = (
    0.62,
    0.3,
    0.12,
)  # inches: a panel, what is above it, between panels
ROOMY = 0.9  # inches: a panel where there is one row of them
OFFSETS_LEFT, OFFSETS_BELOW, KEY, OFFSETS_HEADING = 0.5, 0.36, 0.22, 0.22  # inches
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
    heading = OFFSETS_HEADING * (len(stacks) > 1)
    rows = [math.ceil(len(numbers) / PER_ROW) for _, numbers in stacks]
    height = KEY + sum(heading + count * (_high(count) + OFFSETS_ABOVE) + OFFSETS_BELOW for count in rows)
    title = f"{model}: " * bool(model) + _finding(scores, table)
    figure, top = page(title, _caption(table), (TWO_COLUMNS, height))
    pieces: list[Axes] = []
    key_top, top = top, top + KEY
    for (stack, numbers), count in zip(stacks, rows, strict=True):
        if heading:
            figure.write(MARGIN, top, stack, 9, fontweight="bold")
        pieces += _panels(figure, table[table["stack"] == stack], numbers, top + heading)
        top += heading + count * (_high(count) + OFFSETS_ABOVE) + OFFSETS_BELOW
    width, total = figure.get_size_inches()
    figure.legend(
        *pieces[0].get_legend_handles_labels(), loc="upper left", ncols=4, frameon=False, borderpad=0,
        bbox_to_anchor=(MARGIN / width, 1 - key_top / total), borderaxespad=0, columnspacing=1.5,
        prop={"family": list(figure.families), "size": 7},
    )  # fmt: skip
    return figure


def _panels(figure: InchFigure, table: pd.DataFrame, layers: list[int], top: float) -> list[Axes]:
    columns = min(PER_ROW, len(layers))
    wide = min((INSIDE - OFFSETS_LEFT + OFFSETS_GAP) / columns, 2.0) - OFFSETS_GAP
    n_rows = math.ceil(len(layers) / columns)
    high = _high(n_rows)
    offsets = sorted(set(table["offset"]))
    made = []
    for index, layer in enumerate(layers):
        row, column = divmod(index, columns)
        place = (
            MARGIN + OFFSETS_LEFT + column * (wide + OFFSETS_GAP),
            top + OFFSETS_ABOVE + row * (high + OFFSETS_ABOVE),
        )
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
    middle = OFFSETS_LEFT + (columns * (wide + OFFSETS_GAP) - OFFSETS_GAP) / 2
    bottom = top + n_rows * (high + OFFSETS_ABOVE) + 0.17
    figure.write(MARGIN + middle, bottom, "offset of the key from the query (tokens)", 8, ha="center")
    _, total = figure.get_size_inches()
    centre = top + OFFSETS_ABOVE + (n_rows * (high + OFFSETS_ABOVE) - OFFSETS_ABOVE) / 2
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
        mass.index, mass[strongest["name"]], "s--", color=style_of(strongest["tag"]).colour, linewidth=1.0,
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
    tag = table["tag"].iloc[0]
    tagged = count_heads(scores[(scores["tag"] == tag) & scores["tagged"]])
    verb = "is" if tagged == 1 else "are"
    return (
        f"{tagged} of {count_heads(scores):,} heads {verb} {tag}; most weight on one offset: "
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
    return OFFSETS_HIGH if n_rows > 1 else ROOMY


# ---- How broadly heads attend: entropy by layer


MEASURE = "entropy"
FEW_LAYERS = 16  # so many fit into one column
ENTROPY_HIGH, ENTROPY_ABOVE, ENTROPY_BELOW, ENTROPY_LEFT, ENTROPY_HEADING = (
    1.7,
    0.28,
    0.36,
    0.5,
    0.2,
)  # inches


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
    heading = ENTROPY_HEADING * (len(stacks) > 1)
    title = f"{model}: " * bool(model) + _entropy_finding(scores, table)
    caption = (
        "Entropy of each row of attention, divided by the logarithm of the number of keys that it may see: 0 "
        "is one key, 1 is uniform; mean over rows. Each circle is a head; filled: tagged broad. Names: the "
        "broadest and the narrowest head. Layers and heads count from 0."
    )
    figure, top = page(
        title, caption, (width, len(stacks) * (heading + ENTROPY_ABOVE + ENTROPY_HIGH + ENTROPY_BELOW))
    )
    for stack in stacks:
        if heading:
            figure.write(MARGIN, top, stack, 9, fontweight="bold")
        axes = figure.place(
            MARGIN + ENTROPY_LEFT,
            top + heading + ENTROPY_ABOVE,
            width - 2 * MARGIN - ENTROPY_LEFT,
            ENTROPY_HIGH,
        )
        _entropy_panel(figure, axes, table[table["stack"] == stack])
        top += heading + ENTROPY_ABOVE + ENTROPY_HIGH + ENTROPY_BELOW
    return figure


def _entropy_panel(figure: InchFigure, axes: Axes, table: pd.DataFrame) -> None:
    tagged, tag = table["tagged"].to_numpy(bool), table["tag"].iloc[0]
    for chosen, face, what in ((~tagged, "none", "head"), (tagged, style_of(tag).colour, f"{tag} head")):
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


def _entropy_finding(scores: pd.DataFrame, table: pd.DataFrame) -> str:
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


# ---- The best head of each relation or other measure, held against its baseline (Clark et al. 2019, table 1)


ROW = 0.165  # inches
BEST_ABOVE, BEST_BELOW, BEST_GAP = 0.44, 0.4, 0.14  # inches
SIZE = 7  # points


def best_heads(scores: pd.DataFrame, tag: str) -> pd.DataFrame:
    """Find the best head for each relation, or for each measure of another tag.

    Heads that the row gave the tag come first, then those with the larger effect: an effect that rests on
    little does not displace one that is proven.

    Args:
        scores: columns as in `headlens.util.files.SCORES`.
        tag: which tag.

    Returns:
        The best rows of those that were tested (enough decisions, and a ground for the tag), largest effect
        first, with `row` (the relation, or the measure), `direction` and `name` (of the head) added.
    """
    mine = scores[(scores["tag"] == tag) & scores["q_value"].notna() & scores["baseline"].notna()]
    parts = [measure.partition(":") for measure in mine["measure"]]
    mine = mine.assign(
        row=[before if "->" in after else before + colon + after for before, colon, after in parts],
        direction=[after.replace("->", " \u2192 ") if "->" in after else "" for _, _, after in parts],
        name=head_names(mine),
    )
    best = mine.sort_values(["tagged", "effect"], ascending=False, kind="stable").drop_duplicates("row")
    return best.sort_values("effect", ascending=False, kind="stable").reset_index(drop=True)


def best_heads_figure(scores: pd.DataFrame, tag: str, model: str = "") -> InchFigure:
    """Draw the best head of each relation or measure: score with interval, baseline, n and name.

    Args:
        scores: columns as in `headlens.util.files.SCORES`.
        tag: which tag; one whose measures have a baseline.
        model: its name, for the title.

    Returns:
        The figure.

    Raises:
        InputError: nothing of the tag was tested.
    """
    best = best_heads(scores, tag)
    if best.empty:
        problem = f"No measure of the tag {tag!r} was tested against a baseline."
        raise InputError(problem, "Choose another tag, or classify on a larger corpus.")
    names = [label(row, 30) for row in best["row"]]
    columns = _columns(best)
    scorer = SCORERS.get(tag, Scorer)
    height = BEST_ABOVE + ROW * len(best) + BEST_BELOW
    title = f"{model}: " * bool(model) + _best_finding(best, tag, scorer)
    caption = _best_caption(scores, tag, scorer)
    figure, top = page(title, caption, (TWO_COLUMNS, height), names)
    left = text_size(names, SIZE, figure.families)[0] + 0.1
    widths = [text_size([head, *cells], SIZE, figure.families)[0] + BEST_GAP for head, cells in columns]
    place = MARGIN + left, top + BEST_ABOVE, INSIDE - left - sum(widths), ROW * len(best)
    axes = figure.place(*place)
    _dots(axes, best, tag)
    _frame(figure, axes, names, scorer.axis)
    link_rows(axes, best["name"], 1 + float(sum(widths)) / place[2])
    for (head, cells), right in zip(columns, np.cumsum(widths), strict=True):
        for row, text in enumerate([head, *cells]):
            axes.text(
                1 + right / place[2], row - 1, text, fontsize=SIZE, ha="right", va="center_baseline",
                fontweight="normal" if row else "bold", transform=axes.get_yaxis_transform(), **figure.style,
            )  # fmt: skip
    return figure


def _columns(best: pd.DataFrame) -> list[tuple[str, list[str]]]:
    """The columns beside the picture: heading and cells."""
    columns = [("head", best["name"].tolist())]
    if best["direction"].any():
        columns.append(("direction", best["direction"].tolist()))
    columns += [(name, [f"{value:.2f}" for value in best[name]]) for name in ("score", "baseline")]
    return [*columns, ("n", [f"{n:,.0f}" for n in best["n"]])]


def _dots(axes: Axes, best: pd.DataFrame, tag: str) -> None:
    rows = np.arange(len(best))
    low, high = best["baseline"] + best["ci_low"], best["baseline"] + best["ci_high"]
    tagged = best["tagged"].to_numpy(bool)
    axes.hlines(rows, low, high, color="0.25", linewidth=1.0, label="95 % interval of the gain", zorder=2)
    axes.plot(best["baseline"], rows, "|", color="black", markersize=8, markeredgewidth=1.6, label="baseline")
    colour = style_of(tag).colour
    for chosen, face, what in (
        (tagged, colour, f"head tagged {tag}"),
        (~tagged, "white", "not tagged"),
    ):
        axes.plot(
            best["score"][chosen], rows[chosen], "o", markersize=5, markerfacecolor=face,
            markeredgecolor="black", markeredgewidth=0.7, label=what, zorder=3,
        )  # fmt: skip
    ends = [*low.dropna(), *high.dropna(), *best["score"], *best["baseline"]]
    axes.set_xlim(min(0.0, *ends) - 0.01, max(1.0, *ends) + 0.01)


def _frame(figure: InchFigure, axes: Axes, names: Sequence[str], said: str) -> None:
    axes.set_ylim(len(names) - 0.5, -0.5)
    axes.set_yticks(np.arange(len(names)), names, fontsize=SIZE, **figure.style)
    ticks = np.linspace(0, 1, 6)
    axes.set_xticks(ticks, [f"{tick:.1f}" for tick in ticks], fontsize=SIZE, **figure.style)
    axes.set_xlabel(said, fontsize=8, labelpad=2, **figure.style)
    axes.tick_params(length=2, pad=2)
    axes.set_axisbelow(True)
    axes.grid(axis="both", color="0.9", linewidth=0.5)
    axes.spines[["top", "right"]].set_visible(False)
    width, height = figure.get_size_inches()
    place = axes.get_position()
    figure.legend(
        *axes.get_legend_handles_labels(), loc="lower left", ncols=4, frameon=False, borderpad=0,
        bbox_to_anchor=(MARGIN / width, place.y1 + 0.24 / height), columnspacing=1.2, handletextpad=0.4,
        prop={"family": list(figure.families), "size": SIZE}, borderaxespad=0,
    )  # fmt: skip


def _best_finding(best: pd.DataFrame, tag: str, scorer: type[Scorer]) -> str:
    first, tagged = best.iloc[0], int(best["tagged"].sum())
    has = "has" if tagged == 1 or len(best) == 1 else "have"
    which = f"{'an' if tag[:1] in 'aeiou' else 'a'} {tag} head"
    return (
        f"{tagged or 'none'} of {counted(len(best), scorer.row)} {has} {which}; the largest gain is "
        f"{first['row']}: head {first['name']} reaches {first['score']:.2f} against "
        f"{first['baseline']:.2f} of the baseline"
    )


def _best_caption(scores: pd.DataFrame, tag: str, scorer: type[Scorer]) -> str:
    directed = scores.loc[scores["tag"] == tag, "measure"].str.contains("->", regex=False).any()
    return (
        f"For each {scorer.row} the head with the largest gain over the baseline ({scorer.baseline}), of "
        f"{count_heads(scores):,} heads{' and both directions' * bool(directed)}, tagged ones first. The "
        "interval is that of the gain, placed at the baseline. Heads are chosen on the data that they are "
        "shown on, so the best score is somewhat flattering; q-values count all tests."
    )
