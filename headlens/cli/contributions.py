"""``headlens contributions``: what each head writes for one input."""

from __future__ import annotations

import sys
from pathlib import Path

import click

from headlens.cli.options import Command, ModelOptions, model_options, say, spoken_warnings, text_options

MEASURES = ("branch_share", "written_norm", "output_norm", "cosine", "stream_share", "logit")


@click.command(
    cls=Command,
    writes="file",
    epilog='Examples:  headlens contributions minilm "The dog chased its tail." --out dog.csv  |  '
    'headlens contributions model.gguf "The capital of France is" --measure logit --out paris.png  |  '
    'headlens contributions model.gguf "The capital of France is" --token " Paris" --out paris.csv  |  '
    'headlens contributions ./bert "Paris is the [MASK] of France." --measure logit --out mask.svg  |  '
    'headlens contributions minilm "A man sleeps." --per-token --heads "5.*" --out layer5.pdf',
)
@click.argument("model")
@text_options
@click.option(
    "--token",
    metavar="TEXT",
    help="One token whose logit is looked at.  [default: the one that the model ranks first]",
)
@click.option(
    "--position",
    type=click.IntRange(0),
    metavar="N",
    help="Where it is predicted, from 0.  [default: the last token; of a masked model the first mask token]",
)
@click.option(
    "--measure",
    type=click.Choice(MEASURES),
    help="For .png .svg .pdf: what is drawn; a table has all.  [default: branch_share]",
)
@click.option("--per-token", is_flag=True, help="One row per head and token instead of means over tokens.")
@click.option(
    "--out",
    required=True,
    metavar="FILE",
    help="The ending chooses: .csv table, .png .svg .pdf heatmap.",
)
@model_options
def command(
    model: str,
    text: str,
    pair: str | None,
    target: str | None,
    heads: str | None,
    token: str | None,
    position: int | None,
    measure: str | None,
    per_token: bool,
    out: str,
    options: ModelOptions,
) -> None:
    """Measure what each attention head of MODEL writes to the residual stream for TEXT.

    output_norm is the length of a head's output before W_O, written_norm that of what it writes, c. With b,
    all that its layer's attention writes, branch_share is c.b / |b|^2: the shares of a layer's heads and of
    W_O's bias add up to 1, and a negative one writes against the rest. cosine is that of c and b.
    stream_share is c.r / |r|^2, with r the residual stream after b is added. logit is the direct effect on
    the logit of one token: through the residual stream alone, all else held fixed, norms at their scale.

    A row of the table with an empty head is W_O's bias, which belongs to no head. TEXT is - to read it from
    standard input. A text that is longer than the model takes is refused, never cut.
    """
    from headlens.report.viewer import figure_or_table

    ending = figure_or_table(out)  # before the model is loaded: that takes a while
    if measure is not None and ending == ".csv":
        raise click.BadParameter("a table has all measures; leave it out", param_hint="--measure")
    if measure == "logit" and per_token:
        raise click.BadParameter(
            "an effect on a logit belongs to one position; leave --per-token out", param_hint="--measure"
        )
    if text == "-":
        text = sys.stdin.read()
    lens = options.load(model)
    from headlens.report.contribution_figures import summary
    from headlens.residual.contributions import DEFAULT, contributions

    found = contributions(
        lens,
        text,
        pair,
        target,
        heads=heads,
        token=token,
        position=position,
        max_length=options.max_length,
    )
    with spoken_warnings():
        found.save(out, measure or DEFAULT, per_token)
    say(summary(found))
    n_tokens = len(next(iter(found.tokens.values())))
    say(f"Wrote {Path(out)}: {len(found.heads)} head{'s' * (len(found.heads) != 1)} over {n_tokens} tokens.")
