"""Figures of contributions: tokens, words and heads."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from matplotlib import colormaps
from matplotlib.axes import Axes
from matplotlib.colors import Normalize
from numpy.typing import NDArray

from headlens.model.heads import Head
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
from headlens.report.words import COLUMNS
from headlens.residual.contributions import DEFAULT, Contributions, heads_in
from headlens.runs.read import at
from headlens.util.files import write_bytes, write_csv
from headlens.util.formatting import counted, visible

NEGATIVE = "\u2212"
OF_RUNS = (DEFAULT, "stream_share", "logit")  # measures whose maps a run has


def draw_all(found: Contributions) -> Iterator[tuple[str, InchFigure]]:
    """Draw the figures of a run: maps of the measures that there are, and of tokens; with their names."""
    for measure in OF_RUNS:
        if found.table[measure].notna().any():
            yield measure, _draw_map(found, measure)
    if found.per_token[DEFAULT].notna().any():
        yield "tokens", _draw_tokens(found, DEFAULT)


def draw(found: Contributions, measure: str, per_token: bool, title: str | None = None) -> InchFigure:
    """See `Contributions.heatmap`."""
    return (_draw_tokens if per_token else _draw_map)(found, measure, title)


def save(found: Contributions, path: Path, measure: str, per_token: bool) -> None:
    """Write a table or a picture, see `Contributions.save`."""
    if path.suffix.lower() == ".csv":
        write_csv(found.per_token if per_token else found.table, path)
    else:
        write_bytes(figure_bytes(found.heatmap(measure, per_token), path.suffix.lower()), path)


def _draw_map(found: Contributions, measure: str, title: str | None = None) -> InchFigure:
    """One measure of all heads: a map of layers and heads, a panel per stack."""
    values = _by_head(found, measure)
    scale = _scale_of(measure, values.values())
    grid = Grid({head: scale.cell(value, NEGATIVE * (value < 0)) for head, value in values.items()})
    unknown = sum(not np.isfinite(value) for value in values.values())
    caption = _about(found, measure)
    caption += " Blue with a minus: below 0." * any(value < 0 for value in values.values())
    caption += " Hatched: no value." * (unknown > 0)
    figure, top = grid.draw(title or _finding(found, values, measure), caption, scale.room(grid.width))
    scale.draw(figure, top)
    return figure


def _scale_of(measure: str, values: Iterable[float]) -> Scale:
    """The colours of a measure: around 0 where it has a sign, else from 0 on."""
    sizes = [abs(value) for value in values if np.isfinite(value)]
    largest = max(sizes, default=0.0) or 1.0
    if measure in SIGNED:
        return Scale(colormaps["RdBu_r"], Normalize(-largest, largest), LABELS[measure])
    return Scale(colormaps["Reds"], Normalize(0, largest), LABELS[measure])


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


def _draw_tokens(found: Contributions, measure: str, title: str | None = None) -> InchFigure:
    """One measure of heads and tokens; of more than `MOST` heads those with the largest values are shown."""
    panels, dropped = _panels(found, measure)
    scale = _scale_of(measure, np.concatenate([panel.values.ravel() for panel in panels]))
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
    caption = _caption(measure, dropped, step)
    size = (width, sum(heights) + scale.room(width))
    figure, top = page(title or _largest(found, measure, panels), caption, size, tokens)
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
    rows = found.per_token.dropna(subset=["head"])
    groups = rows.groupby(["stack", "layer", "head"], sort=False)[measure]
    values = dict(zip(found.heads, (mine.to_numpy(float) for _, mine in groups), strict=True))
    shown = sorted(values, key=lambda head: -_peak(values[head]))[:MOST]
    panels = []
    for stack, tokens in found.tokens.items():
        heads = [head for head in values if head.stack == stack and head in shown]
        if heads:
            labels = [label(visible(token)) for token in tokens]
            panels.append(_Panel(stack, heads, np.stack([values[head] for head in heads]), labels))
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
    names = [found.name(head) for head in panel.rows]
    link_rows(axes, names, 1.0)
    style = {"fontsize": SIZE, **figure.style}
    axes.set_yticks(range(len(names)), names, **style)
    places = range(0, len(panel.tokens), step)
    axes.set_xticks(places, [panel.tokens[place] for place in places], rotation=90, **style)
    axes.tick_params(length=2, pad=2)
    axes.set_ylabel("head", fontsize=8, labelpad=2, **figure.style)
    axes.set_xlabel("token", fontsize=8, labelpad=2, **figure.style)


def _largest(found: Contributions, measure: str, panels: Sequence[_Panel]) -> str:
    largest = max(panels, key=lambda panel: _peak(panel.values))
    sizes = np.where(np.isfinite(largest.values), np.abs(largest.values), -1)
    row, place = np.unravel_index(int(sizes.argmax()), sizes.shape)
    name = found.name(largest.rows[int(row)])
    value = largest.values[row, place]
    return (
        f"{found.model}: the largest {measure.replace('_', ' ')} is that of head {name} at token "
        f"{int(place)}, {largest.tokens[int(place)]!r} ({value:.2g})"
    )


def _caption(measure: str, dropped: int, step: int) -> str:
    text = f"{COLUMNS[measure]} Rows: heads; columns: tokens. Grey: not defined. "
    if dropped:
        text += f"The {MOST} heads with the largest values, of either sign, of {MOST + dropped}; "
        text += "choose others with --heads. "
    return text + (f"Every {ordinal(step)} token is labelled. " if step > 1 else "") + "All count from 0."


# ---- What is said about contributions: in titles, in captions and on a terminal


NAMED = 3  # heads that a sentence names
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


def _by_head(found: Contributions, measure: str) -> dict[Head, float]:
    """One measure of every head, means over tokens, without W_O's biases; NaN where it is not defined."""
    values = found.table.loc[found.table["head"].notna(), measure]
    return dict(zip(heads_in(found.table), values.to_numpy(float).tolist(), strict=True))


def _finding(found: Contributions, values: Mapping[Head, float], measure: str) -> str:
    """Which heads stand out by a measure: a title."""
    top = _top(found, values)
    against = sum(value < 0 for value in values.values())
    titles = {
        "output_norm": f"the largest outputs before W_O are those of {top}",
        "written_norm": f"most is written by {top}",
        "branch_share": f"the largest shares of what their layers' attention writes are those of {top}; "
        f"{against or 'none'} of {counted(len(values), 'head')} write{'s' * (against < 2)} against the rest",
        "cosine": f"most alike to what their layers' attention writes: {top}",
        "stream_share": f"the largest shares of the residual stream are those of {top}",
        "logit": _for_and_against(found, values),
    }
    return f"{found.model}: {titles[measure]}"


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


def _about(found: Contributions, measure: str) -> str:
    """How to read a figure of a measure, means over tokens: a caption."""
    counts = dict.fromkeys(map(len, found.tokens.values()))
    over = f"Mean over {' and '.join(map(str, counts))} tokens."
    if found.predicted is not None and measure == "logit":
        over = f"The logit of {found.token!r} at position {found.position} is {found.logit:.2f}."
    return f"{COLUMNS[measure]} {over} {_biases(found, measure)}Layers and heads count from 0."


def _biases(found: Contributions, measure: str) -> str:
    rows = found.table[found.table["head"].isna()]
    values = rows[measure].dropna()
    if values.empty:
        return ""
    low, high = f"{values.min():.2g}", f"{values.max():.2g}"
    return f"W_O's biases, not shown, have {low}{f' to {high}' if low != high else ''}. "


def summary(found: Contributions) -> str:
    """Say what was found in a few lines for a terminal."""
    return "\n".join([*sentences(found), *found.notes])


def sentences(found: Contributions) -> list[str]:
    """Say which heads write most, their share of the stream, and who is for and against the token."""
    written, shares, effects = (_by_head(found, name) for name in ("written_norm", "stream_share", "logit"))
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
    return lines


def _layers(found: Contributions) -> list[str]:
    """How much of the stream whole layers of attention are; only where all of their parts are there."""
    table, whole = found.table, len(found.heads) == at(found.run, "model", "heads", default=0)
    sums = table.groupby(["stack", "layer"])["stream_share"].sum(min_count=1).dropna()
    if not whole or len(sums) < 2:
        return []
    several = table["stack"].nunique() > 1
    names = [f"{f'{stack} ' if several else ''}layer {layer}" for stack, layer in sums.index.to_list()]
    low, high = names[int(sums.to_numpy().argmin())], names[int(sums.to_numpy().argmax())]
    return [
        f"All of a layer's attention is {sums.min():.2g} ({low}) to {sums.max():.2g} ({high}) of the stream."
    ]
