"""What the ending of a file name asks for."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from headlens.errors import InputError

FIGURES = (".png", ".svg", ".pdf")
_WORKS = "Endings that work: .png .svg .pdf for heatmaps, .html for an interactive page, .csv for a table."


def view_ending(path: str | Path) -> str:
    """Find out in which format the attention of one input is wanted.

    Args:
        path: the file to be written.

    Returns:
        One of ``.png .svg .pdf .html .csv``.

    Raises:
        InputError: the ending names no format that headlens writes.
    """
    return _ending(path, (*FIGURES, ".html", ".csv"), _WORKS)


def figure_or_table(path: str | Path) -> str:
    """Find out whether a heatmap or a table is wanted.

    Args:
        path: the file to be written.

    Returns:
        One of ``.png .svg .pdf .csv``.

    Raises:
        InputError: the ending names neither.
    """
    return _ending(
        path, (*FIGURES, ".csv"), "Endings that work: .png .svg .pdf for a heatmap, .csv for a table."
    )


def _ending(path: str | Path, known: Sequence[str], works: str) -> str:
    ending = Path(path).suffix.lower()
    if ending not in known:
        found = f"the ending {ending}" if ending else "a file name without ending"
        raise InputError(
            f"The ending chooses the format; expected one that headlens writes, found {found}.", works
        )
    return ending
