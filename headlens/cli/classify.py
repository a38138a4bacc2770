"""``headlens classify``: what every head looks at, with evidence."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from headlens.cli.check import checked
from headlens.cli.options import (
    Command,
    ComposedOption,
    CorpusPath,
    EngineOptions,
    ModelOptions,
    corpus_options,
    engine_options,
    model_options,
    names,
    out_directory,
    said,
    say,
    say_read,
)

if TYPE_CHECKING:
    from headlens.model.lens import Lens
    from headlens.scoring.classify import Classification


def _known_tags(_: click.Context, __: click.Parameter, tags: str | None) -> str | None:
    """Refuse tags that there are not, before a large model is loaded or anything else is run."""
    from headlens.scoring.classify import check_tags

    if tags is not None and not names(tags):
        raise click.BadParameter("names no tag", param_hint="--tags")
    check_tags(names(tags))
    return tags


def _known_margins(_: click.Context, __: click.Parameter, margins: tuple[str, ...]) -> tuple[str, ...]:
    """The same of margins."""
    from headlens.scoring.evidence import margins_in_force

    margins_in_force(_margins(margins))
    return margins


def _tags(anywhere: bool = False) -> str:
    """All tags, or those that need no sentences, for help."""
    from headlens.scoring.scorers import SCORERS
    from headlens.util.formatting import listing

    tags = [tag for tag, scorer in SCORERS.items() if scorer.anywhere or not anywhere]
    return listing(tags) if anywhere else ", ".join(tags)


def _margins(given: tuple[str, ...]) -> dict[str, float]:
    shares = {}
    for text in given:
        name, _, share = text.partition("=")
        try:
            shares[name.strip()] = float(share)
        except ValueError:
            raise click.BadParameter(f"expected NAME=SHARE such as syntactic=0.05, found {text!r}") from None
    return shares


@click.command(
    cls=Command,
    writes="directory",
    reported=True,
    epilog="Examples:  headlens classify minilm --out runs/minilm  |  "
    "headlens classify ./my-bert --corpus dev.conllu --tags syntactic,coreference --out runs/dev  |  "
    "headlens classify gpt2 --tags induction,duplicate-token --out runs/gpt2",
)
@click.argument("model")
@click.option(
    "--corpus",
    "corpora",
    multiple=True,
    type=CorpusPath(),
    help="File or folder: CoNLL-U with trees (and Entity marks for coreference), CoNLL-2012, LitBank, or "
    "plain text; or a dataset, hub:DATASET[:CONFIG[:SPLIT]], of the hub or a folder; several are read as "
    "one.  [default: the bundled English sample]",
)
@corpus_options
@click.option(
    "--parser", metavar="spacy:NAME", help="Parse plain text with this spaCy pipeline (silver trees)."
)
@click.option(
    "--tags",
    callback=_known_tags,
    cls=ComposedOption,
    help_of=lambda: f"Which tags to look for, joined by commas: {_tags()}.  [default: all the corpus allows]",
)
@click.option(
    "--inputs",
    type=click.Choice(["sentences", "documents"]),
    default="sentences",
    show_default=True,
    cls=ComposedOption,
    help_of=lambda: (
        f"documents: score {_tags(anywhere=True)} heads on whole documents, as many sentences at once as "
        "--max-length lets in; other tags read what they always read."
    ),
)
@click.option(
    "--lens",
    "measure",
    type=click.Choice(["weights", "norms"]),
    default="weights",
    show_default=True,
    help="norms: score what keys hand over, |weight x f(key)|, rows scaled to 1 (Kobayashi et al. 2020).",
)
@click.option(
    "--relations",
    type=click.Path(path_type=Path),
    help="Related words for semantic heads, two to a line with a tab between.  [default: the nearest "
    "neighbours in the model's input embeddings]",
)
@click.option(
    "--frequencies",
    type=click.Path(path_type=Path),
    help="Words and their frequencies for rare-token heads, with a tab between.  [default: from the corpus]",
)
@click.option(
    "--targets",
    type=click.Path(path_type=Path),
    help="For encoder-decoder models: what the decoder writes for each sentence of the corpus, a treebank or "
    "plain text by lines.  [default: only the encoder is scored]",
)
@click.option(
    "--margin",
    "margins",
    multiple=True,
    callback=_known_margins,
    metavar="NAME=SHARE",
    help="Ask for more or less than the default, such as syntactic=0.05 or first-token=0.5.",
)
@click.option(
    "--min-n", type=click.IntRange(2), default=30, show_default=True, help="Decisions a test rests on."
)
@click.option("--block-size", type=click.IntRange(1), help="Queries at once; changes memory, not scores.")
@out_directory
@engine_options
@model_options
def command(
    model: str,
    corpora: tuple[Path | str, ...],
    columns: str | None,
    max_sentences: int | None,
    parser: str | None,
    tags: str | None,
    inputs: str,
    measure: str,
    relations: Path | None,
    frequencies: Path | None,
    targets: Path | None,
    margins: tuple[str, ...],
    min_n: int,
    block_size: int | None,
    out: Path,
    options: ModelOptions,
    where: EngineOptions,
) -> None:
    """Score every head of MODEL on a corpus, and tag those whose scores are evidence.

    Writes scores.csv (every measure of every head, with baseline, interval and q-value), tags.csv (the
    tags of each head), figures/, report.html (all of it to read, with examples) and run.json (everything
    needed to do it again).
    """
    from headlens.corpus.read import read_corpus
    from headlens.runs import record as runs
    from headlens.scoring.classify import RunOptions, Settings, Sources, classify

    clock = runs.Clock.start()
    wanted = None if tags is None else list(names(tags))
    shares = _margins(margins)
    click.get_current_context().with_resource(runs.prepare(out, "classify"))
    corpus = read_corpus(corpora or None, parser, names(columns), max_sentences)
    say_read(corpus)
    lens = options.load(model)
    checks = checked(lens)
    reading = RunOptions(
        options.batch_size,
        options.max_length,
        block_size,
        quiet=options.quiet,
        norms=measure == "norms",
        documents=inputs == "documents",
    )
    with where.open(options.device) as engine:
        found = classify(
            lens,
            corpus,
            wanted,
            margins=shares,
            settings=Settings(min_n=min_n, seed=options.seed),
            reading=replace(reading, engine=engine),
            sources=Sources(relations, frequencies, targets),
        )
    found = found.noting(options=said(), checks=checks, wall_seconds=clock.seconds)
    found.write(out)
    if not corpora and found.run["inputs"].keys() != {"repeats"}:
        say("No --corpus was given: these are results for the small English sample of headlens.", err=True)
    if corpus.parser:
        say(f"Trees are silver: a parse by {corpus.parser}, not checked by people.", err=True)
    say(summary(lens, found))  # before the report: what was found is said whatever becomes of the page
    found.show(out)
    say(
        f"\nWrote {out / 'report.html'}, {out / 'tags.csv'}, {out / 'scores.csv'}, {out / 'run.json'} and "
        f"{out / 'figures'}."
    )


def summary(lens: Lens, found: Classification, strongest: int = 3) -> str:
    """Say in a few lines how many heads carry each tag, and which carry it most clearly."""
    from headlens.model.heads import Head
    from headlens.report.words import clearest, unscored_stacks, was_tested
    from headlens.scoring.scorers import SCORERS
    from headlens.util.formatting import counted

    scores = found.scores
    lines = [f"{'tag':<16}{'heads':>6}   strongest"]
    for tag in dict.fromkeys(scores["tag"]):
        best = clearest(scores, tag)
        rows: list[Any] = list(best.head(strongest).itertuples())
        examples = ", ".join(
            f"{lens.anatomy.name(Head(row.stack, row.layer, row.head))} {row.measure} {row.score:.2f} "
            f"(baseline {row.baseline:.2f})"
            for row in rows
        )
        none = "-" if was_tested(scores, tag) else "too little to test"
        lines.append(f"{tag:<16}{len(best):>6}   {examples or none}")
    corpus, read = found.run["corpus"], found.run["inputs"]
    where = f"{corpus['sentences']:,} sentences ({corpus['words']:,} words)"
    if read.keys() == {"repeats"}:
        where = f"{read['repeats']['read']} inputs of repeated random tokens"
    lines.append(f"of {len(lens.anatomy.heads)} heads, on {where}. Layers and heads count from 0.")
    if "documents" in read:
        whole = ", ".join(tag for tag in dict.fromkeys(scores["tag"]) if SCORERS[tag].anywhere)
        lines.append(f"Scored on whole documents ({counted(read['documents']['read'], 'input')}): {whole}.")
    if found.run["lens"] == "norms":
        lines.append("Scores are shares of norms, weight times what the key hands over, not of weights.")
    lines += [f"The {stack} stack was not scored: give --targets." for stack in unscored_stacks(scores)]
    return "\n".join(lines)
