"""How each tag looks: a colour and a letter, told apart by colour-blind readers and on grey paper."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from matplotlib.colors import to_rgb


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


STYLES: Mapping[str, TagStyle] = {
    "positional": TagStyle("#332288", "P"),
    "delimiter": TagStyle("#DDCC77", "D"),
    "syntactic": TagStyle("#117733", "S"),
    "coreference": TagStyle("#CC6677", "C"),
    "semantic": TagStyle("#88CCEE", "M"),
    "induction": TagStyle("#882255", "I"),
    "duplicate-token": TagStyle("#AA4499", "U"),
    "rare-token": TagStyle("#999933", "R"),
    "broad": TagStyle("#44AA99", "B"),
}
"""The nine colours of Paul Tol's scheme "muted", and the tag's initial (M for meaning, U for duplicate)."""


def style_of(tag: str) -> TagStyle:
    """Find the look of a tag; one that headlens does not know is grey with a small letter."""
    return STYLES.get(tag, TagStyle("#BBBBBB", tag[:1].lower()))


def luminance(colour: str) -> float:
    """Measure the relative luminance of a colour, 0..1 (WCAG 2)."""
    linear = [part / 12.92 if part <= 0.04045 else ((part + 0.055) / 1.055) ** 2.4 for part in to_rgb(colour)]
    return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]
