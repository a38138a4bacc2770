"""How heads look in the figures of ``headlens similar``: by their strongest tag, else by their cluster."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import pandas as pd
from matplotlib.patches import Rectangle
from numpy.typing import NDArray

from headlens.report.figures import InchFigure
from headlens.report.fonts import text_size
from headlens.report.pages import listing
from headlens.report.parts import MARGIN
from headlens.report.tag_styles import STYLES, TagStyle, style_of

UNTAGGED = TagStyle("#E4E4E4", "")
LINE, SWATCH, SIZE = 0.19, 0.15, 7.5  # inches, inches, points
NAMED = 4  # clusters whose sizes are named


@dataclass(frozen=True, slots=True)
class Looks:
    """The look of every head, and the key.

    Args:
        of_heads: the look of each head, in model order.
        by_tag: whether it shows the strongest tag; else it shows the cluster.
        key: looks and what they mean.
    """

    of_heads: Sequence[TagStyle]
    by_tag: bool
    key: Sequence[tuple[TagStyle, str]]

    @classmethod
    def make(cls, heads: pd.DataFrame) -> Looks:
        """Choose the looks.

        Args:
            heads: rows of `headlens.similar.similar.CLUSTERS` of one stack, in model order.

        Returns:
            Tags where there are any, and only those in the key.
        """
        if not heads["tags"].any():
            colours = [style.colour for style in STYLES.values()]
            numbers = [TagStyle(colours[n % len(colours)], str(n)) for n in heads["cluster"].astype(int)]
            return cls(numbers, False, [])
        tags = [str(cell).partition(";")[0] for cell in heads["tags"]]
        counts = {tag: tags.count(tag) for tag in dict.fromkeys([*STYLES, *tags]) if tag and tag in tags}
        key = [(style_of(tag), f"{tag}: {_heads(count)}") for tag, count in counts.items()]
        if "" in tags:
            key.append((UNTAGGED, f"no tag: {_heads(tags.count(''))}"))
        return cls([style_of(tag) if tag else UNTAGGED for tag in tags], True, key)

    def key_height(self, width: float) -> float:
        """Measure the key of a figure of some width, in inches."""
        return LINE * math.ceil(len(self.key) / self._columns(width)[0]) if self.key else 0.0

    def draw_key(self, figure: InchFigure, top: float, width: float) -> None:
        """Draw the key."""
        if not self.key:
            return
        columns, wide = self._columns(width)
        rows = math.ceil(len(self.key) / columns)
        box = (MARGIN, top, width - 2 * MARGIN, rows * LINE)
        axes = figure.place(*box)
        axes.set(xlim=(0, box[2]), ylim=(box[3], 0))
        axes.set_axis_off()
        for number, (look, text) in enumerate(self.key):
            column, row = divmod(number, rows)
            left, middle = column * wide, (row + 0.5) * LINE
            axes.add_patch(Rectangle((left, middle - SWATCH / 2), SWATCH, SWATCH, facecolor=look.colour))
            axes.text(
                left + SWATCH / 2, middle, look.letter, fontsize=6, color=look.ink, ha="center",
                va="center_baseline", **figure.style,
            )  # fmt: skip
            axes.text(left + SWATCH + 0.05, middle, text, fontsize=SIZE, va="center_baseline", **figure.style)

    def _columns(self, width: float) -> tuple[int, float]:
        needed = SWATCH + 0.2 + text_size([text for _, text in self.key], SIZE, ["DejaVu Sans"])[0]
        return max(1, min(len(self.key), int((width - 2 * MARGIN) / needed))), needed


def finding(matrix: NDArray[np.float64], heads: pd.DataFrame, names: Sequence[str]) -> str:
    """Say how many clusters there are, how large, and which heads are closest.

    Args:
        matrix: divergences [head, head].
        heads: rows of `headlens.similar.similar.CLUSTERS` of one stack, in model order.
        names: of the heads.

    Returns:
        A title.
    """
    sizes = sorted(heads["cluster"].value_counts().tolist(), reverse=True)
    into = f"{len(sizes)} clusters ({sizes_told(sizes)})" if len(sizes) > 1 else "one cluster"
    first, second = np.triu_indices(len(matrix), 1)
    near = int(matrix[first, second].argmin())
    one, other = int(first[near]), int(second[near])
    return (
        f"{len(heads):,} heads fall into {into} by what they look at; the closest are {names[one]} and "
        f"{names[other]} ({matrix[one, other]:.3f} nats)"
    )


def sizes_told(sizes: Sequence[int]) -> str:
    """Write the sizes of clusters, largest first: ``71 and 1 heads``."""
    told = [f"{size:,}" for size in sizes[:NAMED]]
    if len(sizes) > NAMED:
        told.append(f"{len(sizes) - NAMED} smaller ones")
        return listing(told)
    return f"{listing(told)} heads"


def _heads(count: int) -> str:
    return f"{count:,} head{'s' * (count != 1)}"
