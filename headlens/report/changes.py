"""The map of what changed between two runs of classify."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import pandas as pd

from headlens.model.heads import Head
from headlens.report.figures import InchFigure
from headlens.report.head_map import HeadMap, Tile
from headlens.scoring.compare import ALL

if TYPE_CHECKING:
    from headlens.scoring.compare import Comparison

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
    by_tag = comparison.by_tag.dropna(subset=["both"])
    shared = [tag for tag in by_tag["tag"] if tag != ALL]
    cells = {
        Head(*head): _tiles(tags, shared)
        for head, tags in zip(
            comparison.first.heads, comparison.heads[["first", "second"]].to_numpy(str).tolist(), strict=True
        )
    }
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
    return HeadMap(cells, key).draw(_finding(comparison.heads, by_tag), CAPTION + names)


def _tiles(tags: Sequence[str], shared: Sequence[str]) -> list[Tile]:
    first, second = (text.split(";") for text in tags)
    tiles = [Tile(tag, "kept" if tag in second else "lost") for tag in first if tag in shared]
    return tiles + [Tile(tag, "gained") for tag in second if tag in shared and tag not in first]


def _finding(heads: pd.DataFrame, by_tag: pd.DataFrame) -> str:
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
    run = (comparison.first, comparison.second)[number]
    return f"{run.path.name or run.path}{f' ({run.model})' if run.model else ''}"
