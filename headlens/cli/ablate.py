"""``headlens ablate``: what a model can no longer do without each of its heads."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from headlens.cli.check import checked
from headlens.cli.options import (
    Command,
    ComposedOption,
    EngineOptions,
    ModelOptions,
    engine_options,
    model_options,
    names,
    out_directory,
    said,
    say,
    spoken_warnings,
)

if TYPE_CHECKING:
    from headlens.ablation.plan import SweepPlan


def _benchmarks() -> str:
    from headlens.benchmarks.registry import forms

    return f"{forms()}.  [default: bundled]"


def _columns() -> str:
    from headlens.benchmarks.registry import default_columns

    return f"Columns of the file: names; numbers where it has no header.  [default: {default_columns()}]"


@click.command(
    cls=Command,
    writes="directory",
    reported=True,
    goes_on=True,
    epilog="Examples:  headlens ablate minilm --out run  |  headlens ablate minilm --benchmark "
    "similarity:sts.tsv --columns 1,2,0 --sweep cumulative --order gradient --out run  |  headlens ablate "
    "model.gguf --benchmark pairs:blimp.jsonl --sweep each --screen 50 --out run  |  headlens ablate minilm "
    "--sweep tags --from runs/minilm --mode mean --out run",
)
@click.argument("model")
@click.option("--benchmark", metavar="SPEC", cls=ComposedOption, help_of=_benchmarks)
@click.option(
    "--sweep",
    metavar="KIND",
    default="each",
    show_default=True,
    help="each: every head alone; cumulative: step by step, least important first; only: one head of a layer "
    "kept; layer: each whole layer; tags: all heads of each tag (--from); set: --heads together.",
)
@click.option(
    "--mode",
    metavar="KIND",
    default="zero",
    show_default=True,
    help="What stands in a removed head's place: zero; mean: its mean output; resample: its output on "
    "another example; uniform: what it puts out with uniform attention.",
)
@click.option(
    "--order",
    metavar="KIND",
    help="How importance is estimated: gradient (Michel et al.), taylor, integrated, each, shapley, gates, "
    "random; several are joined by commas, cumulative goes by the first.  [default: gradient for cumulative]",
)
@click.option("--heads", metavar="SEL", help="Only these, such as 4.11 or 0.*,2.0-5.  [default: all]")
@click.option("--step", default="10%", show_default=True, help="Share of heads per step of cumulative.")
@click.option(
    "--draws",
    type=click.IntRange(2),
    default=20,
    show_default=True,
    help="Random sets that tags and cumulative are held against.",
)
@click.option(
    "--screen",
    type=click.IntRange(1),
    metavar="K",
    help="Of each: measure the K heads that rank first by --order (by default the gradient).",
)
@click.option(
    "--from", "tagged_by", type=click.Path(path_type=Path), help="Run of headlens classify, for --sweep tags."
)
@click.option("--normalise", type=click.Choice(["layer"]), help="Divide the gradient by its layer's L2 norm.")
@click.option(
    "--permutations", type=click.IntRange(1), default=10, show_default=True, help="Random orders of shapley."
)
@click.option("--beams", type=click.IntRange(1), default=1, show_default=True, help="Of translation.")
@click.option("--columns", metavar="A,B,C", cls=ComposedOption, help_of=_columns)
@click.option(
    "--prefix-memory",
    type=click.IntRange(0),
    metavar="MB",
    default=1024,
    show_default=True,
    help="For what lies below a removed head, so that it is not computed again; 0 computes it.",
)
@out_directory
@click.option("--overwrite", is_flag=True, help="Replace another run that --out holds.")
@engine_options
@model_options
def command(
    model: str, out: Path, benchmark: str | None, options: ModelOptions, where: EngineOptions, **typed: Any
) -> None:
    """Remove heads of MODEL and measure what a benchmark loses.

    Writes ablation.csv (every condition with interval, p- and q-value), importance.csv, figures/,
    report.html and run.json; controls.csv where sets are held against random ones, gates.csv for learned
    gates, best_of_layers.csv for only. An interrupted run goes on where it stopped when the same command is
    typed again.
    """
    from headlens.ablation.sweep import open_for, run_sweep
    from headlens.report.page.ablate import on_screen
    from headlens.runs import record as runs

    clock = runs.Clock.start()
    plan = _plan(typed, out, options)
    plan.check()  # what can be told now is told before a large model is loaded
    click.get_current_context().with_resource(runs.prepare(out, "ablate"))
    lens = options.load(model)
    checks = checked(lens)
    opened = open_for(lens, benchmark, plan.options)
    if benchmark is None:
        say(f"No --benchmark given: measuring on the bundled sample, {opened.name}.", err=True)
    with where.open(options.device) as engine, spoken_warnings():
        found = run_sweep(lens, opened, replace(plan, engine=engine))
    if reused := found.run["conditions_reused"]:
        say(f"{reused} of {found.run['conditions']} ablations were measured before; kept.", err=True)
    found = found.noting(
        options=said(), checks=checks, bundled_sample=benchmark is None, wall_seconds=clock.seconds
    )
    found.write(out)
    say(on_screen(found))  # before the report: what was found is said whatever becomes of the page
    found.show(out)
    files = [*found.tables, *(f"figures/{path.name}" for path in sorted(out.glob("figures/*.png")))]
    say(f"Written to {out}: report.html, {', '.join(files)}, run.json")
    for note in found.notes:
        say(f"Warning: {note}", err=True)


def _plan(typed: dict[str, Any], out: Path, options: ModelOptions) -> SweepPlan:
    """What the user asks for."""
    from headlens.ablation.plan import SweepPlan
    from headlens.benchmarks.base import BenchmarkOptions

    chosen = {name: names(typed.pop(name)) for name in ("order", "columns")}
    reading = BenchmarkOptions(
        columns=chosen["columns"],
        batch_size=options.batch_size,
        max_length=options.max_length,
        seed=options.seed,
        allow_random_weights=options.allow_random_weights,
        beams=typed.pop("beams"),
    )
    return SweepPlan(
        step=_share(typed.pop("step")),
        prefix_memory=typed.pop("prefix_memory") * 2**20,
        order=chosen["order"],
        options=reading,
        out=out,
        progress=not options.quiet,
        **typed,
    )


def _share(text: str) -> float:
    """Read ``10%``, ``10`` or ``0.1``: a number below 1 is a share, any other is per cent."""
    try:
        number = float(text.removesuffix("%"))
    except ValueError:
        raise click.BadParameter(
            f"expected a share such as 10%, found {text!r}", param_hint="--step"
        ) from None
    return number if number < 1 and not text.endswith("%") else number / 100
