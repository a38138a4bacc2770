"""The sweep: removes heads and measures what is lost."""

from __future__ import annotations

import warnings
from collections.abc import Mapping, Sequence
from contextlib import nullcontext
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pandas as pd

from headlens.ablation.conditions import DRAWS, SWEEPS, Choice, Condition
from headlens.ablation.importance import Estimate, agreement, from_each
from headlens.ablation.measure import Measuring, Units
from headlens.ablation.plan import (
    SweepPlan,
    default_order,
    estimates,
    halves,
    removal_order,
    run_key,
    table_of,
)
from headlens.ablation.prefix import MEMORY
from headlens.ablation.result import (
    PairedComparison,
    Sweep,
    against_controls,
    compare,
    headline,
    no_importance,
    notes,
    same_input,
    tabulate,
)
from headlens.benchmarks.base import BenchmarkOptions
from headlens.benchmarks.metrics import Array
from headlens.benchmarks.registry import Benchmark, open_benchmark, sample_benchmark
from headlens.engine.local import Engine
from headlens.errors import InputError
from headlens.model.heads import Head
from headlens.model.lens import Lens
from headlens.runs.read import tagged_heads
from headlens.util.files import GATES, locked
from headlens.util.statistics import RESAMPLES, draws


def sweep(
    lens: Lens,
    benchmark: str | Benchmark | None = None,
    sweep: str = "each",
    mode: str = "zero",
    heads: str | Head | Sequence[Head] | None = None,
    *,
    order: str | Sequence[str] = (),
    step: float = 0.1,
    draws: int = DRAWS,
    screen: int | None = None,
    tagged_by: str | Path | None = None,
    permutations: int = 10,
    normalise: str | None = None,
    seed: int = 0,
    batch_size: int | None = None,
    max_length: int | None = None,
    columns: Sequence[str] = (),
    beams: int = 1,
    allow_random_weights: bool = False,
    out: str | Path | None = None,
    overwrite: bool = False,
    prefix_memory: int = MEMORY,
    progress: bool = False,
    engine: Engine | None = None,
) -> Sweep:
    """Take heads out and measure what a benchmark loses.

    Args:
        lens: the model.
        benchmark: ``similarity:pairs.tsv``, ``language:book.txt``, ... or a benchmark; by default the bundled
            sample for this kind of model.
        sweep: "each": every head alone; "cumulative": step by step, the least important first; "only": one
            head of a layer kept; "layer": each whole layer; "tags": all heads of each tag; "set": `heads`
            together.
        mode: what stands in a head's place: "zero", "mean", "resample" or "uniform"; see
            `headlens.model.replacements`.
        heads: the heads in question, such as ``4.*``; all by default.
        order: how importance is estimated: "gradient", "taylor", "integrated", "each", "shapley", "gates",
            "random", or several of these; *cumulative* goes by the first.
        step: share of the heads that *cumulative* takes out at each step.
        draws: random sets that *cumulative* and *tags* hold each of theirs against.
        screen: *each* measures only so many heads, those that rank first by the first order (by default the
            gradient).
        tagged_by: run directory of `classify` that *tags* goes by.
        permutations: how many orders *shapley* removes heads in.
        normalise: "layer" divides gradient importance by its layer's L2 norm.
        seed: of resamples, masked positions and all else drawn at random, 0 or more.
        batch_size: inputs at once; by default as suits their length.
        max_length: longest input in tokens.
        columns: columns of the benchmark's file, by name or number.
        beams: of translation; 1 is greedy.
        allow_random_weights: accept a task head whose weights the checkpoint lacks.
        out: run directory that keeps finished conditions; a second call with the same arguments goes on
            from there.
        overwrite: throw away another run that `out` holds.
        prefix_memory: bytes that may be kept so that blocks below a removed head are not run again; 0 runs
            the whole model every time.
        progress: show a progress bar on stderr.
        engine: where conditions are measured, such as ``headlens.Ray(workers=4)``; here by default.

    Returns:
        Tables of effects and of importance, and the per-example values they come from.

    Raises:
        InputError: an argument or the benchmark's file is unfit.
        ModelError: this model cannot do the benchmark.
        RunError: `out` holds another run, or cannot be written.
    """
    plan = SweepPlan(
        sweep=sweep,
        mode=mode,
        heads=heads,
        order=(order,) if isinstance(order, str) else tuple(order),
        step=step,
        draws=draws,
        screen=screen,
        tagged_by=None if tagged_by is None else Path(tagged_by),
        permutations=permutations,
        normalise=normalise,
        options=BenchmarkOptions(tuple(columns), batch_size, max_length, seed, allow_random_weights, beams),
        out=None if out is None else Path(out),
        overwrite=overwrite,
        prefix_memory=prefix_memory,
        progress=progress,
        engine=engine,
    )
    plan.check()
    result = run_sweep(lens, open_for(lens, benchmark, plan.options), plan)
    for note in result.notes:
        warnings.warn(note, stacklevel=2)
    return result


def open_for(lens: Lens, benchmark: str | Benchmark | None, options: BenchmarkOptions) -> Benchmark:
    """Open the benchmark that is asked for, or the bundled sample for this kind of model.

    Args:
        lens: the model.
        benchmark: as a user writes it, an open one, or None for the sample.
        options: how to read and run it.

    Returns:
        The benchmark.
    """
    if benchmark is None:
        return sample_benchmark(lens, options)
    return open_benchmark(benchmark, lens, options) if isinstance(benchmark, str) else benchmark


def run_sweep(lens: Lens, benchmark: Benchmark, plan: SweepPlan) -> Sweep:
    """Carry out a plan.

    Args:
        lens: the model.
        benchmark: what it is measured on.
        plan: what to take out and how.

    Returns:
        What was measured.

    Raises:
        InputError: the plan names what does not exist, or heads that the benchmark never runs.
        RunError: `plan.out` holds another run, or cannot be written.
    """
    plan.check()
    with nullcontext() if plan.out is None else locked(plan.out):
        return _swept(lens, benchmark, _heads(lens, benchmark, plan), plan)


def _swept(lens: Lens, benchmark: Benchmark, heads: tuple[Head, ...], plan: SweepPlan) -> Sweep:
    units = None
    if plan.out is not None:
        units = Units(plan.out, run_key(lens, benchmark, heads, plan), plan.overwrite)
    wanted = study(lens, benchmark, heads, plan, units)
    measuring = Measuring(
        lens,
        wanted.benchmark,
        plan.mode,
        units,
        prefix_memory=plan.prefix_memory,
        seed=plan.options.seed,
        progress=plan.progress,
        engine=plan.engine,
    )
    return assemble(wanted, measuring, measuring.values(wanted.conditions), plan)


def _heads(lens: Lens, benchmark: Benchmark, plan: SweepPlan) -> tuple[Head, ...]:
    has = lens.anatomy.stacks
    if not set(has) & set(benchmark.stacks):
        raise InputError(
            f"{benchmark.name} runs heads of the stack {' or '.join(benchmark.stacks)}, and this model has "
            f"{' and '.join(has)} alone.",
            "Choose another benchmark, or another model.",
        )
    if plan.heads is None:
        return tuple(head for head in lens.anatomy.heads if head.stack in benchmark.stacks)
    chosen = lens.anatomy.select(plan.heads)
    idle = next((head for head in chosen if head.stack not in benchmark.stacks), None)
    if idle is not None or not chosen:
        problem = "No heads are named." if idle is None else f"{benchmark.name} never runs head {idle}."
        raise InputError(problem, f"Choose heads of: {', '.join(benchmark.stacks)}.")
    return chosen


# ---- What a sweep will measure: its conditions, on which examples, and the importance that they rest on


@dataclass(frozen=True, eq=False)
class Study:
    """What a sweep will measure.

    Args:
        benchmark: what conditions are measured on.
        conditions: in the order of the tables.
        found: estimates of importance, by method.
        estimated_on: how many examples they rest on, in words.
        measured_examples: numbers of the examples that conditions are measured on, where not all are.
        heads: the heads in question.
        of_model: how many heads the whole model has.
        tests: how many conditions were in question; more than there are where heads were screened.
    """

    benchmark: Benchmark
    conditions: tuple[Condition, ...]
    found: tuple[Estimate, ...]
    estimated_on: str
    heads: tuple[Head, ...]
    of_model: int
    tests: int
    measured_examples: tuple[int, ...] = ()


def study(
    lens: Lens, benchmark: Benchmark, heads: tuple[Head, ...], plan: SweepPlan, units: Units | None
) -> Study:
    """Estimate importance where it is wanted, and list the conditions.

    *cumulative* estimates on one half of the examples and is measured on the other; any other sweep does both
    on all of them.

    Args:
        lens: the model.
        benchmark: what it is measured on.
        heads: the heads in question, in model order.
        plan: what is done with them.
        units: finished work on disk; None keeps none.

    Returns:
        What is to be measured.

    Raises:
        InputError: the plan does not fit the model or the benchmark.
        RunError: the run that tags are taken from is unfit.
    """
    choice = Choice(lens.anatomy, heads, step=plan.step, draws=plan.draws, seed=plan.options.seed)
    if plan.sweep == "cumulative":
        return _by_halves(lens, benchmark, choice, plan, units)
    order = tuple(name for name in plan.order if (plan.sweep, name) != ("each", "each"))
    if plan.screen is not None and not order:
        order = ("gradient",)
    if plan.sweep == "tags" and plan.tagged_by is not None:
        choice = replace(choice, tagged=_tagged(lens, heads, plan))
    found = estimates(lens, benchmark, heads, replace(plan, order=order), units)
    chosen = _screened(found[0], plan.screen) if plan.screen is not None else heads
    conditions = tuple(SWEEPS[plan.sweep](replace(choice, heads=chosen)))
    tests = sum(not one.control_of for one in conditions)
    said = f"all {benchmark.facts['examples']} examples"
    tests = max(tests, len(heads) if plan.screen else 0)
    return Study(benchmark, conditions, tuple(found), said, heads, len(lens.anatomy.heads), tests)


def _by_halves(
    lens: Lens, benchmark: Benchmark, choice: Choice, plan: SweepPlan, units: Units | None
) -> Study:
    numbers = halves(benchmark, plan.options.seed)
    first, second = (benchmark.take(half) for half in numbers)
    order = plan.order or default_order(benchmark)
    found = estimates(lens, first, choice.heads, replace(plan, order=order), units)
    choice = replace(choice, order=removal_order(found[0]), random=order[0] == "random")
    conditions = tuple(SWEEPS[plan.sweep](choice))
    said = f"a random half, {first.facts['examples']} examples, and measured on the other"
    tests = sum(not one.control_of for one in conditions)
    of_model = len(lens.anatomy.heads)
    return Study(second, conditions, tuple(found), said, choice.heads, of_model, tests, tuple(numbers[1]))


def _screened(found: Estimate, most: int) -> tuple[Head, ...]:
    """The heads that rank first, in model order."""
    chosen = set(removal_order(found)[-most:])
    return tuple(head for head in found.heads if head in chosen)


def _tagged(lens: Lens, heads: tuple[Head, ...], plan: SweepPlan) -> dict[str, tuple[Head, ...]]:
    assert plan.tagged_by is not None  # the plan was checked
    known = tagged_heads(lens, plan.tagged_by)
    chosen = {tag: tuple(head for head in mine if head in heads) for tag, mine in known.items()}
    chosen = {tag: mine for tag, mine in chosen.items() if mine}
    if not chosen:
        raise InputError(
            "None of the heads in question has a tag.", "Name others with --heads, or leave it out."
        )
    return chosen


# ---- From per-example values to what a sweep says: comparisons, tables, headlines and warnings


def assemble(study: Study, measuring: Measuring, values: Sequence[Array], plan: SweepPlan) -> Sweep:
    """Compare every condition with the baseline, and lay everything out.

    Args:
        study: what was measured.
        measuring: what measured it.
        values: per-example values of each condition.
        plan: what was asked for.

    Returns:
        The result.
    """
    baseline = measuring.baseline()
    metrics = tuple(study.benchmark.metrics)
    measured = {one.name: found for one, found in zip(study.conditions, values, strict=True)}
    drawn = draws(len(baseline), plan.options.seed)
    compared = []
    for metric in metrics:
        found: dict[str, tuple[PairedComparison, int]] = {}
        for random in (False, True):
            names = [one.name for one in study.conditions if bool(one.control_of) == random]
            made = compare(
                metric, baseline, [measured[name] for name in names], drawn, 0 if random else study.tests
            )
            found |= {name: (made, place) for place, name in enumerate(names)}
        compared.append(found)
    table = tabulate(study.conditions, plan.sweep, plan.mode, metrics, compared, len(baseline))
    importance = _importance(study, table, plan)
    roles = [one.roles for one in study.found if one.roles is not None]
    agreed = agreement(importance)
    return Sweep(
        kind=plan.sweep,
        table=table,
        importance=importance,
        run=_facts(study, measuring, plan, table, agreed),
        metrics=metrics,
        conditions=study.conditions,
        baseline=baseline,
        values=measured,
        controls=against_controls(study.conditions, metrics, table),
        agreement=agreed,
        gates=roles[0] if roles else pd.DataFrame(columns=GATES),
        notes=_notes(study, measuring, baseline, measured),
    )


def _importance(study: Study, table: pd.DataFrame, plan: SweepPlan) -> pd.DataFrame:
    parts = [table_of(study.found)] if study.found else []
    if plan.sweep == "each":
        primary = study.benchmark.metrics[0]
        rows = table[table["metric"] == primary.name].set_index("condition")["delta"]
        by_head = {one.heads[0]: rows[one.name] for one in study.conditions}
        parts.insert(0, from_each(study.heads, by_head, primary))
    return pd.concat(parts, ignore_index=True) if parts else no_importance()


def _notes(
    study: Study, measuring: Measuring, baseline: Array, measured: Mapping[str, Array]
) -> tuple[str, ...]:
    warn = getattr(study.benchmark, "warn", None)
    own: tuple[str, ...] = warn(baseline) if warn is not None else ()
    alike = same_input(study.benchmark, baseline)
    return (*own, *alike, *notes(baseline, measured), *filter(None, [measuring.note]))


def _facts(
    study: Study, measuring: Measuring, plan: SweepPlan, table: pd.DataFrame, agreed: pd.DataFrame
) -> dict[str, Any]:
    benchmark = study.benchmark
    baseline = measuring.baseline()
    facts: dict[str, Any] = {
        "benchmark": {"name": benchmark.name, **benchmark.facts},
        "baseline": {metric.name: float(metric.value(baseline)) for metric in benchmark.metrics},
        "larger_is_better": {metric.name: metric.larger_is_better for metric in benchmark.metrics},
        "heads_in_question": len(study.heads),
        "heads_of_model": study.of_model,
        "conditions": len(study.conditions),
        "conditions_reused": measuring.reused,
        "resamples": RESAMPLES,
        "resampled_unit": benchmark.facts.get("example", "example"),
        "prefix_reuse": measuring.facts,
        "engine": measuring.engine.facts,
    }
    if study.found:
        facts["importance"] = {one.method: one.facts for one in study.found}
        facts["importance_estimated_on"] = study.estimated_on
        facts["importance_agreement"] = agreed.to_dict("records")
    if study.measured_examples:
        facts["measured_examples"] = list(study.measured_examples)
    if plan.sweep == "cumulative":
        ordered = [one.name for one in study.conditions if not one.control_of]
        primary = (table["metric"] == benchmark.metrics[0].name) & table["condition"].isin(ordered)
        facts["largest_share_without_significant_loss"] = headline(table[primary], len(study.heads))
    return facts
