"""What headlens costs: ratios of CPU time against plain passes, plain loops and other tools, and memory.

Each ratio comes from one run, the things compared taking turns, and is one of the least times. With one
thread, the default, it is the time of this process that counts, so other programs on the machine matter
little. TransformerLens and BertViz take part where they are installed.
"""

from __future__ import annotations

import time
import warnings
from collections.abc import Callable, Mapping
from pathlib import Path
from tempfile import TemporaryDirectory

import click
import pandas as pd
import torch
from measure.ablation import ablation, screening
from measure.capture import capture
from measure.classify import whole
from measure.figure import draw
from measure.long import long
from measure.memory import memory
from measure.scoring import scoring
from measure.setting import Setting
from measure.similar import similar
from measure.timing import Row
from measure.view import view
from transformers.utils import logging

PARTS: Mapping[str, Callable[[Setting], list[Row]]] = {
    "capture": capture,
    "scoring": scoring,
    "classify": whole,
    "view": view,
    "ablation": ablation,
    "screening": screening,
    "similar": similar,
    "long": long,
    "memory": memory,
}


@click.command(context_settings={"help_option_names": ["-h", "--help"]})
@click.option("--model", default="minilm", show_default=True, help="What headlens.load takes.")
@click.option("--corpus", type=click.Path(path_type=Path), help="[default: the bundled English sample]")
@click.option("--part", "parts", multiple=True, type=click.Choice(list(PARTS)), help="[default: all of them]")
@click.option("--threads", default=1, show_default=True, help="More than one: wall time, not CPU time.")
@click.option("--rounds", default=3, show_default=True, help="Turns that each thing compared gets.")
@click.option("--layers", default=2, show_default=True, help="Of the model that reads long inputs.")
@click.option("--small", is_flag=True, help="A tiny form of everything: its numbers mean nothing.")
@click.option("--out", type=click.Path(path_type=Path), default=Path("reports/performance.csv"))
def main(
    model: str,
    corpus: Path | None,
    parts: tuple[str, ...],
    threads: int,
    rounds: int,
    layers: int,
    small: bool,
    out: Path,
) -> None:
    """Measure what headlens costs, and write a table and beside it a figure of the ratios in it."""
    torch.set_num_threads(threads)
    logging.set_verbosity_error()
    logging.disable_progress_bar()
    warnings.simplefilter("ignore")
    rows: list[Row] = []
    with TemporaryDirectory() as folder:
        setting = Setting(Path(folder), model, corpus, rounds, layers, small)
        for name in parts or PARTS:
            start = time.perf_counter()
            click.echo(f"{name} ...", err=True)
            rows += PARTS[name](setting)
            click.echo(f"{name}: {time.perf_counter() - start:.0f} s", err=True)
    table = pd.DataFrame(rows)
    click.echo(table.to_string(index=False, float_format="{:.2f}".format))
    out.parent.mkdir(parents=True, exist_ok=True)
    table.to_csv(out, index=False, float_format="%.4g", lineterminator="\n")
    draw(table, out.with_suffix(".svg"))
    click.echo(f"\nWrote {out} and {out.with_suffix('.svg')}.")


if __name__ == "__main__":
    main()
