"""Figures whose parts are placed in inches, and the bytes of their files."""

from __future__ import annotations

import io
import textwrap
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

import matplotlib
from matplotlib.artist import Artist
from matplotlib.axes import Axes
from matplotlib.backend_bases import RendererBase
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure
from matplotlib.transforms import Bbox

from headlens.report.fonts import drawing, text_size, text_style
from headlens.util.files import file_name, inner_folder, remove, write_bytes

DPI = 200
FEWEST = 12  # characters in a line
SCREEN = 110  # dots per inch in a notebook
_SETTINGS: Any = {"svg.fonttype": "none", "svg.hashsalt": "headlens", "pdf.fonttype": 42}
_NO_DATE: dict[str, dict[str, None]] = {
    ".svg": {"Date": None},
    ".pdf": {"CreationDate": None},
    ".png": {},
}


class InchFigure(Figure):
    """A figure that knows where its parts are in inches, and that is silent about missing glyphs.

    Args:
        width: in inches.
        height: in inches.
        families: fonts of all its text.
    """

    def __init__(self, width: float, height: float, families: Sequence[str]) -> None:
        super().__init__(figsize=(width, height), dpi=DPI, facecolor="white")
        FigureCanvasAgg(self)
        self.style = text_style(families)
        self.families = tuple(families)

    def place(self, left: float, top: float, width: float, height: float) -> Axes:
        """Add axes.

        Args:
            left: from the figure's left edge, in inches.
            top: from its upper edge, in inches.
            width: in inches.
            height: in inches.

        Returns:
            The axes.
        """
        total_width, total_height = self.get_size_inches()
        bottom = total_height - top - height
        return self.add_axes(
            (left / total_width, bottom / total_height, width / total_width, height / total_height)
        )

    def write(self, left: float, top: float, text: str, points: float, **options: Any) -> None:
        """Write text whose upper left corner is given in inches from the figure's upper left corner."""
        width, height = self.get_size_inches()
        self.text(left / width, 1 - top / height, text, fontsize=points, va="top", **self.style, **options)

    def draw(self, renderer: RendererBase) -> None:
        """Draw, without matplotlib's warning for every missing glyph."""
        with drawing():
            super().draw(renderer)

    def get_tightbbox(
        self, renderer: RendererBase | None = None, *, bbox_extra_artists: Iterable[Artist] | None = None
    ) -> Bbox:
        """Measure, without matplotlib's warning for every missing glyph."""
        with drawing():
            return super().get_tightbbox(renderer, bbox_extra_artists=bbox_extra_artists)

    def _repr_png_(self) -> bytes:
        """Show itself in a notebook, whatever backend is set there."""
        return figure_bytes(self, ".png", dpi=SCREEN)


def wrapped(text: str, width: float, points: float, families: Sequence[str]) -> tuple[str, float]:
    """Break a text into lines.

    Args:
        text: the text; its own line breaks stay.
        width: of a line, in inches.
        points: font size.
        families: fonts.

    Returns:
        The text with line breaks, and its height in inches.
    """
    natural, _ = text_size(text.split("\n"), points, families)
    longest = max(map(len, text.split("\n")))
    per_line = max(FEWEST, int(longest * min(1.0, 0.95 * width / max(natural, 1e-6))))
    while True:
        lines = [line for part in text.split("\n") for line in textwrap.wrap(part, per_line) or [""]]
        broken = "\n".join(lines)
        found, height = text_size([broken], points, families)
        if found <= width or per_line <= FEWEST:
            return broken, height
        per_line = max(FEWEST, int(0.95 * per_line))  # some signs are wider than others


def figure_bytes(figure: Figure, ending: str, dpi: int = DPI) -> bytes:
    """Render a figure: the same bytes every time, text in SVG and PDF as text.

    Args:
        figure: the figure.
        ending: ``.png``, ``.svg`` or ``.pdf``.
        dpi: pixels per inch, also of the images inside SVG and PDF.

    Returns:
        The file's content.
    """
    buffer = io.BytesIO()
    with matplotlib.rc_context(_SETTINGS), drawing():
        figure.savefig(buffer, format=ending[1:], dpi=dpi, metadata=_NO_DATE[ending])
    return buffer.getvalue()


def save_drawn(figures: Iterable[tuple[str, Figure]], out: Path) -> list[Path]:
    """Write figures into a run directory, each as PNG and as SVG; the same bytes every time.

    Those that an earlier run drew there and this one does not are removed.

    Args:
        figures: names and figures, all that the run has.
        out: the run directory.

    Returns:
        The files ``figures/NAME.png`` and ``figures/NAME.svg`` of each.

    Raises:
        RunError: one cannot be written, or removed.
    """
    paths = []
    folder = inner_folder(Path(out), "figures")
    for name, figure in figures:
        for ending in (".png", ".svg"):
            paths.append(folder / f"{file_name(name)}{ending}")
            write_bytes(figure_bytes(figure, ending), paths[-1])
    drawn = {file.with_suffix(".png") for file in folder.glob("*.svg")} & set(folder.glob("*.png"))
    remove(file.with_suffix(ending) for file in drawn - set(paths) for ending in (".png", ".svg"))
    return paths
