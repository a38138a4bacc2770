"""What the ending of a file name asks for."""

from __future__ import annotations

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
    ending = Path(path).suffix.lower()
    if ending not in (*FIGURES, ".html", ".csv"):
        found = f"the ending {ending}" if ending else "a file name without ending"
        raise InputError(
            f"The ending chooses the format; expected one that headlens writes, found {found}.", _WORKS
        )
    return ending
