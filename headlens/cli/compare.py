"""``headlens compare``: what changed between two runs of classify."""

from __future__ import annotations

import math
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from headlens.cli.options import debug_option, say

if TYPE_CHECKING:
    from headlens.scoring.compare import Comparison

SHOWN = 12  # heads that are named on the screen
TABLES = ("compare_heads.csv", "compare_tags.csv", "compare_scores.csv")
FIGURES = ("figures/changes.png", "figures/changes.svg")


@click.command(
    epilog="Examples:  headlens compare runs/minilm runs/gum --out runs/compared  |  "
    "headlens compare runs/seed-0 runs/seed-1"
)
@click.argument("first", metavar="RUN", type=click.Path(path_type=Path))
@click.argument("second", metavar="RUN", type=click.Path(path_type=Path))
@click.option("--out", type=click.Path(path_type=Path), help="Directory for tables and a figure.")
@debug_option
def command(first: Path, second: Path, out: Path | None) -> None:
    """Compare two runs of classify: who gained or lost a tag, and how well the scores agree.

    Each RUN is the --out of a headlens classify, of the same model or of one with as many layers and heads.
    With --out, writes compare_heads.csv, compare_tags.csv, compare_scores.csv, figures/changes, run.json and
    report.html.
    """
    from headlens.runs.record import prepare
    from headlens.scoring.classify import Classification
    from headlens.scoring.compare import compare

    if out is not None:
        click.get_current_context().with_resource(prepare(out, "compare"))
    comparison = compare(Classification.read(first), Classification.read(second))
    if out is not None:
        comparison.save(out)
    say(summary(comparison))
    if out is not None:
        say(f"\nWrote report.html, {', '.join(TABLES + FIGURES)} and run.json to {out}.")


def summary(comparison: Comparison) -> str:
    """Say what changed, in a short table.

    Args:
        comparison: what to say.

    Returns:
        A line per tag, the correlations of their scores, and the heads that changed.
    """
    import pandas as pd

    median = comparison.by_measure.groupby("tag")["spearman"].median()
    lines = [f"{'tag':<16}{'first':>6}{'second':>8}{'both':>6}{'gained':>8}{'lost':>6}{'kappa':>8}{'rho':>8}"]
    rows: list[Any] = list(comparison.by_tag.itertuples())
    for row in rows:
        counts = (row.first, row.second, row.both, row.gained, row.lost)
        cells = ["-" if pd.isna(count) else str(count) for count in counts]
        rho = float(median.get(row.tag, math.nan))
        lines.append(
            f"{row.tag:<16}{cells[0]:>6}{cells[1]:>8}{cells[2]:>6}{cells[3]:>8}{cells[4]:>6}"
            f"{_share(row.kappa):>8}{_share(rho):>8}"
        )
    n_heads = len(comparison.heads)
    lines.append(f"of {n_heads:,} heads. rho: median Spearman correlation over heads of the tag's scores.")
    return "\n".join([*lines, *comparison.run["notes"], *_changes(comparison)])


def _share(value: float) -> str:
    return "-" if math.isnan(value) else f"{round(value, 2) + 0.0:.2f}"  # never -0.00


def _changes(comparison: Comparison) -> list[str]:
    """The heads that changed, each with what it gained and lost."""
    from headlens.report.canvas import head_names

    heads = comparison.heads.assign(name=head_names(comparison.heads))
    changed = heads[(heads["gained"] != "") | (heads["lost"] != "")]
    lines = []
    for name, gained, lost in changed[["name", "gained", "lost"]].head(SHOWN).to_numpy(str).tolist():
        signed = [f"+{tag}" for tag in gained.split(";") if tag] + [
            f"-{tag}" for tag in lost.split(";") if tag
        ]
        lines.append(f"  {name:<14}{' '.join(signed)}")
    if not lines:
        return ["No head gained or lost a tag."]
    more = len(changed) - SHOWN
    return ["Gained (+) or lost (-):", *lines, *([f"  and {more} more heads"] if more > 0 else [])]
