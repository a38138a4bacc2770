"""Figures of tags: the map of heads and its changes between two runs."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import pandas as pd
from matplotlib.axes import Axes
from matplotlib.patches import Rectangle

from headlens.model.heads import STACKS, Head, link_name
from headlens.report.canvas import (
    MARGIN,
    ONE_COLUMN,
    POINTS,
    TWO_COLUMNS,
    InchFigure,
    link_areas,
    page,
    style_of,
    text_size,
)
from headlens.report.score_figures import (
    MEASURE,
    best_heads,
    best_heads_figure,
    entropy_figure,
    offset_figure,
    offset_table,
)
from headlens.runs.read import at, tags_by_head
from headlens.scoring.base import Scorer
from headlens.scoring.compare import ALL, BY_TAG
from headlens.scoring.scorers import SCORERS
from headlens.util.formatting import listing, visible

if TYPE_CHECKING:
    from headlens.scoring.compare import Comparison


__all__ = [
    "best_heads_figure",
    "draw_all",
    "entropy_figure",
    "offset_figure",
    "tag_map_figure",
]


def draw_all(scores: pd.DataFrame, tags: pd.DataFrame, model: str = "") -> Iterator[tuple[str, InchFigure]]:
    """Draw every figure that the tables of a classification have the numbers for.

    Args:
        scores: columns as in `headlens.util.files.SCORES`.
        tags: columns as in `headlens.util.files.TAGS`.
        model: its name or path, for the titles; its folders are left out.

    Yields:
        The name of each figure (``tags``, ``best-syntactic``, ``offsets``, ``entropy``, ...), and the figure.
    """
    model = Path(model).name
    yield "tags", tag_map_figure(scores, tags, model)
    for tag in dict.fromkeys(scores["tag"]):
        if SCORERS.get(tag, Scorer).figure == "best" and not best_heads(scores, tag).empty:
            yield f"best-{tag}", best_heads_figure(scores, tag, model)
    if not offset_table(scores).empty:
        yield "offsets", offset_figure(scores, model)
    if scores.loc[scores["measure"] == MEASURE, "score"].notna().any():
        yield "entropy", entropy_figure(scores, model)


def draw_changes(comparison: Comparison) -> Iterator[tuple[str, InchFigure]]:
    """Draw the one figure of a comparison."""
    yield "changes", changes_figure(comparison)


# ---- The map of what every head is: layers and heads, coloured by tag


NAMED = 4  # tags that the title names


def tag_map_figure(scores: pd.DataFrame, tags: pd.DataFrame, model: str = "") -> InchFigure:
    """Draw layers and heads coloured by tag; a head with several tags shows all, the strongest first.

    Args:
        scores: columns as in `headlens.util.files.SCORES`; it says which tags were looked for.
        tags: columns as in `headlens.util.files.TAGS`, also as read from a file.
        model: its name, for the title.

    Returns:
        The figure, a panel per stack.
    """
    cells = {head: [Tile(tag) for tag in mine] for head, mine in tags_by_head(tags).items()}
    carried = [tile.tag for tiles in cells.values() for tile in tiles]
    counts = {tag: carried.count(tag) for tag in dict.fromkeys([*scores["tag"], *carried])}
    key: list[tuple[Tile | None, str]] = [
        (Tile(tag), f"{tag}: {count} head{'s' * (count != 1)}") for tag, count in counts.items()
    ]
    untagged = sum(not tiles for tiles in cells.values())
    key.append((None, f"no tag: {untagged} head{'s' * (untagged != 1)}"))
    several = sum(len(tiles) > 1 for tiles in cells.values())
    title = f"{model}: " * bool(model) + _tags_finding(counts, len(cells), several, untagged)
    caption = (
        "Rows: layers, the lowest on top; columns: heads; both count from 0. A head with several tags is "
        "split between them, from left to right and top to bottom, that with the strongest evidence first."
    )
    return HeadMap(cells, key).draw(title, caption)


def _tags_finding(counts: dict[str, int], n_heads: int, several: int, untagged: int) -> str:
    found = sorted((tag for tag in counts if counts[tag]), key=lambda tag: -counts[tag])
    if not found:
        return f"None of {n_heads} heads carries a tag"
    first, *others = found[:NAMED]
    are = "is" if counts[first] == 1 else "are"
    parts = [f"{counts[first]:,} of {n_heads:,} heads {are} tagged {first}"]
    parts += [f"{counts[tag]:,} {tag}" for tag in others]
    rest = len(found) - NAMED
    more = f", {rest} more tag{'s' * (rest > 1)} on fewer" if rest > 0 else ""
    carry = "carries" if several == 1 else "carry"
    return f"{listing(parts)}{more}; {several or 'none'} {carry} several tags, {untagged or 'none'} no tag"


# ---- A map of layers and heads whose cells hold several tags side by side, and the key below it


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


# ---- The map of what changed between two runs of classify


CAPTION = (
    "Rows: layers, the lowest on top; columns: heads; both count from 0. A cell shows the tags that its head "
    "carries in either run: plain where in both, framed where only in the second, empty with a dashed frame "
    "where only in the first. "
)


def changes_figure(comparison: Comparison) -> InchFigure:
    """Draw which head kept, gained or lost which tag.

    Args:
        comparison: of two runs.

    Returns:
        The figure, a panel per stack.
    """
    by_tag = comparison.by_tag.dropna(subset=["both"]).astype(dict.fromkeys(BY_TAG[1:-1], int))
    shared = [tag for tag in by_tag["tag"] if tag != ALL]
    heads = comparison.heads
    named = heads[["stack", "layer", "head"]].itertuples(index=False, name=None)
    tags = heads[["first", "second"]].to_numpy(str).tolist()
    cells = {Head(*head): _tiles(mine, shared) for head, mine in zip(named, tags, strict=True)}
    rows: list[Any] = list(by_tag[by_tag["tag"] != ALL].itertuples())
    key: list[tuple[Tile | None, str]] = [
        (
            Tile(row.tag),
            f"{row.tag}: {row.both} kept, {row.gained} gained, {row.lost} lost, {_said(row.kappa)}",
        )
        for row in rows
    ]
    key += [(Tile("", "gained"), "only in the second run"), (Tile("", "lost"), "only in the first run")]
    names = f"First run: {_named(comparison, 0)}; second: {_named(comparison, 1)}."
    left_out = [tag for tag in comparison.by_tag["tag"] if tag not in by_tag["tag"].tolist()]
    if left_out:
        names += f" Only one run looked for {', '.join(left_out)}: left out."
    return HeadMap(cells, key).draw(_changes_finding(comparison.heads, by_tag), CAPTION + names)


def _tiles(tags: Sequence[str], shared: Sequence[str]) -> list[Tile]:
    first, second = (text.split(";") for text in tags)
    tiles = [Tile(tag, "kept" if tag in second else "lost") for tag in first if tag in shared]
    return tiles + [Tile(tag, "gained") for tag in second if tag in shared and tag not in first]


def _changes_finding(heads: pd.DataFrame, by_tag: pd.DataFrame) -> str:
    changed = int(((heads["gained"] != "") | (heads["lost"] != "")).sum())
    every = by_tag[by_tag["tag"] == ALL]
    if every.empty:
        return "The two runs looked for different tags"
    row = every.iloc[0]
    who, whose = f"{changed:,}" if changed else "None", "its" if changed < 2 else "their"
    return (
        f"{who} of {len(heads):,} heads changed {whose} tags; tags "
        f"gained: {row['gained']:,}, lost: {row['lost']:,}, kept: {row['both']:,}, {_said(row['kappa'])}"
    )


def _said(kappa: float) -> str:
    return "kappa not defined" if math.isnan(kappa) else f"kappa {round(kappa, 2) + 0.0:.2f}"  # never -0.00


def _named(comparison: Comparison, number: int) -> str:
    path = str(at(comparison.run, ("first", "second")[number], default=""))
    models: Sequence[str] = at(comparison.run, "models", default=("", ""))
    return f"{Path(path).name or path}{f' ({models[number]})' if models[number] else ''}"
