"""What draws results: figures and pages lie above the rooms that they show, so the roof plugs them in."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

if TYPE_CHECKING:
    from matplotlib.figure import Figure


class Artist(Protocol):
    """What `headlens.report.artist` can do."""

    def figures(self, result: Any) -> Iterator[tuple[str, Figure]]:
        """Draw every figure that a result has the numbers for, with their names, the most telling first."""

    def save_figures(self, result: Any, out: Path) -> None:
        """Write them into a run directory, and remove those of an earlier run."""

    def save_examples(self, result: Any, out: Path) -> None:
        """Write the attention on a few inputs into a run directory, where there are any."""

    def write_report(self, runs: Sequence[Path], out: Path) -> None:
        """Write one page about finished runs."""

    def html(self, result: Any) -> str:
        """Show a result in a notebook."""

    def map_contributions(self, found: Any, measure: str, per_token: bool, title: str | None) -> Figure:
        """Draw what heads write for one input."""

    def save_contributions(self, found: Any, path: Path, measure: str, per_token: bool) -> None:
        """Write it into a table or a picture."""

    def map_attention(self, maps: Any, title: str | None, width: float | None) -> Figure:
        """Draw the attention of one input."""

    def attention_page(self, maps: Any, marks: Any, start: Mapping[str, Any]) -> str:
        """Write an interactive page of it."""

    def save_attention(self, maps: Any, path: Path, width: float | None) -> None:
        """Write it into a page, a table or a picture."""

    def in_frame(self, page: str) -> str:
        """Show a page in a notebook."""

    def png(self, figure: Figure) -> bytes:
        """Show a figure in a notebook."""


_plugged: list[Callable[[], Artist]] = []


def draw_with(plug: Callable[[], Artist]) -> None:
    """Say what draws.

    Args:
        plug: called when something is drawn, so that nothing is imported before.
    """
    _plugged[:] = [plug]


def artist() -> Artist:
    """Get what draws."""
    return _plugged[0]()
