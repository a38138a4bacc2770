"""``headlens similar``: which heads do the same."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import click

from headlens.cli.options import (
    Command,
    CorpusPath,
    ModelOptions,
    corpus_options,
    model_options,
    names,
    out_directory,
    said,
    say,
    say_read,
    spoken_warnings,
)

if TYPE_CHECKING:
    from headlens.similarity.similar import Similarity


@click.command(
    cls=Command,
    writes="directory",
    reported=True,
    epilog="Examples:  headlens similar minilm --out runs/similar  |  "
    "headlens similar ./my-bert --text a.txt --smoothing 0.001 --clusters 8 --out runs/similar  |  "
    "headlens similar minilm --tags runs/classify --heads 2.*,3.* --out runs/similar",
)
@click.argument("model")
@click.option(
    "--text",
    "texts",
    multiple=True,
    type=CorpusPath(),
    help="File, folder or dataset: plain text, or whatever classify reads as a corpus; several are read as "
    "one.  [default: the bundled English sample]",
)
@corpus_options
@click.option("--heads", metavar="SEL", help="Compare only these, such as 2.8,3.*  [default: all]")
@click.option(
    "--smoothing",
    type=click.FloatRange(0, 1, max_open=True),
    default=0.0,
    show_default=True,
    metavar="S",
    help="Mix every row with the uniform row: (1 - S) A + S / n. Clark et al. 2019 took 0.001.",
)
@click.option(
    "--clusters",
    type=click.IntRange(1),
    metavar="K",
    help="How many clusters.  [default: 2 to 20, those with the best mean silhouette]",
)
@click.option(
    "--tags",
    metavar="RUN",
    type=click.Path(path_type=Path),
    help="A finished headlens classify of this model: its tags are shown beside the clusters.",
)
@out_directory
@model_options
def command(
    model: str,
    texts: tuple[Path | str, ...],
    columns: str | None,
    max_sentences: int | None,
    heads: str | None,
    smoothing: float,
    clusters: int | None,
    tags: Path | None,
    out: Path,
    options: ModelOptions,
) -> None:
    """Compare all pairs of heads of MODEL: what they look at, what they write, and how they cluster.

    Writes distances.csv (every pair: Jensen-Shannon divergence in nats, and linear CKA of the outputs),
    clusters.csv (every head: cluster, place in a plane, nearest head), figures/, report.html and run.json.
    Of encoder-decoder models the encoder's heads are compared.
    """
    from headlens.corpus.read import read_corpus
    from headlens.runs import record as runs
    from headlens.scoring.passes import RunOptions
    from headlens.similarity.similar import SimilarOptions, similar

    clock = runs.Clock.start()
    click.get_current_context().with_resource(runs.prepare(out, "similar"))
    corpus = read_corpus(texts or None, None, names(columns), max_sentences)
    say_read(corpus)
    lens = options.load(model)
    with spoken_warnings():
        found = similar(
            lens,
            corpus,
            options=SimilarOptions(heads, smoothing, clusters, tags),
            reading=RunOptions(options.batch_size, options.max_length, quiet=options.quiet),
        )
    found = found.noting(options=said(), wall_seconds=clock.seconds)
    found.write(out)
    if not texts:
        say("No --text was given: these are results for the small English sample of headlens.", err=True)
    say(summary(found))
    found.show(out)
    say(
        f"\nWrote {out / 'report.html'}, {out / 'distances.csv'}, {out / 'clusters.csv'}, {out / 'run.json'} "
        f"and {out / 'figures'}."
    )


def summary(found: Similarity) -> str:
    """Say in a few lines how the heads cluster, and which are closest."""
    from headlens.similarity.similar import findings

    lines = list(map(str, findings(found)))
    read, corpus = found.run["inputs"]["sentences"], found.run["corpus"]
    left = sum(read["left_out"].values())
    more = f", {left:,} left out" if left else ""
    lines.append(f"Read: {read['read']:,} of {corpus['sentences']:,} sentences{more}.")
    return "\n".join([*lines, *found.run["notes"], "Layers and heads count from 0."])
