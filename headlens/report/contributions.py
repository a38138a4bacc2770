"""What heads write as a map of layers and heads, and as a file."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
from matplotlib import colormaps
from matplotlib.colors import Normalize

from headlens.report.ablation_grid import Grid, Scale
from headlens.report.contributions_words import LABELS, SIGNED, about, finding, heads_of
from headlens.report.endings import figure_or_table
from headlens.report.figures import InchFigure, figure_bytes
from headlens.util.files import write_bytes, write_csv

if TYPE_CHECKING:
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
