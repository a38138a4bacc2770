"""``headlens run``: an experiment that is described in a file."""

from __future__ import annotations

import math
import shlex
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from headlens.cli.options import Command, debug_option, group_of, run_command, say

if TYPE_CHECKING:
    from headlens.cli.experiment_run import Step


@click.command(
    cls=Command,
    goes_on=True,
    epilog="Examples:  headlens run experiments/demo.toml  |  headlens run my.toml --out runs/mine  |  "
    "headlens run experiments/kobayashi2020.toml --model minilm  |  headlens run my.toml --dry-run",
)
@click.argument("file", type=click.Path(path_type=Path), metavar="FILE.toml")
@click.option(
    "--model",
    "models",
    multiple=True,
    metavar="MODEL",
    help="Run it on this model instead of the file's; several make a grid.",
)
@click.option(
    "--out",
    type=click.Path(path_type=Path, file_okay=False),
    help="Directory for the results.  [default: runs/NAME of the file, with --model runs/NAME-MODEL]",
)
@click.option("--dry-run", is_flag=True, help="Print the commands, and run none of them.")
@click.option("--quiet", is_flag=True, help="No progress bars.")
@debug_option
@click.pass_context
def command(
    ctx: click.Context, file: Path, models: tuple[str, ...], out: Path | None, dry_run: bool, quiet: bool
) -> None:
    """Run the commands that FILE.toml describes, on every model and seed in it.

    Sections such as [classify] and [ablate] have the options of the commands by the same names, of all that
    have --save-as; several of one kind are written [[ablate]]. [[published]] figures are put beside what was
    measured: published.csv, and report.html with all runs (or what [report] says). What is finished is not
    run again.
    """
    from headlens.cli.experiment_file import on_models, read_experiment
    from headlens.cli.experiment_run import conclude, plain_name, run, steps
    from headlens.report.page.experiment import as_published
    from headlens.runs import record as runs

    experiment = read_experiment(file, group_of(ctx))
    if models:
        experiment = on_models(experiment, models)
    out = out or Path("runs") / "-".join([file.stem, *map(plain_name, models)])
    planned = list(steps(experiment, out))
    for step in planned:
        _check(ctx, step, file, None if dry_run else out)
    if dry_run:
        for step in planned:
            say(f"headlens {shlex.join(step.typed)}")
        return
    ctx.with_resource(runs.prepare(out, "run"))
    run(planned, out, lambda typed: run_command(ctx, typed, quiet), say)
    table = conclude(experiment, out, planned)
    if len(table):
        say(f"\n{'measured':>10}{'published':>15}   what")
        rows: list[Any] = list(table.itertuples())
        for row in rows:
            measured = "-" if math.isnan(row.measured) else f"{row.measured:.4g}"
            published = as_published(row.bound, row.published)
            say(f"{measured:>10}{published:>15}   {row.what} ({row.model}; {row.source})")
    say(f"\nWrote {out / experiment.report.out}, {out / 'published.csv'} and {out / 'run.json'}.")


def _check(ctx: click.Context, step: Step, file: Path, out: Path | None) -> None:
    """Refuse a value that a command would refuse, before anything runs, and places that are not there."""
    from headlens.cli.experiment_file import missing
    from headlens.errors import HeadlensError, InputError

    name, *typed = step.typed
    where = f"[{name}] of {file.name}"
    try:
        made = step.section.command.make_context(name, typed, parent=ctx.parent)
    except click.ClickException as error:
        raise InputError(f"{where}: {error.format_message()}", "Correct the file.") from error
    except HeadlensError as error:
        raise InputError(f"{where}: {error.problem}", error.remedy) from error
    if out is not None and (place := missing(made, out)) is not None:
        raise InputError(
            f"{where}: there is no file or directory {str(place)!r}, and no section of that name.",
            f"Paths are seen from {file.parent}, then from here.",
        )
