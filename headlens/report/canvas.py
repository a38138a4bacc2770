"""The canvas of all figures and pages: sizes, fonts for every script, links, colours of tags."""

from __future__ import annotations

import io
import sys
import textwrap
import unicodedata
import warnings
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cache, lru_cache
from pathlib import Path
from typing import Any

import matplotlib
import pandas as pd
from matplotlib import font_manager, ft2font
from matplotlib.artist import Artist
from matplotlib.axes import Axes
from matplotlib.backend_bases import RendererBase
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.collections import Collection, LineCollection, PatchCollection
from matplotlib.colors import to_rgb
from matplotlib.figure import Figure
from matplotlib.ft2font import FT2Font
from matplotlib.patches import Rectangle
from matplotlib.transforms import Bbox

from headlens.scoring.base import Scorer
from headlens.scoring.scorers import SCORERS
from headlens.util.files import file_name, inner_folder, remove, write_bytes
from headlens.util.formatting import visible

DPI = 200
FEWEST = 12  # characters in a line
MARGIN = 0.12  # inches
ONE_COLUMN, TWO_COLUMNS = 3.4, 7.0  # inches: how wide figures in a paper are
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


# ---- Fonts that have the characters of a text, and how much room a text takes


BASE = "DejaVu Sans"  # comes with matplotlib
_NO_TEXT = ("cm", "STIX", "Last Resort")  # symbol fonts, and the one that draws every character as a box
_UNDRAWN = set("\u200c\u200d\ufe0e\ufe0f \u00a0\u3000")
POINTS = 72  # per inch


class HeadlensWarning(UserWarning):
    """Something that the user should know about a result that is there all the same."""


def families_for(texts: Iterable[str]) -> tuple[str, ...]:
    """Choose fonts so that every character of some texts can be drawn, if any installed font has it.

    Warns once (`HeadlensWarning`) of the characters that no installed font has, and of scripts that an older
    matplotlib cannot shape.

    Args:
        texts: what will be drawn.

    Returns:
        Font families in order of preference, for matplotlib's font fallback.
    """
    texts = list(texts)
    if scripts := not_shaped(texts):
        _say(
            f"This matplotlib draws {' and '.join(scripts)} letter by letter, unjoined and from left to "
            "right. Install matplotlib 3.11 or newer."
        )
    missing = {char for text in texts for char in text} - _UNDRAWN
    missing = {char for char in missing if ord(char) not in _characters(font_manager.findfont(BASE))}
    families = [BASE]
    candidates = _candidates() if missing else []
    variant = f"CJK {han_variant(''.join(texts))}"
    candidates.sort(key=lambda candidate: not candidate[0].endswith(variant))
    while missing and candidates:
        covered = [len(_covered(missing, path)) for _, path in candidates]
        best = max(range(len(candidates)), key=lambda index: covered[index])
        if not covered[best]:
            break
        family, path = candidates[best]
        families.append(family)
        missing -= _covered(missing, path)
    if missing:
        _warn(missing)
    return tuple(families)


def text_style(families: Sequence[str]) -> dict[str, Any]:
    """Options of every text in a figure: these fonts, and no sign of it read as a formula."""
    return {"fontfamily": list(families), "parse_math": False, "usetex": False}


def text_size(texts: Sequence[str], points: float, families: Sequence[str]) -> tuple[float, float]:
    """Measure texts as they will be drawn.

    Args:
        texts: the texts.
        points: font size.
        families: font families.

    Returns:
        Width of the widest and height of the highest, in inches; 0 for no text.
    """
    figure = Figure(dpi=POINTS)
    canvas: Any = FigureCanvasAgg(figure)  # matplotlib states no types here
    renderer = canvas.get_renderer()
    width = height = 0.0
    with drawing():
        for text in set(texts):
            drawn = figure.text(0, 0, text, fontsize=points, **text_style(families))
            box = drawn.get_window_extent(renderer)
            width, height = max(width, box.width), max(height, box.height)
            drawn.remove()
    return width / POINTS, height / POINTS


@contextmanager
def drawing() -> Iterator[None]:
    """Draw or measure text: as wide at every resolution, and silently where glyphs are missing.

    With hinting a text would be up to a tenth wider on a screen than it was measured, and run off the paper.
    Of missing glyphs `families_for` has told once, instead of matplotlib's warning for each.
    """
    with matplotlib.rc_context({"text.hinting": "none"}), warnings.catch_warnings():
        warnings.filterwarnings("ignore", message=r"(?s)Glyph .* missing from")
        warnings.filterwarnings("ignore", message=r"(?s)Matplotlib currently does not support .* natively")
        yield


def _candidates() -> list[tuple[str, str]]:
    """Upright text fonts by family and file, with those that were installed after matplotlib's cache."""
    known = {entry.fname for entry in font_manager.fontManager.ttflist}
    for path in sorted(set(font_manager.findSystemFonts()) - known):
        if path not in _unreadable():
            try:
                font_manager.fontManager.addfont(path)
            except Exception:  # FreeType raises several kinds for a font it cannot use, such as bitmaps
                _unreadable().add(path)
    entries = [
        entry
        for entry in font_manager.fontManager.ttflist
        if entry.style == "normal" and not entry.name.startswith(_NO_TEXT) and entry.name != BASE
    ]
    entries.sort(key=lambda entry: (entry.weight != 400, "Sans" not in entry.name, entry.name, entry.fname))
    return [(entry.name, entry.fname) for entry in entries]


@cache
def _unreadable() -> set[str]:
    return set()


@lru_cache(maxsize=4096)
def _characters(path: str) -> frozenset[int]:
    try:
        return frozenset(FT2Font(path).get_charmap())
    except Exception:  # FreeType raises several kinds for a font it cannot use
        return frozenset()


def _covered(chars: set[str], path: str) -> set[str]:
    known = _characters(path)
    return {char for char in chars if ord(char) in known}


def _warn(missing: set[str]) -> None:
    shown = " ".join(sorted(missing)[:10]) + (" ..." if len(missing) > 10 else "")
    are = "characters are" if len(missing) > 1 else "character is"
    _say(
        f"{len(missing)} {are} in no installed font and will be drawn as boxes ({shown}). Install a font "
        f"that has them, on Debian or Ubuntu for example: apt install {' '.join(packages_for(missing))}"
    )


def _say(text: str) -> None:
    warnings.warn(text, HeadlensWarning, stacklevel=_outside())


def _outside() -> int:
    """How many calls up the user's own line is."""
    home = str(Path(__file__).parents[1])
    level, frame = 1, sys._getframe(1)
    while frame.f_back is not None and frame.f_code.co_filename.startswith(home):
        frame, level = frame.f_back, level + 1
    return level


# ---- Scripts of the world: which fonts and which drawing their characters need


CJK, EMOJI, OTHERS, ANY = "fonts-noto-cjk", "fonts-symbola", "fonts-noto-core", "fonts-noto"
_CJK = ("CJK", "HIRAGANA", "KATAKANA", "HANGUL", "BOPOMOFO", "IDEOGRAPHIC", "HALFWIDTH", "FULLWIDTH")
_SHAPED = {
    "Hebrew": (0x0590, 0x05FF),
    "Arabic": (0x0600, 0x08FF),
    "Indic": (0x0900, 0x0DFF),
    "Thai": (0x0E00, 0x0EFF),
    "Tibetan": (0x0F00, 0x0FFF),
    "Burmese": (0x1000, 0x109F),
    "Khmer": (0x1780, 0x17FF),
    "Mongolian": (0x1800, 0x18AF),
}


def packages_for(chars: Iterable[str]) -> tuple[str, ...]:
    """Name the packages of Debian and Ubuntu whose fonts have some characters, as far as can be told.

    Args:
        chars: characters.

    Returns:
        Names of packages, each once. For emoji it is a font in black and white: matplotlib cannot draw those
        in colour.
    """
    return tuple(sorted({_package(char) for char in chars}))


def han_variant(text: str) -> str:
    """Tell how a text wants its Chinese characters drawn: as in Japan, Korea or mainland China.

    Args:
        text: all that will be drawn.

    Returns:
        The end of the name of a Noto font: ``JP`` where there is kana, ``KR`` where there is hangul, else
        ``SC``.
    """
    names = {unicodedata.name(char, "").partition(" ")[0] for char in text}
    if names & {"HIRAGANA", "KATAKANA"}:
        return "JP"
    return "KR" if "HANGUL" in names else "SC"


def not_shaped(texts: Iterable[str]) -> tuple[str, ...]:
    """Name the scripts that this matplotlib would draw letter by letter, unjoined and from left to right.

    Args:
        texts: what will be drawn.

    Returns:
        Their names; none where matplotlib was built with libraqm, as it is since 3.11.
    """
    if hasattr(ft2font, "__libraqm_version__"):
        return ()
    codes = {ord(char) for text in texts for char in text}
    return tuple(
        name for name, (first, last) in _SHAPED.items() if any(first <= code <= last for code in codes)
    )


def _package(char: str) -> str:
    name, code = unicodedata.name(char, ""), ord(char)
    if name.startswith(_CJK):
        return CJK
    if 0x2000 <= code <= 0x2BFF or 0x1F000 <= code <= 0x1FAFF:
        return EMOJI
    return OTHERS if name else ANY


# ---- Figures as wide as one or two columns of a paper, with title and caption


__all__ = [
    "INSIDE",
    "ONE_COLUMN",
    "TWO_COLUMNS",
    "column",
    "count_heads",
    "head_names",
    "page",
]

INSIDE = TWO_COLUMNS - 2 * MARGIN  # inches


def page(
    title: str, caption: str, size: tuple[float, float], more: Iterable[str] = ()
) -> tuple[InchFigure, float]:
    """Make a figure of a given width around an area of a given height.

    Args:
        title: above; it says what was found.
        caption: below; it says how to read the figure.
        size: width of the figure and height of the area, in inches.
        more: other texts that the figure will show, so that its fonts have their characters.

    Returns:
        The figure, and the distance of the area from its upper edge in inches.
    """
    width, height = size
    title, caption = visible(title), visible(caption)
    families = families_for([title, caption, *more])
    title, above = wrapped(title, width - 2 * MARGIN, 9, families)
    caption, below = wrapped(caption, width - 2 * MARGIN, 7, families)
    figure = InchFigure(width, 4 * MARGIN + above + height + below, families)
    figure.write(MARGIN, MARGIN, title, 9)
    figure.write(MARGIN, 3 * MARGIN + above + height, caption, 7, color="0.25")
    return figure, 2 * MARGIN + above


def head_names(table: pd.DataFrame) -> list[str]:
    """Write the head of each row as users do: ``4.11``, with its stack where the table has several.

    Args:
        table: with the columns `stack`, `layer` and `head`.

    Returns:
        One name per row.
    """
    several = table["stack"].nunique() > 1
    return [
        f"{stack}.{layer}.{head}" if several else f"{layer}.{head}"
        for stack, layer, head in table[["stack", "layer", "head"]].itertuples(index=False)
    ]


def count_heads(table: pd.DataFrame) -> int:
    """Count the heads that a table speaks of."""
    return len(table[["stack", "layer", "head"]].drop_duplicates())


# ---- Heads in figures that can be clicked: where an SVG stands in a page, a click on a head shows it


Box = tuple[float, float, float, float]
UNSEEN = 0.001
"""The opacity of what can be clicked: no pixel shows it, but with none at all the SVG would say "no fill",
which is nothing that a pointer meets."""


def link_areas(axes: Axes, areas: Iterable[tuple[str, Box]], **options: Any) -> None:
    """Lay areas over axes that lead to heads, ``#head=2.8``, and that cannot be seen.

    Args:
        axes: the axes.
        areas: names of heads with left, bottom, width and height, in the units of the axes; a head may have
            several.
        **options: of the collection, such as another transform.
    """
    names, boxes = zip(*areas, strict=True)
    made = [Rectangle(box[:2], *box[2:]) for box in boxes]
    _lay_over(axes, PatchCollection(made, facecolor="white", edgecolor="none", **options), names)


def link_rows(axes: Axes, names: Iterable[str], reach: float) -> None:
    """The same for heads that have rows of height 1 around 0, 1, ...

    Args:
        axes: the axes.
        names: of the heads, row by row.
        reach: how far the rows go to the right, in widths of the axes: as far as what stands beside them.
    """
    areas = [(name, (0.0, row - 0.5, reach, 1.0)) for row, name in enumerate(names)]
    link_areas(axes, areas, transform=axes.get_yaxis_transform(), clip_on=False)


def link_points(axes: Axes, points: Mapping[str, tuple[float, float]]) -> None:
    """The same for heads that are drawn as points."""
    if points:
        x, y = zip(*points.values(), strict=True)
        over = axes.scatter(x, y, s=45, color="white", linewidths=0)
        over.remove()
        _lay_over(axes, over, points)


def link_lines(axes: Axes, lines: Mapping[str, list[tuple[float, float]]]) -> None:
    """The same for heads that are drawn as lines; where they lie over each other the last one is met."""
    _lay_over(axes, LineCollection(list(lines.values()), colors="white", linewidths=4), lines)


def _lay_over(axes: Axes, over: Collection, names: Iterable[str]) -> None:
    over.set(alpha=UNSEEN, zorder=9, urls=[f"#head={name}" for name in names])
    limits = axes.get_xlim(), axes.get_ylim()
    axes.add_collection(over, autolim=False)
    axes.set(xlim=limits[0], ylim=limits[1])


# ---- How each tag looks: a colour and a letter, told apart by colour-blind readers and on grey paper


@dataclass(frozen=True, slots=True)
class TagStyle:
    """The look of a tag.

    Args:
        colour: of the area.
        letter: written on it.
    """

    colour: str
    letter: str

    @property
    def ink(self) -> str:
        """The colour of the letter: black or white, whichever stands out more."""
        return "black" if luminance(self.colour) > 0.18 else "white"


def style_of(tag: str) -> TagStyle:
    """Find the look of a tag: its scorer's; where that says nothing, grey with a small letter."""
    scorer = SCORERS.get(tag, Scorer)
    return TagStyle(scorer.colour, scorer.letter or tag[:1].lower())


def in_order(tags: Iterable[str]) -> list[str]:
    """Sort tags: those that headlens has a scorer for in its order, then the others by name."""
    order = list(SCORERS)
    return sorted(set(tags), key=lambda tag: (order.index(tag) if tag in order else len(order), tag))


def luminance(colour: str) -> float:
    """Measure the relative luminance of a colour, 0..1 (WCAG 2)."""
    linear = [part / 12.92 if part <= 0.04045 else ((part + 0.055) / 1.055) ** 2.4 for part in to_rgb(colour)]
    return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]


def column(width: float, most: float | None = None) -> float:
    """Choose the width of a figure: that of one or two columns of a paper where it fits, all in inches.

    Args:
        width: what the figure needs.
        most: no column wider than this; any by default.

    Returns:
        The width of the column, or what is needed where that fits none.
    """
    columns = [one for one in (ONE_COLUMN, TWO_COLUMNS) if most is None or one <= most + 1e-9]
    return next((one for one in columns if width <= one + 1e-9), width)
