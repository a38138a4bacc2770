"""Figures of contributions: tokens, words and heads."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import pandas as pd
from matplotlib import colormaps
from matplotlib.axes import Axes
from matplotlib.colors import Normalize

from headlens.model.heads import STACKS, Head, link_name
from headlens.report.ablation_heads import Grid, Scale
from headlens.report.canvas import (
    MARGIN,
    POINTS,
    InchFigure,
    column,
    families_for,
    figure_bytes,
    link_rows,
    page,
    text_size,
)
from headlens.report.heatmaps import LINE, label, ordinal
from headlens.report.viewer import figure_or_table
from headlens.util.files import write_bytes, write_csv
from headlens.util.formatting import visible

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from headlens.contributions.contributions import Contributions


NEGATIVE = "\u2212"


def draw_map(found: Contributions, measure: str, title: str | None = None) -> InchFigure:
    """Draw one measure of all heads: a map of layers and heads, a panel per stack.

    Args:
        found: what heads write.
        measure: its name.
        title: instead of one that says what was found.

    Returns:
        The figure.
    """
    values = heads_of(found, measure)
    scale = scale_of(measure, values.values())
    grid = Grid({head: scale.cell(value, NEGATIVE * (value < 0)) for head, value in values.items()})
    unknown = sum(not np.isfinite(value) for value in values.values())
    caption = about(found, measure)
    caption += " Blue with a minus: below 0." * any(value < 0 for value in values.values())
    caption += " Hatched: no value." * (unknown > 0)
    figure, top = grid.draw(title or finding(found, measure), caption, scale.room(grid.width))
    scale.draw(figure, top)
    return figure


def scale_of(measure: str, values: Iterable[float]) -> Scale:
    """Choose the colours of a measure: around 0 where it has a sign, else from 0 on.

    Args:
        measure: its name.
        values: what will be drawn.

    Returns:
        The scale.
    """
    sizes = [abs(value) for value in values if np.isfinite(value)]
    largest = max(sizes, default=0.0) or 1.0
    if measure in SIGNED:
        return Scale(colormaps["RdBu_r"], Normalize(-largest, largest), LABELS[measure])
    return Scale(colormaps["Reds"], Normalize(0, largest), LABELS[measure])


def save(found: Contributions, path: str | Path, measure: str, per_token: bool) -> None:
    """See `Contributions.save`."""
    ending = figure_or_table(path)
    if ending == ".csv":
        write_csv(found.per_token if per_token else found.table, Path(path))
    else:
        write_bytes(figure_bytes(found.heatmap(measure, per_token), ending), Path(path))


# ---- What heads write token by token: rows are heads, columns are tokens, a panel per stack


MOST = 24  # rows
ROW, HEADING, GAP, AXIS = 0.19, 0.24, 0.12, 0.2  # inches
WIDEST, ROOMIEST = 0.4, 9.0  # inches: a column, all columns
SIZE = 7.0  # points
MISSING = "0.85"


@dataclass(frozen=True, slots=True)
class _Panel:
    stack: str
    rows: Sequence[Head]
    values: NDArray[np.float64]  # [head, token]
    tokens: Sequence[str]


def draw_tokens(found: Contributions, measure: str, title: str | None = None) -> InchFigure:
    """Draw one measure of heads and tokens.

    Args:
        found: what heads write; of more than `MOST` heads those with the largest values are shown.
        measure: its name; not "logit", which belongs to one position.
        title: instead of one that says what was found.

    Returns:
        The figure.
    """
    panels, dropped = _panels(found, measure)
    scale = scale_of(measure, np.concatenate([panel.values.ravel() for panel in panels]))
    names = [found.name(head) for panel in panels for head in panel.rows]
    tokens = [token for panel in panels for token in panel.tokens]
    families = families_for([*names, *tokens])
    left = MARGIN + AXIS + text_size(names, SIZE, families)[0] + 0.08
    longest = max(len(panel.tokens) for panel in panels)
    line = SIZE * LINE / POINTS
    width = column(min(left + longest * max(line, 0.2) + MARGIN, left + ROOMIEST + MARGIN))
    cell = min((width - left - MARGIN) / longest, WIDEST)
    step = math.ceil(line / cell - 1e-9)
    below = [text_size(panel.tokens[::step], SIZE, families)[0] + 0.1 + AXIS for panel in panels]
    several = len(panels) > 1
    heights = [
        HEADING * several + ROW * len(panel.rows) + room + GAP
        for panel, room in zip(panels, below, strict=True)
    ]
    caption = _caption(found, measure, dropped, step)
    size = (width, sum(heights) + scale.room(width))
    figure, top = page(title or _finding(found, measure, panels), caption, size, tokens)
    for panel, height in zip(panels, heights, strict=True):
        if several:
            figure.write(MARGIN, top, panel.stack, 9, fontweight="bold")
        high = ROW * len(panel.rows)
        axes = figure.place(left, top + HEADING * several, cell * len(panel.tokens), high)
        _draw(figure, axes, panel, scale)
        _label(found, figure, axes, panel, step)
        top += height
    scale.draw(figure, top)
    return figure


def _panels(found: Contributions, measure: str) -> tuple[list[_Panel], int]:
    """The heads that are shown, by stack, and how many are not."""
    asked = set(found.heads)
    values = {
        Head(site.stack, site.layer, number): found.values[site][measure][number]
        for site in found.values
        for number in range(site.n_heads)
        if Head(site.stack, site.layer, number) in asked
    }
    shown = sorted(values, key=lambda head: -_peak(values[head]))[:MOST]
    panels = []
    for stack in STACKS:
        rows = [head for head in found.heads if head.stack == stack and head in shown]
        if rows:
            tokens = [label(visible(token)) for token in found.axes[stack].tokens]
            panels.append(_Panel(stack, rows, np.stack([values[head] for head in rows]), tokens))
    return panels, len(values) - len(shown)


def _peak(values: NDArray[np.float64]) -> float:
    finite = np.abs(values[np.isfinite(values)])
    return float(finite.max()) if len(finite) else -1.0


def _draw(figure: InchFigure, axes: Axes, panel: _Panel, scale: Scale) -> None:
    colours = scale.colours.with_extremes(bad=MISSING)
    axes.imshow(panel.values, cmap=colours, norm=scale.norm, aspect="auto", interpolation="nearest")
    axes.grid(visible=False)
    axes.spines[:].set_visible(False)


def _label(found: Contributions, figure: InchFigure, axes: Axes, panel: _Panel, step: int) -> None:
    several = len({site.stack for site in found.sites}) > 1
    link_rows(axes, [link_name(head, several) for head in panel.rows], 1.0)
    style = {"fontsize": SIZE, **figure.style}
    axes.set_yticks(range(len(panel.rows)), [found.name(head) for head in panel.rows], **style)
    places = range(0, len(panel.tokens), step)
    axes.set_xticks(places, [panel.tokens[place] for place in places], rotation=90, **style)
    axes.tick_params(length=2, pad=2)
    axes.set_ylabel("head", fontsize=8, labelpad=2, **figure.style)
    axes.set_xlabel("token", fontsize=8, labelpad=2, **figure.style)


def _finding(found: Contributions, measure: str, panels: Sequence[_Panel]) -> str:
    largest = max(panels, key=lambda panel: _peak(panel.values))
    sizes = np.where(np.isfinite(largest.values), np.abs(largest.values), -1)
    row, place = np.unravel_index(int(sizes.argmax()), sizes.shape)
    name = found.name(largest.rows[int(row)])
    value = largest.values[row, place]
    said = measure.replace("_", " ")
    return (
        f"{found.model}: the largest {said} is that of head {name} at token {int(place)}, "
        f"{largest.tokens[int(place)]!r} ({value:.2g})"
    )


def _caption(found: Contributions, measure: str, dropped: int, step: int) -> str:
    meaning = MEANINGS[measure]
    text = f"{meaning[:1].upper()}{meaning[1:]}. Rows: heads; columns: tokens. Grey: not defined. "
    if dropped:
        text += f"The {MOST} heads with the largest values, of either sign, of {MOST + dropped}; "
        text += "choose others with --heads. "
    return text + (f"Every {ordinal(step)} token is labelled. " if step > 1 else "") + "All count from 0."


# ---- What is said about contributions: in titles, in captions and on a terminal


NAMED = 3  # heads that a sentence names
DEFAULT = "branch_share"
SIGNED = {"branch_share", "cosine", "stream_share", "logit"}

LABELS: Mapping[str, str] = {
    "output_norm": "length of the output before W_O",
    "written_norm": "length of what is written (units of the residual stream)",
    "branch_share": "share of what the layer's attention writes",
    "cosine": "cosine with what the layer's attention writes",
    "stream_share": "share of the residual stream",
    "logit": "direct effect on the logit (logits)",
}
"""What the colours of each measure are."""

MEANINGS: Mapping[str, str] = {
    "output_norm": "the Euclidean length of a head's output before W_O",
    "written_norm": "the Euclidean length of what a head writes: its output times its rows of W_O",
    "branch_share": "how much of what a layer's attention writes lies along one head; the shares of a "
    "layer's heads and of W_O's bias add up to 1, and are negative for a head that writes against the rest",
    "cosine": "the cosine of what a head writes and what its layer's attention writes together",
    "stream_share": "how much of the residual stream, with the layer's attention added, lies along what one "
    "head writes",
    "logit": "how much what a head writes raises the logit through the residual stream alone, with all other "
    "branches held fixed and norms at their scale",
}
"""What each measure is."""


def heads_of(found: Contributions, measure: str) -> dict[Head, float]:
    """Take one measure of every head that was asked for, means over tokens.

    Args:
        found: what heads write.
        measure: its name.

    Returns:
        The numbers in model order, without W_O's biases; NaN where a measure is not defined.
    """
    table = found.table.dropna(subset=["head"])
    places = zip(table["stack"], table["layer"], table["head"], strict=True)
    return {
        Head(str(stack), int(layer), int(head)): float(value)
        for (stack, layer, head), value in zip(places, table[measure], strict=True)
    }


def finding(found: Contributions, measure: str) -> str:
    """Say which heads stand out by a measure: a title.

    Args:
        found: what heads write.
        measure: its name.

    Returns:
        One sentence without a stop.
    """
    values = heads_of(found, measure)
    top = _top(found, values)
    against = sum(value < 0 for value in values.values())
    said = {
        "output_norm": f"the largest outputs before W_O are those of {top}",
        "written_norm": f"most is written by {top}",
        "branch_share": f"the largest shares of what their layers' attention writes are those of {top}; "
        f"{against or 'none'} of {_counted(len(values))} write{'s' * (against < 2)} against the rest",
        "cosine": f"most alike to what their layers' attention writes: {top}",
        "stream_share": f"the largest shares of the residual stream are those of {top}",
        "logit": _for_and_against(found, values),
    }
    return f"{found.model}: {said[measure]}"


def _for_and_against(found: Contributions, values: Mapping[Head, float]) -> str:
    parts: list[str] = []
    for verb, sign in (("raise", 1), ("lower", -1)):
        mine = {head: value for head, value in values.items() if value * sign > 0}
        if mine:
            what = "it" if parts else f"the logit of {found.token!r}"
            parts.append(f"{_top(found, mine, sign=sign)} {verb}{'s' * (len(mine) == 1)} {what} most")
    return ", ".join(parts) or f"no head changes the logit of {found.token!r}"


def _top(found: Contributions, values: Mapping[Head, float], sign: int = 0) -> str:
    """Name the largest heads with their numbers: signed ones, of one sign, where a sign is given."""
    known = [head for head, value in values.items() if value == value]
    best = sorted(known, key=lambda head: -values[head] * (sign or 1))[:NAMED]
    named = [f"{found.name(head)} ({values[head]:{'+' if sign else ''}.2g})" for head in best]
    return " and ".join(filter(None, [", ".join(named[:-1]), *named[-1:]])) or "no head"


def about(found: Contributions, measure: str) -> str:
    """Say how to read a figure of a measure, means over tokens: a caption.

    Args:
        found: what heads write.
        measure: its name.

    Returns:
        Sentences.
    """
    counts = dict.fromkeys(len(axis) for axis in found.axes.values())
    over = f"Mean over {' and '.join(map(str, counts))} tokens."
    if found.predicted is not None and measure == "logit":
        over = f"The logit of {found.token!r} at position {found.position} is {found.logit:.2f}."
    return f"{_capital(MEANINGS[measure])}. {over} {_biases(found, measure)}Layers and heads count from 0."


def _biases(found: Contributions, measure: str) -> str:
    rows = found.table[found.table["head"].isna()]
    values = rows[measure].dropna()
    if values.empty:
        return ""
    low, high = f"{values.min():.2g}", f"{values.max():.2g}"
    return f"W_O's biases, not shown, have {low}{f' to {high}' if low != high else ''}. "


def _capital(text: str) -> str:
    return text[:1].upper() + text[1:]


def _counted(number: int) -> str:
    return f"{number:,} head{'s' * (number != 1)}"


def summary(found: Contributions) -> str:
    """Say what was found in a few lines for a terminal.

    Args:
        found: what heads write.

    Returns:
        Which heads write most, their share of the stream, and who is for and against the token.
    """
    written, shares, effects = (heads_of(found, name) for name in ("written_norm", "stream_share", "logit"))
    lines = [f"Most is written by {_top(found, written)}: mean length over tokens."]
    if any(value == value for value in shares.values()):
        largest = _top(found, shares)
        lines.append(f"Largest shares of the residual stream: {largest}; means over tokens.")
        lines += _layers(found)
    if found.predicted is not None:
        lines.append(
            f"Logit of {found.token!r} at position {found.position}: {found.logit:.2f} (probability "
            f"{found.predicted.probability:.2g})."
        )
        for word, sign in (("For", 1), ("Against", -1)):
            mine = {head: value for head, value in effects.items() if value * sign > 0}
            if mine:
                lines.append(f"{word} it: {_top(found, mine, sign)}.")
    return "\n".join([*lines, *found.notes])


def _layers(found: Contributions) -> list[str]:
    """How much of the stream whole layers of attention are; only where all of their parts are there."""
    table: pd.DataFrame = found.table
    whole = len(table.dropna(subset=["head"])) == sum(site.n_heads for site in found.sites)
    sums = table.groupby(["stack", "layer"])["stream_share"].sum(min_count=1).dropna()
    if not whole or len(sums) < 2:
        return []
    several = table["stack"].nunique() > 1
    names = [f"{f'{stack} ' if several else ''}layer {layer}" for stack, layer in sums.index.to_list()]
    low, high = names[int(sums.to_numpy().argmin())], names[int(sums.to_numpy().argmax())]
    return [
        f"All of a layer's attention is {sums.min():.2g} ({low}) to {sums.max():.2g} ({high}) of the stream."
    ]
