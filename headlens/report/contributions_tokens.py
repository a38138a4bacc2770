"""What heads write token by token: rows are heads, columns are tokens, a panel per stack."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
from matplotlib.axes import Axes

from headlens.model.heads import STACKS, Head
from headlens.report.ablation_grid import Scale
from headlens.report.contributions import scale_of
from headlens.report.contributions_words import MEANINGS
from headlens.report.figures import InchFigure
from headlens.report.fonts import POINTS, families_for, text_size
from headlens.report.links import link_name, link_rows
from headlens.report.pages import column, page
from headlens.report.parts import LINE, MARGIN, label, ordinal
from headlens.util.formatting import visible

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from headlens.contributions.contributions import Contributions

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
