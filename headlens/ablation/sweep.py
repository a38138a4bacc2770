"""A sweep: a benchmark run under every condition, each compared with the baseline."""

from __future__ import annotations

import sys
import warnings
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch
import transformers
from tqdm import tqdm

import headlens
from headlens.ablation.compare import compare
from headlens.ablation.conditions import Condition, conditions
from headlens.ablation.importance import from_each
from headlens.ablation.result import Sweep, notes, tabulate
from headlens.ablation.units import Units, fingerprint
from headlens.benchmarks.base import Benchmark, open_benchmark, sample_benchmark
from headlens.benchmarks.inputs import Options
from headlens.benchmarks.metrics import Array
from headlens.errors import InputError
from headlens.heads import Head
from headlens.lens import Lens
from headlens.statistics import RESAMPLES, draws

BASELINE = "baseline"


@dataclass(frozen=True, slots=True)
class Plan:
    """What a sweep does.

    Args:
        sweep: which heads are taken out together, a name in `headlens.ablation.conditions.SWEEPS`.
        mode: what stands in their place, a name in `headlens.ablation.modes.MODES`.
        heads: the heads that may be taken out; all that the benchmark runs by default.
        options: how the benchmark is read and run, and the seed of everything drawn at random.
        out: run directory that keeps finished conditions; None keeps none.
        overwrite: throw away another run that `out` holds.
        progress: show a progress bar on stderr.
    """

    sweep: str = "each"
    mode: str = "zero"
    heads: str | Head | Sequence[Head] | None = None
    options: Options = field(default_factory=Options)
    out: Path | None = None
    overwrite: bool = False
    progress: bool = False


def sweep(
    lens: Lens,
    benchmark: str | Benchmark | None = None,
    sweep: str = "each",
    mode: str = "zero",
    heads: str | Head | Sequence[Head] | None = None,
    *,
    seed: int = 0,
    batch_size: int | None = None,
    max_length: int | None = None,
    columns: Sequence[str] = (),
    allow_random_weights: bool = False,
    out: str | Path | None = None,
    overwrite: bool = False,
    progress: bool = False,
) -> Sweep:
    """Take heads out and measure what a benchmark loses.

    Args:
        lens: the model.
        benchmark: ``similarity:pairs.tsv``, ``language:book.txt``, or a benchmark; by default the bundled
            sample for this kind of model.
        sweep: "each": every head alone.
        mode: "zero": a head's output before W_O is set to 0.
        heads: the heads to take out, such as ``4.*``; all by default.
        seed: of resamples and masked positions, 0 or more.
        batch_size: inputs at once; by default as suits their length.
        max_length: longest input in tokens.
        columns: columns of the benchmark's file, by name or number.
        allow_random_weights: accept a task head whose weights the checkpoint lacks.
        out: run directory that keeps finished conditions; a second call with the same arguments goes on
            from there.
        overwrite: throw away another run that `out` holds.
        progress: show a progress bar on stderr.

    Returns:
        Tables of effects and of importance, and the per-example values they come from.

    Raises:
        InputError: an argument or the benchmark's file is unfit.
        ModelError: this model cannot do the benchmark.
        RunError: `out` holds another run, or cannot be written.
    """
    options = Options(tuple(columns), batch_size, max_length, seed, allow_random_weights)
    place = None if out is None else Path(out)
    plan = Plan(sweep, mode, heads, options, place, overwrite, progress)
    result = run_sweep(lens, open_for(lens, benchmark, options), plan)
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
    listed = conditions(plan.sweep, lens.anatomy, _heads(lens, benchmark, plan), plan.mode)
    units = None
    if plan.out is not None:
        units = Units(plan.out, _key(lens, benchmark, plan), plan.overwrite)
    measured: dict[str, Array] = {}
    reused = 0
    for name, values, known in _measured(lens, benchmark, listed, units, plan.progress):
        measured[name] = values
        reused += known
    baseline = measured.pop(BASELINE)
    metrics = tuple(benchmark.metrics)
    drawn = draws(len(baseline), plan.options.seed)
    compared = [compare(metric, baseline, list(measured.values()), drawn) for metric in metrics]
    facts = {
        "benchmark": {"name": benchmark.name, **benchmark.facts},
        "baseline": {metric.name: one.baseline for metric, one in zip(metrics, compared, strict=True)},
        "conditions": len(listed),
        "conditions_reused": max(0, reused - 1),
        "resamples": RESAMPLES,
        "resampled_unit": benchmark.facts.get("example", "example"),
    }
    return Sweep(
        table=tabulate(listed, plan.sweep, metrics, compared, len(baseline)),
        importance=from_each(listed, metrics[0], compared[0]),
        run=facts,
        metrics=metrics,
        baseline=baseline,
        values=measured,
        notes=notes(baseline, measured),
    )


def _heads(lens: Lens, benchmark: Benchmark, plan: Plan) -> tuple[Head, ...]:
    if plan.heads is None:
        return tuple(head for head in lens.anatomy.heads if head.stack in benchmark.stacks)
    chosen = lens.anatomy.select(plan.heads)
    idle = next((head for head in chosen if head.stack not in benchmark.stacks), None)
    if idle is not None or not chosen:
        problem = "No heads are named." if idle is None else f"{benchmark.name} never runs head {idle}."
        raise InputError(problem, f"Choose heads of: {', '.join(benchmark.stacks)}.")
    return chosen


def _measured(
    lens: Lens, benchmark: Benchmark, listed: Sequence[Condition], units: Units | None, progress: bool
) -> Iterator[tuple[str, Array, bool]]:
    """Name, values, and whether they were on disk: the baseline first, then every condition."""
    n_examples = int(benchmark.facts["examples"])
    # the baseline passes through the seam as well, so that only the ablation can make a difference
    mode = listed[0].mode
    for condition in tqdm(
        [Condition(BASELINE, (), mode), *listed], "ablate", disable=not progress, file=sys.stderr, unit="run"
    ):
        values = units.load(condition.name, n_examples) if units else None
        known = values is not None
        if values is None:
            with lens.ablate(condition.heads, condition.mode):
                values = benchmark.measure(lens)
            if units:
                units.save(condition.name, values)
        yield condition.name, values, known


def _key(lens: Lens, benchmark: Benchmark, plan: Plan) -> dict[str, Any]:
    """Everything that the values of a condition depend on."""
    heads = [lens.anatomy.name(head) for head in _heads(lens, benchmark, plan)]
    poolers = [name for name in lens.missing if "pooler" in name]  # random at every load, and read by nobody
    return {
        "benchmark": benchmark.name,
        **{f"benchmark_{name}": value for name, value in benchmark.facts.items() if name != "path"},
        "columns": list(plan.options.columns),
        "sweep": plan.sweep,
        "mode": plan.mode,
        "heads": " ".join(heads),
        "seed": plan.options.seed,
        "batch_size": plan.options.batch_size,
        "max_length": plan.options.max_length,
        "architecture": lens.anatomy.architecture,
        "dtype": str(lens.model.dtype),
        "device": lens.device.type,
        "weights": fingerprint(lens.model, poolers),
        "headlens": headlens.__version__,
        "torch": torch.__version__,
        "transformers": transformers.__version__,
    }
