"""A map of layers and heads whose cells hold several tags side by side, and the key below it."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

from matplotlib.axes import Axes
from matplotlib.patches import Rectangle

from headlens.model.heads import STACKS, Head
from headlens.report.figures import InchFigure
from headlens.report.fonts import POINTS, text_size
from headlens.report.links import link_areas, link_name
from headlens.report.pages import ONE_COLUMN, TWO_COLUMNS, page
from headlens.report.parts import MARGIN
from headlens.report.tag_styles import style_of
from headlens.util.formatting import visible

SMALL = 6.0  # points: no text is smaller
LETTER = (0.095, 0.085)  # inches: the least room of a letter, sideways and upright
LEFT, ABOVE, HEADING, BELOW = 0.5, 0.32, 0.24, 0.12  # inches around a panel
NARROWEST, WIDEST, LOWEST, HIGHEST = 0.2, 0.52, 0.18, 0.3  # inches: a cell
TALL = 7.5  # inches: cells get lower where the maps would be higher than this
FEW_HEADS = 9  # a map of so many fits into one column
FRAME = 0.035  # inches: more room upright for a letter where some have frames
EDGE = 0.015  # inches between a cell and what it holds
KEY_LINE, SWATCH = 0.19, 0.15  # inches
Box = tuple[float, float, float, float]


@dataclass(frozen=True, slots=True)
class Tile:
    """The part of a cell that stands for one tag.

    Args:
        tag: which tag; it gives colour and letter.
        change: "gained" is framed, "lost" is empty inside a dashed frame, "kept" is plain.
    """

    tag: str
    change: Literal["kept", "gained", "lost"] = "kept"


@dataclass(frozen=True, slots=True)
class HeadMap:
    """What a map shows.

    Args:
        cells: every head of the model with its tags, in the order in which they are drawn.
        key: what stands below the map: a tile, or None for an empty cell, and what it means.
    """

    cells: Mapping[Head, Sequence[Tile]]
    key: Sequence[tuple[Tile | None, str]]

    def draw(self, title: str, caption: str) -> InchFigure:
        """Draw the map, a panel per stack.

        Args:
            title: above.
            caption: below.

        Returns:
            The figure.
        """
        stacks = [stack for stack in STACKS if any(head.stack == stack for head in self.cells)]
        heads = [[head for head in self.cells if head.stack == stack] for stack in stacks]
        n_columns = max(len({head.head for head in mine}) for mine in heads)
        width = TWO_COLUMNS if n_columns > FEW_HEADS else ONE_COLUMN
        cell = self._cell(n_columns, sum(len({head.layer for head in mine}) for mine in heads), width)
        width = max(width, LEFT + n_columns * cell[0] + 2 * MARGIN)
        heading = HEADING * (len(stacks) > 1)
        heights = [heading + ABOVE + cell[1] * len({head.layer for head in mine}) + BELOW for mine in heads]
        columns, key_width = self._key_columns(width)
        key_height = KEY_LINE * math.ceil(len(self.key) / columns)
        texts = [visible(text) for _, text in self.key]
        figure, top = page(title, caption, (width, sum(heights) + key_height), texts)
        for stack, mine, height in zip(stacks, heads, heights, strict=True):
            if heading:
                figure.write(MARGIN, top, stack, 9, fontweight="bold")
            self._panel(figure, mine, (MARGIN + LEFT, top + heading + ABOVE), cell)
            top += height
        axes = _inch_axes(figure, (MARGIN, top, width - 2 * MARGIN, key_height))
        for number, ((tile, _), text) in enumerate(zip(self.key, texts, strict=True)):
            column, row = divmod(number, math.ceil(len(self.key) / columns))
            _key_entry(figure, axes, (column * key_width, row * KEY_LINE), (tile, text))
        return figure

    def _cell(self, n_columns: int, n_rows: int, width: float) -> tuple[float, float]:
        wide = (width - 2 * MARGIN - LEFT) / n_columns
        wide = min(max(wide, NARROWEST), WIDEST)
        most = max(map(len, self.cells.values()))
        framed = any(tile.change != "kept" for tiles in self.cells.values() for tile in tiles)
        letter = LETTER[1] + FRAME * framed
        least = math.ceil(max(most, 1) / _per_row(wide)) * letter + 2 * EDGE
        return wide, max(min(HIGHEST, 0.85 * wide, TALL / n_rows), LOWEST, least)

    def _key_columns(self, width: float) -> tuple[int, float]:
        needed = SWATCH + 0.2 + text_size([text for _, text in self.key], 7.5, ["DejaVu Sans"])[0]
        columns = max(1, min(len(self.key), int((width - 2 * MARGIN) / needed)))
        return columns, needed

    def _panel(
        self, figure: InchFigure, heads: Sequence[Head], place: tuple[float, float], cell: tuple[float, float]
    ) -> None:
        rows = sorted({head.layer for head in heads})
        columns = sorted({head.head for head in heads})
        wide, high = cell
        axes = _inch_axes(figure, (*place, wide * len(columns), high * len(rows)))
        axes.set_axis_on()
        axes.spines[:].set_visible(False)
        areas: list[tuple[str, Box]] = []
        several = len({head.stack for head in self.cells}) > 1
        for head in heads:
            corner = columns.index(head.head) * wide, rows.index(head.layer) * high
            _cell(figure, axes, (*corner, wide, high), self.cells[head])
            areas.append((link_name(head, several), (*corner, wide, high)))
        link_areas(axes, areas)
        style = {"fontsize": 7, **figure.style}
        axes.set_xticks([(n + 0.5) * wide for n in range(len(columns))], list(map(str, columns)), **style)
        axes.set_yticks([(n + 0.5) * high for n in range(len(rows))], list(map(str, rows)), **style)
        axes.tick_params(length=0, pad=2, top=False, labeltop=True, labelbottom=False)
        axes.xaxis.set_label_position("top")
        axes.set_xlabel("head", labelpad=2, fontsize=8, **figure.style)
        said = "layer (0 on top)" if high * len(rows) > 1.2 and rows[0] == 0 else "layer"
        axes.set_ylabel(said, labelpad=2, fontsize=8, **figure.style)


def split(count: int, box: Box) -> list[Box]:
    """Split a cell into parts of like height, in rows from the upper left.

    Args:
        count: how many parts.
        box: left, top, width and height of the cell, in inches.

    Returns:
        Left, top, width and height of each part.
    """
    left, top, width, height = box
    n_rows = math.ceil(count / _per_row(width))
    parts = []
    for row in range(n_rows):
        mine = count // n_rows + (row < count % n_rows)
        wide, high = width / mine, height / n_rows
        parts += [(left + index * wide, top + row * high, wide, high) for index in range(mine)]
    return parts


def _per_row(width: float) -> int:
    return max(1, int((width - 2 * EDGE) / LETTER[0]))


def _inch_axes(figure: InchFigure, box: Box) -> Axes:
    """Axes whose unit is an inch, counted from the upper left corner."""
    axes = figure.place(*box)
    axes.set(xlim=(0, box[2]), ylim=(box[3], 0))
    axes.set_axis_off()
    return axes


def _cell(figure: InchFigure, axes: Axes, box: Box, tiles: Sequence[Tile]) -> None:
    left, top, width, height = box
    inner = left + EDGE, top + EDGE, width - 2 * EDGE, height - 2 * EDGE
    axes.add_patch(
        Rectangle(inner[:2], *inner[2:], facecolor="white", edgecolor="0.75", linewidth=0.4, label="cell")
    )
    for tile, part in zip(tiles, split(len(tiles), inner) if tiles else [], strict=True):
        _tile(figure, axes, part, tile)


def _tile(figure: InchFigure, axes: Axes, box: Box, tile: Tile) -> None:
    style, lost, gained = style_of(tile.tag), tile.change == "lost", tile.change == "gained"
    left, top, width, height = box
    inset = 0.01 * (lost or gained)
    patch = Rectangle(
        (left + inset, top + inset),
        width - 2 * inset,
        height - 2 * inset,
        facecolor="white" if lost else style.colour,
    )
    patch.set(
        edgecolor="black" if lost or gained else "white",
        linewidth=(1.3 if min(width, height) > 0.15 else 0.9) if gained else 0.6,
    )
    patch.set(linestyle=(0, (2, 1.5)) if lost else "solid", label=f"{tile.tag} {tile.change}")
    axes.add_patch(patch)
    points = min(max(POINTS * min(width, height) * 0.7, SMALL), 8)
    axes.text(
        left + width / 2,
        top + height / 2,
        style.letter if style.letter.isprintable() else "?",
        fontsize=points,
        color="black" if lost else style.ink,
        ha="center",
        va="center_baseline",
        **figure.style,
    )


def _key_entry(
    figure: InchFigure, axes: Axes, corner: tuple[float, float], entry: tuple[Tile | None, str]
) -> None:
    tile, text = entry
    left, top = corner
    _cell(figure, axes, (left, top, SWATCH + 0.03, KEY_LINE - 0.02), [tile] if tile else [])
    axes.text(
        left + SWATCH + 0.08, top + KEY_LINE / 2 - 0.01, text, fontsize=7.5, va="center", **figure.style
    )
