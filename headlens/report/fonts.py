"""Fonts that have the characters of a text, and how much room a text takes."""

from __future__ import annotations

import sys
import warnings
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from functools import cache, lru_cache
from pathlib import Path
from typing import Any

import matplotlib
from matplotlib import font_manager
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure
from matplotlib.ft2font import FT2Font

from headlens.report.scripts import han_variant, not_shaped, packages_for

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
