"""``headlens report``: one page from finished runs."""

from __future__ import annotations

from pathlib import Path

import click

from headlens.cli.options import debug_option, say


@click.command(
    epilog="Examples:  headlens report runs/minilm --out report.html  |  "
    "headlens report runs/minilm runs/minilm-each runs/minilm-pruning --out all.html"
)
@click.argument("runs", nargs=-1, required=True, type=click.Path(path_type=Path), metavar="RUN...")
@click.option("--out", required=True, type=click.Path(path_type=Path), metavar="FILE.html", help="The page.")
@debug_option
def command(runs: tuple[Path, ...], out: Path) -> None:
    """Join finished runs of classify, ablate, similar, contributions and compare into one page.

    The page needs no network and no other file: it holds the figures, sortable tables, the CSV files to
    download, and the attention of every head on a few examples.
    """
    from headlens.report.artist import write_report

    if out.suffix.lower() not in (".html", ".htm"):
        raise click.BadParameter(f"expected a file that ends in .html, found {out.name}", param_hint="--out")
    write_report(runs, out)
    say(f"Wrote {out}: {len(runs)} run{'s' * (len(runs) != 1)}.")
