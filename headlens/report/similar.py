"""The figures of ``headlens similar``."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pandas as pd

from headlens.report.figures import InchFigure, save_drawn
from headlens.report.similar_map import clustermap_figure
from headlens.report.similar_plane import embedding_figure
from headlens.similar.similar import has_several, matrix_of

__all__ = ["clustermap_figure", "draw_all", "embedding_figure", "save_figures"]


def draw_all(
    distances: pd.DataFrame, clusters: pd.DataFrame, model: str = ""
) -> Iterator[tuple[str, InchFigure]]:
    """Draw the figures of every stack that has two heads or more.

    Args:
        distances: columns as in `headlens.similar.similar.DISTANCES`.
        clusters: columns as in `headlens.similar.similar.CLUSTERS`.
        model: its name or path, for the titles; its folders are left out.

    Yields:
        The name of each figure (``clustermap``, ``embedding``; the stack behind where there are several), and
        the figure.
    """
    model, several = Path(model).name, has_several(clusters)
    stacks = list(dict.fromkeys(clusters["stack"]))
    for stack in stacks:
        heads = clusters[clusters["stack"] == stack].reset_index(drop=True)
        if len(heads) > 1:
            matrix = matrix_of(distances, heads)
            ending = f"-{stack}" if len(stacks) > 1 else ""
            said = f"{model}, {stack}".lstrip(", ") if several else model
            yield f"clustermap{ending}", clustermap_figure(matrix, heads, said, several)
            yield f"embedding{ending}", embedding_figure(matrix, heads, said, several)


def save_figures(distances: pd.DataFrame, clusters: pd.DataFrame, out: Path, model: str = "") -> list[Path]:
    """Write every figure, as PNG and as SVG with its text as text.

    Args:
        distances: columns as in `headlens.similar.similar.DISTANCES`.
        clusters: columns as in `headlens.similar.similar.CLUSTERS`.
        out: the run directory.
        model: its name or path, for the titles; its folders are left out.

    Returns:
        The files, ``figures/NAME.png`` and ``figures/NAME.svg`` of each; the same bytes every time.

    Raises:
        RunError: one cannot be written.
    """
    return save_drawn(draw_all(distances, clusters, model), out)
