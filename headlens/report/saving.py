"""The attention of one input as a file, whose ending says of what kind."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from headlens.report.endings import view_ending
from headlens.util.files import write_bytes, write_csv

if TYPE_CHECKING:
    from headlens.view.maps import AttentionMaps


def save(maps: AttentionMaps, path: str | Path, width: float | None = None) -> None:
    """See `AttentionMaps.save`."""
    ending = view_ending(path)
    if ending == ".csv":
        write_csv(maps.to_frame(), Path(path))
    elif ending == ".html":
        maps.to_html(path)
    else:
        from headlens.report.figures import figure_bytes

        write_bytes(figure_bytes(maps.heatmap(width=width), ending), Path(path))
