"""``headlens ablate``: what a model can no longer do without each of its heads."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from headlens.cli.check import checked
from headlens.cli.options import (
    ComposedOption,
    EngineOptions,
    ModelOptions,
    engine_options,
    model_options,
    names,
    say,
    spoken_warnings,
)
from headlens.util.formatting import counted

if TYPE_CHECKING:
    import pandas as pd

    from headlens.ablation.plan import SweepPlan
    from headlens.ablation.result import Sweep


def _benchmarks() -> str:
    from headlens.benchmarks.registry import forms

    return f"{forms()}.  [default: bundled]"


def _columns() -> str:
    from headlens.benchmarks.registry import default_columns

    return f"Columns of the file: names; numbers where it has no header.  [default: {default_columns()}]"


@click.command(
    epilog="Examples:  headlens ablate minilm --out run  |  headlens ablate minilm --benchmark "
    "similarity:sts.tsv --columns 1,2,0 --sweep cumulative --order gradient --out run  |  headlens ablate "
    "model.gguf --benchmark pairs:blimp.jsonl --sweep each --screen 50 --out run  |  headlens ablate minilm "
    "--sweep tags --from runs/minilm --mode mean --out run"
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
@click.option("--out", type=click.Path(path_type=Path), required=True, help="Directory for the results.")
@click.option("--overwrite", is_flag=True, help="Replace another run that --out holds.")
@engine_options
@model_options
def command(
    model: str, out: Path, benchmark: str | None, options: ModelOptions, where: EngineOptions, **said: Any
) -> None:
    """Remove heads of MODEL and measure what a benchmark loses.

    Writes ablation.csv (every condition with interval, p- and q-value), importance.csv, figures/,
    report.html and run.json; controls.csv where sets are held against random ones, gates.csv for learned
    gates, best_of_layers.csv for only. An interrupted run goes on where it stopped when the same command is
    typed again.
    """
    from headlens.ablation.sweep import open_for, run_sweep
    from headlens.report import viewer as examples
    from headlens.report.page.write import write_report
    from headlens.runs import record as runs
    from headlens.runs.read import read_marks

    clock = runs.Clock.start()
    plan = _plan(said, out, options)
    plan.check()  # what can be told now is told before a large model is loaded
    click.get_current_context().with_resource(runs.prepare(out, "ablate"))
    lens = options.load(model)
    checks = checked(lens)
    opened = open_for(lens, benchmark, plan.options)
    if benchmark is None:
        say(f"No --benchmark given: measuring on the bundled sample, {opened.name}.", err=True)
    with where.open(options.device) as engine, spoken_warnings():
        result = run_sweep(lens, opened, replace(plan, engine=engine))
    if reused := result.run["conditions_reused"]:
        say(f"{reused} of {result.run['conditions']} ablations were measured before; kept.", err=True)
    typed = {name: value for name, value in click.get_current_context().params.items() if name != "model"}
    files = _write(result, out)
    facts = {**result.run, "notes": result.notes, "bundled_sample": benchmark is None, "checks": checks}
    examples.forget(out)
    tables = [name for name in files if name.endswith(".csv")]
    runs.save(out, runs.record("ablate", lens, typed, facts, clock), tables)
    say(ablation(result))  # before the report: what was found is said whatever becomes of the page
    examples.save_examples(
        out, examples.attempt(examples.of_benchmark, lens, opened), read_marks([out], lens.anatomy.heads)
    )
    write_report([out], out / "report.html")
    say(f"Written to {out}: report.html, {', '.join(files)}, run.json")
    for note in result.notes:
        say(f"Warning: {note}", err=True)


def _plan(said: dict[str, Any], out: Path, options: ModelOptions) -> SweepPlan:
    """What the user asks for."""
    from headlens.ablation.plan import SweepPlan
    from headlens.benchmarks.base import BenchmarkOptions

    chosen = {name: names(said.pop(name)) for name in ("order", "columns")}
    reading = BenchmarkOptions(
        columns=chosen["columns"],
        batch_size=options.batch_size,
        max_length=options.max_length,
        seed=options.seed,
        allow_random_weights=options.allow_random_weights,
        beams=said.pop("beams"),
    )
    return SweepPlan(
        step=_share(said.pop("step")),
        prefix_memory=said.pop("prefix_memory") * 2**20,
        order=chosen["order"],
        options=reading,
        out=out,
        progress=not options.quiet,
        **said,
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


def _write(result: Sweep, out: Path) -> list[str]:
    from headlens.ablation.result import BEST, best_of_layers
    from headlens.report.ablation_figures import figures
    from headlens.report.canvas import save_drawn
    from headlens.report.page.ablate import OPTIONAL
    from headlens.util.files import ABLATION, CONTROLS, GATES, IMPORTANCE, remove, write_csv

    tables = [("ablation.csv", result.table, ABLATION), ("importance.csv", result.importance, IMPORTANCE)]
    if len(result.controls):
        tables.append(("controls.csv", result.controls, CONTROLS))
    if result.kind == "only":
        tables.append(("best_of_layers.csv", best_of_layers(result), BEST))
    if len(result.gates):
        tables.append(("gates.csv", result.gates, GATES))
    for name, table, columns in tables:
        write_csv(table, out / name, columns)
    remove([out / name for name in OPTIONAL if name not in {name for name, _, _ in tables}])
    drawn = [path for path in save_drawn(figures(result), out) if path.suffix == ".png"]
    return [*(name for name, _, _ in tables), *(f"figures/{path.name}" for path in drawn)]


# ---- What an ablation found, in a few lines for a terminal


TOP = 5  # rows shown


def ablation(result: Sweep) -> str:
    """Write what a sweep found.

    Args:
        result: of any kind.

    Returns:
        The benchmark and its baseline, the rows that say most, and what they come to.
    """
    from headlens.report.words import as_number

    about = result.run["benchmark"]
    baseline = "   ".join(
        f"{name} {as_number(value, '.4f')}" for name, value in result.run["baseline"].items()
    )
    lines = [f"{about['name']}, {about['examples']} examples", f"baseline: {baseline}", ""]
    lines += _KINDS[result.kind](result)
    if len(result.agreement):
        lines += ["", "Rank correlation (Spearman) of methods of importance:"]
        lines += [
            f"  {a} and {b}: {as_number(rho, '.2f')} over {n} heads"
            for a, b, rho, n in result.agreement.to_numpy()
        ]
    return "\n".join(lines)


def _rows(result: Sweep, rows: pd.DataFrame) -> list[str]:
    width = max(14, *(len(name) + 2 for name in rows["condition"])) if len(rows) else 14
    name = result.metrics[0].name
    lines = [f"{'removed':<{width}}{name:>16}{'change':>10}   {'95 % interval':<22}{'q':>8}"]
    listed: list[Any] = list(rows.itertuples())
    for row in listed:
        interval = f"{row.ci_low:+.4f} to {row.ci_high:+.4f}" if row.ci_low == row.ci_low else "none"
        numbers = f"{_cell(row.value, '.4f'):>16}{_cell(row.delta, '+.4f'):>10}   {interval:<22}"
        numbers += f"{_cell(row.q_value, '.2g'):>8}"
        lines.append(f"{row.condition:<{width}}{numbers}")
    return lines


def _cell(value: Any, form: str) -> str:
    """A number of a table; a dash where it is not defined."""
    return format(value, form) if value == value else "-"


def _worst(result: Sweep) -> pd.DataFrame:
    """The rows of the primary metric, largest loss first."""
    from headlens.report.words import with_losses

    return with_losses(result.primary, result.metrics[0].larger_is_better)


def _each(result: Sweep) -> list[str]:
    from headlens.report.words import among, effects, judged

    rows, name = _worst(result), result.metrics[0].name
    known = judged(rows)
    worse, better = map(len, effects(known))
    lines = [*_rows(result, rows.head(TOP)), ""]
    lines.append(f"Significant on {name} (q < 0.05), of {among(len(known), len(rows), 'head')}:")
    lines.append(f"  {worse:>4} matter: without one of them it is worse")
    lines.append(f"  {better:>4} harm: without one of them it is better")
    if rest := len(known) - worse - better:
        lines += [
            f"Without {counted(rest, 'other head')}, each alone, nothing significant changes. They may have",
            "a role all the same: heads stand in for each other (--sweep cumulative, only or tags tells).",
        ]
    if len(rows) < (result.importance["method"] == "each").sum():
        method = next(name for name in result.importance["method"] if name != "each")
        lines.append(f"Only the heads that rank first by {method} were measured; q-values count all.")
    return lines


def _cumulative(result: Sweep) -> list[str]:
    from headlens.report.words import can_go, interval, last_without_loss, tested

    share = result.run["largest_share_without_significant_loss"]
    method, rows = result.importance["method"].iloc[0], result.primary
    last = last_without_loss(rows, share)
    of_model = result.run.get("heads_of_model")
    lines = [f"{can_go(rows, share, of_model, result.metrics[0].name)} (p < 0.05)"]
    steps: list[Any] = list(last.itertuples())
    for row in steps:
        lines[0] += f": {row.delta:+.4f}, {interval(row.ci_low, row.ci_high)}, {tested('p', row.p_value)}"
    lines.append(
        f"The least important by {method} went first, estimated on {result.run['importance_estimated_on']}."
    )
    lines.append("With few examples even a real loss is not significant: look at the interval.")
    return [*_rows(result, rows), "", *lines, *_controls(result)]


def _only(result: Sweep) -> list[str]:
    from headlens.ablation.result import best_of_layers
    from headlens.report.words import one_head

    best = best_of_layers(result)
    lines = ["One head kept in a layer, chosen on one half of the examples and measured on the other:"]
    lines.append(f"{'layer':<14}{'kept':<14}{'change':>10}{'p':>10}{'q':>10}")
    for row in best.itertuples():
        lines.append(
            f"{row.layer:<14}{row.kept:<14}{_cell(row.delta, '+.4f'):>10}{_cell(row.p_value, '.2g'):>10}"
            f"{_cell(row.q_value, '.2g'):>10}"
        )
    return [*lines, f"{one_head(best, result.metrics[0].larger_is_better)}."]


def _others(result: Sweep) -> list[str]:
    return [*_rows(result, _worst(result)), *_controls(result)]


def _controls(result: Sweep) -> list[str]:
    from headlens.report.words import as_bad_or_worse, as_number

    rows = result.controls[result.controls["metric"] == result.metrics[0].name]
    if not len(rows):
        return []
    lines = ["", "Against random sets with as many heads of each layer:"]
    shares, draws = rows["at_least_as_bad"].to_numpy(float), rows["draws"].to_numpy(int)
    held: list[Any] = list(rows.itertuples())
    for row, share, n in zip(held, shares, draws, strict=True):
        known = share == share
        said = f"{as_bad_or_worse(share, n)} of {n} as bad or worse" if known else "which cannot be compared"
        lines.append(
            f"  {row.condition}: {as_number(row.value, '.4f')}; random {as_number(row.random_mean, '.4f')} "
            f"({as_number(row.random_low, '.4f')} to {as_number(row.random_high, '.4f')}), {said}"
        )
    return lines


_KINDS: Mapping[str, Callable[[Sweep], list[str]]] = {
    "each": _each,
    "cumulative": _cumulative,
    "only": _only,
    "layer": _others,
    "tags": _others,
    "set": _others,
}
