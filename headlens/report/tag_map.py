"""The map of what every head is: layers and heads, coloured by tag."""

from __future__ import annotations

import pandas as pd

from headlens.model.heads import Head
from headlens.report.figures import InchFigure
from headlens.report.head_map import HeadMap, Tile
from headlens.report.pages import listing

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
    title = f"{model}: " * bool(model) + _finding(counts, len(cells), several, untagged)
    caption = (
        "Rows: layers, the lowest on top; columns: heads; both count from 0. A head with several tags is "
        "split between them, from left to right and top to bottom, that with the strongest evidence first."
    )
    return HeadMap(cells, key).draw(title, caption)


def tags_by_head(tags: pd.DataFrame) -> dict[Head, tuple[str, ...]]:
    """Read the column `tags`.

    Args:
        tags: columns as in `headlens.util.files.TAGS`, also as read from a file.

    Returns:
        Every head's tags, strongest first.
    """
    columns = (tags["stack"], tags["layer"], tags["head"], tags["tags"].astype(object).fillna(""))
    return {
        Head(str(stack), int(layer), int(head)): tuple(filter(None, str(mine).split(";")))
        for stack, layer, head, mine in zip(*columns, strict=True)
    }


def _finding(counts: dict[str, int], n_heads: int, several: int, untagged: int) -> str:
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
