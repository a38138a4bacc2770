"""``headlens describe``: what heads a model has, from its config alone."""

from __future__ import annotations

import json

import click

from headlens.cli.options import debug_option, hush


@click.command(
    epilog="Examples:  headlens describe minilm  |  headlens describe ./my-model --json  |  "
    "headlens describe config.json --seq-len 1024"
)
@click.argument("model")
@click.option("--json", "as_json", is_flag=True, help="Write JSON instead of a table.")
@click.option(
    "--seq-len", type=click.IntRange(1), default=128, show_default=True, help="For the multiply-adds."
)
@click.option("--revision", help="Branch, tag or commit of a hub model.")
@click.option("--trust-remote-code", is_flag=True, help="Run code that comes with a checkpoint.")
@debug_option
def command(model: str, as_json: bool, seq_len: int, revision: str | None, trust_remote_code: bool) -> None:
    """Describe the attention heads of MODEL: counts, widths, parameters, multiply-adds.

    No weights are read: a config.json is enough.
    """
    from headlens.model.describe import describe, sketch, table
    from headlens.model.load import find

    hush()
    anatomy = sketch(find(model, revision, trust_remote_code))
    if as_json:
        click.echo(json.dumps(describe(anatomy, seq_len), indent=2))
    else:
        click.echo(table(anatomy, seq_len))
