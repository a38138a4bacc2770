"""A sweep: a benchmark run under every condition, each compared with the baseline."""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from contextlib import nullcontext
from pathlib import Path

from headlens.ablation.assembling import assemble
from headlens.ablation.conditions import DRAWS
from headlens.ablation.key import run_key
from headlens.ablation.measuring import Measuring
from headlens.ablation.plan import Plan
from headlens.ablation.prefix import MEMORY
from headlens.ablation.result import Sweep
from headlens.ablation.study import study
from headlens.ablation.units import Units
from headlens.benchmarks.base import Options
from headlens.benchmarks.registry import Benchmark, open_benchmark, sample_benchmark
from headlens.engine.local import Engine
from headlens.errors import InputError
from headlens.model.heads import Head
from headlens.model.lens import Lens
from headlens.util.files import locked


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
    plan = Plan(
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
        options=Options(tuple(columns), batch_size, max_length, seed, allow_random_weights, beams),
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


def open_for(lens: Lens, benchmark: str | Benchmark | None, options: Options) -> Benchmark:
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


def run_sweep(lens: Lens, benchmark: Benchmark, plan: Plan) -> Sweep:
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


def _swept(lens: Lens, benchmark: Benchmark, heads: tuple[Head, ...], plan: Plan) -> Sweep:
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


def _heads(lens: Lens, benchmark: Benchmark, plan: Plan) -> tuple[Head, ...]:
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
