"""``headlens classify``: what every head looks at, with evidence."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import click

from headlens.cli.options import ModelOptions, model_options

if TYPE_CHECKING:
    from headlens.classification import Classification
    from headlens.lens import Lens


@click.command(
    epilog="Examples:  headlens classify minilm --out runs/minilm  |  "
    "headlens classify ./my-bert --corpus en_gum-ud-dev.conllu --tags syntactic,coreference --out runs/gum"
)
@click.argument("model")
@click.option(
    "--corpus",
    "corpora",
    multiple=True,
    type=click.Path(path_type=Path),
    help="CoNLL-U file with trees, and Entity marks for coreference; several are read as one.  "
    "[default: the bundled English sample]",
)
@click.option("--tags", help="Which tags to look for, joined by commas.  [default: all the corpus allows]")
@click.option(
    "--margin",
    "margins",
    multiple=True,
    metavar="NAME=SHARE",
    help="Ask for more or less than the default, such as syntactic=0.05 or first-token=0.5.",
)
@click.option(
    "--min-n", type=click.IntRange(2), default=30, show_default=True, help="Decisions a test rests on."
)
@click.option("--block-size", type=click.IntRange(1), help="Queries at once; changes memory, not scores.")
@click.option("--out", type=click.Path(path_type=Path), required=True, help="Directory for the results.")
@model_options
def command(
    model: str,
    corpora: tuple[Path, ...],
    tags: str | None,
    margins: tuple[str, ...],
    min_n: int,
    block_size: int | None,
    out: Path,
    options: ModelOptions,
) -> None:
    """Score every head of MODEL on a corpus, and tag those whose scores are evidence.

    Writes scores.csv (every measure of every head, with baseline, interval and q-value), tags.csv (the
    tags of each head) and run.json (everything needed to do it again).
    """
    from headlens import runs
    from headlens.classification import Reading, classify, read_corpus
    from headlens.evidence import Settings

    clock = runs.Clock.start()
    shares = _margins(margins)
    runs.prepare(out)
    corpus = read_corpus(corpora or None)  # a broken file is told before a large model is loaded
    lens = options.load(model)
    reading = Reading(options.batch_size, options.max_length, block_size, quiet=options.quiet)
    wanted = [tag.strip() for tag in tags.split(",")] if tags else None
    found = classify(
        lens,
        corpus,
        wanted,
        margins=shares,
        settings=Settings(min_n=min_n, seed=options.seed),
        reading=reading,
    )
    told = {"corpus": [str(path) for path in corpora] or "bundled sample", "tags": tags, "out": str(out)}
    save(out, found, runs.record("classify", lens, {**told, "model_options": options}, found.facts, clock))
    if not corpora:
        click.echo(
            "No --corpus was given: these are results for the small English sample of headlens.", err=True
        )
    click.echo(summary(lens, found))
    click.echo(f"\nWrote {out / 'tags.csv'}, {out / 'scores.csv'} and {out / 'run.json'}.")


def save(out: Path, found: Classification, run: dict[str, object]) -> None:
    """Write the tables and the record of a run."""
    from headlens import runs, tables

    tables.write_csv(found.scores, out / "scores.csv", tables.SCORES)
    tables.write_csv(found.tags, out / "tags.csv", tables.TAGS)
    runs.save(out, run)


def summary(lens: Lens, found: Classification, strongest: int = 3) -> str:
    """Say in a few lines how many heads carry each tag, and which carry it most clearly."""
    from headlens.heads import Head

    scores = found.scores
    lines = [f"{'tag':<14}{'heads':>6}   strongest"]
    for tag in dict.fromkeys(scores["tag"]):
        proven = scores[(scores["tag"] == tag) & scores["tagged"]].sort_values(
            "ci_low", ascending=False, kind="stable"
        )
        best = proven.drop_duplicates(["stack", "layer", "head"])
        examples = ", ".join(
            f"{lens.anatomy.name(Head(row.stack, row.layer, row.head))} {row.measure} {row.score:.2f} "
            f"(baseline {row.baseline:.2f})"
            for row in best.head(strongest).itertuples()
        )
        lines.append(f"{tag:<14}{len(best):>6}   {examples or '-'}")
    corpus = found.facts["corpus"]
    lines.append(
        f"of {len(lens.anatomy.heads)} heads, on {corpus['sentences']:,} sentences "
        f"({corpus['words']:,} words). Layers and heads count from 0."
    )
    return "\n".join(lines)


def _margins(given: tuple[str, ...]) -> dict[str, float]:
    shares = {}
    for text in given:
        name, _, share = text.partition("=")
        try:
            shares[name.strip()] = float(share)
        except ValueError:
            raise click.BadParameter(f"expected NAME=SHARE such as syntactic=0.05, found {text!r}") from None
    return shares
