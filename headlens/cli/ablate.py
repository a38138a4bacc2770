"""``headlens ablate``: what a model can no longer do without each of its heads."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import click

from headlens.cli.options import ModelOptions, model_options

if TYPE_CHECKING:
    from headlens.ablation.result import Sweep

TOP = 5  # heads shown on stdout


@click.command(
    epilog="Examples:  headlens ablate minilm --out run  |  headlens ablate minilm --benchmark "
    "similarity:sts.tsv --columns 1,2,0 --out run  |  headlens ablate model.gguf --benchmark "
    'language:book.txt --heads "0.*" --out run'
)
@click.argument("model")
@click.option(
    "--benchmark", metavar="SPEC", help="similarity:FILE.tsv, language:FILE.txt.  [default: bundled]"
)
@click.option("--sweep", default="each", show_default=True, help="each: every head alone.")
@click.option("--mode", default="zero", show_default=True, help="What stands in a removed head's place.")
@click.option("--heads", metavar="SEL", help="Only these, such as 4.11 or 0.*,2.0-5.  [default: all]")
@click.option(
    "--columns", metavar="A,B,C", help="Columns of the file: names; numbers where it has no header."
)
@click.option("--out", type=click.Path(path_type=Path), required=True, help="Directory for the results.")
@click.option("--overwrite", is_flag=True, help="Replace another run that --out holds.")
@model_options
def command(
    model: str,
    benchmark: str | None,
    sweep: str,
    mode: str,
    heads: str | None,
    columns: str | None,
    out: Path,
    overwrite: bool,
    options: ModelOptions,
) -> None:
    """Remove heads of MODEL and measure what a benchmark loses.

    An interrupted run goes on where it stopped when the same command is typed again.
    """
    from headlens import runs
    from headlens.ablation.sweep import Plan, open_for, run_sweep
    from headlens.benchmarks.inputs import Options

    clock = runs.Clock.start()
    runs.prepare(out, "ablate")
    lens = options.load(model)
    reading = Options(
        columns=tuple(columns.split(",")) if columns else (),
        batch_size=options.batch_size,
        max_length=options.max_length,
        seed=options.seed,
        allow_random_weights=options.allow_random_weights,
    )
    opened = open_for(lens, benchmark, reading)
    if benchmark is None:
        click.echo(f"No --benchmark given: measuring on the bundled sample, {opened.name}.", err=True)
    result = run_sweep(lens, opened, Plan(sweep, mode, heads, reading, out, overwrite, not options.quiet))
    if reused := result.run["conditions_reused"]:
        click.echo(f"{reused} of {result.run['conditions']} ablations were measured before; kept.", err=True)
    said = {name: value for name, value in click.get_current_context().params.items() if name != "model"}
    facts = {**result.run, "bundled_sample": benchmark is None}
    files = _write(result, out)
    runs.save(out, runs.record("ablate", lens, said, facts, clock))
    click.echo(summary(result))
    click.echo(f"Written to {out}: {', '.join(files)}, run.json")
    for note in result.notes:
        click.echo(f"Warning: {note}", err=True)


def _write(result: Sweep, out: Path) -> list[str]:
    from headlens.report.ablation import heads_figure, save
    from headlens.tables import ABLATION, IMPORTANCE, write_csv

    write_csv(result.table, out / "ablation.csv", ABLATION)
    write_csv(result.importance, out / "importance.csv", IMPORTANCE)
    save([("heads", heads_figure(result))], out)
    return ["ablation.csv", "importance.csv", "figures/heads.png"]


def summary(result: Sweep) -> str:
    """Write what a sweep found, for a terminal.

    Args:
        result: of the kind `each`.

    Returns:
        The baseline, the most important heads, and how many heads have an effect.
    """
    metric = result.metrics[0]
    rows = result.table[result.table["metric"] == metric.name].reset_index(drop=True)
    about = result.run["benchmark"]
    baseline = "   ".join(f"{name} {value:.4f}" for name, value in result.run["baseline"].items())
    lines = [f"{about['name']}, {about['examples']} examples", f"baseline: {baseline}", ""]
    lines.append(f"{'removed':<14}{metric.name:>16}{'change':>10}   {'95 % interval':<22}{'q':>8}")
    order = result.importance["rank"].sort_values().index[:TOP]
    for row in rows.loc[order].itertuples():
        interval = f"{row.ci_low:+.4f} to {row.ci_high:+.4f}"
        lines.append(
            f"{row.condition:<14}{row.value:>16.4f}{row.delta:>+10.4f}   {interval:<22}{row.q_value:>8.2g}"
        )
    effect = rows["q_value"] < 0.05
    worse = (effect & (result.importance["importance"] > 0)).sum()
    lines += [
        "",
        f"{effect.sum()} of {len(rows)} heads have a significant effect on {metric.name} (q < 0.05): without "
        f"{worse} of them it is worse, without {effect.sum() - worse} better.",
        f"{len(rows) - effect.sum()} could each go alone without one; "
        "that does not show that they have no role: heads can stand in for each other.",
    ]
    return "\n".join(lines)
