"""``headlens demo``: the main commands, one after the other, on the model and sample that come along."""

from __future__ import annotations

import shlex
from pathlib import Path

import click

from headlens.cli.options import debug_option, run_command

SENTENCE = "The dog that the children found had lost its collar."
STEPS = [
    ("Which heads the model has.", ["describe", "minilm"]),
    ("Whether what is measured on it can be believed.", ["check", "minilm"]),
    (
        "What one head looks at: it finds the direct object's verb.",
        ["view", "minilm", SENTENCE, "--heads", "2.0", "--words", "--drop-special", "--out", "head-2.0.png"],
    ),
    ("All 72 heads on one sentence.", ["view", "minilm", SENTENCE, "--out", "all-heads.png"]),
    (
        "The same numbers as a table, of one layer.",
        ["view", "minilm", SENTENCE, "--heads", "2.*", "--words", "--out", "attention.csv"],
    ),
    ("What every head looks at, with evidence.", ["classify", "minilm", "--out", "classify"]),
    (
        "Which heads matter: each is taken out in turn.",
        ["ablate", "minilm", "--overwrite", "--out", "ablate"],
    ),
    (
        "How many heads the model can do without, held against random ones.",
        ["ablate", "minilm", "--sweep", "cumulative", "--overwrite", "--out", "pruning"],
    ),
    (
        "Which heads look at the same, with their tags.",
        ["similar", "minilm", "--tags", "classify", "--out", "similar"],
    ),
    (
        "What each head writes to the residual stream.",
        ["contributions", "minilm", SENTENCE, "--out", "contributions.png"],
    ),
    (
        "A smaller checkpoint, without the quarter of the heads that matters least.",
        ["prune", "minilm", "--from", "ablate", "--keep", "0.75", "--form", "compact", "--out", "pruned"],
    ),
    (
        "An interactive page: all heads on one sentence, with their tags and importance.",
        ["view", "minilm", SENTENCE, "--tags", "classify", "--tags", "ablate", "--out", "attention.html"],
    ),
    (
        "All of it on one page.",
        ["report", "classify", "ablate", "pruning", "similar", "--out", "report.html"],
    ),
]


@click.command(epilog="Example:  headlens demo --out my-demo")
@click.option(
    "--out",
    type=click.Path(path_type=Path, file_okay=False),
    default=Path("reports/demo"),
    show_default=True,
    help="Directory for the results.",
)
@click.option("--quiet", is_flag=True, help="No progress bars.")
@debug_option
@click.pass_context
def command(ctx: click.Context, out: Path, quiet: bool) -> None:
    """Run all main commands on minilm with the bundled English sample.

    Needs no network and one to two minutes. Every command is printed as you would type it.
    """
    from headlens.util.files import locked

    ctx.with_resource(locked(out))
    for number, (title, arguments) in enumerate(STEPS, 1):
        places = [_is_place(before, word) for before, word in _pairs(arguments)]
        typed = [str(out / word) if here else word for here, word in zip(places, arguments, strict=True)]
        click.secho(f"\n[{number}/{len(STEPS)}] {title}", bold=True)
        click.echo(f"$ headlens {shlex.join(typed)}\n")
        run_command(ctx, typed, quiet)
    click.secho(f"\nDone. Look at {out}:", bold=True)
    for name, what in (
        ("report.html", "what was found, to read and to click through, in a browser"),
        ("attention.html", "every head on one sentence, in a browser"),
        ("head-2.0.png", "one head's attention, word by word"),
        ("all-heads.png", "every head of the model on one sentence"),
        ("classify/tags.csv", "what each head was found to do; classify/scores.csv has all numbers"),
        ("ablate/figures/heads.png", "how much each head matters; ablate/ablation.csv has all numbers"),
        ("pruning/figures/pruning.png", "how many heads can go; pruning/controls.csv has the random ones"),
        (
            "similar/figures/clustermap.png",
            "which heads look at the same; similar/distances.csv has all pairs",
        ),
        ("contributions.png", "what share of its layer each head writes"),
        ("pruned/README.md", "what the smaller checkpoint beside it lacks"),
    ):
        click.echo(f"  {out / name}  {what}")
    click.echo(
        "Next: the same on your own model, for example  headlens classify ./my-bert --out runs/my-bert"
    )


def _is_place(before: str, word: str) -> bool:
    """Whether a word names something in the demo's directory: a file, or a run to report on."""
    runs = ("classify", "ablate", "pruning", "similar")
    return before in ("--out", "--tags", "--from") or (word in runs and before in ("report", *runs))


def _pairs(words: list[str]) -> list[tuple[str, str]]:
    return list(zip(["", *words], words, strict=False))
