"""The sweep: removes heads and measures what is lost."""

from __future__ import annotations

import hashlib
import sys
import warnings
from collections.abc import Callable, Mapping, Sequence
from contextlib import nullcontext
from dataclasses import dataclass, fields, replace
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import torch
import transformers
from tqdm import tqdm

from headlens.ablation.importance import (
    Estimate,
    ImportanceSettings,
    agreement,
    badness,
    estimate,
    from_each,
    removed_sets,
)
from headlens.ablation.measure import Measuring, Units
from headlens.ablation.plan import DRAWS, SWEEPS, Choice, Condition, SweepPlan, each
from headlens.ablation.prefix import MEMORY
from headlens.ablation.result import (
    Sweep,
    against_controls,
    best_of_layers,
    compare,
    headline,
    no_importance,
    notes,
    same_input,
    tabulate,
)
from headlens.benchmarks.base import MIN_EXAMPLES, BenchmarkOptions
from headlens.benchmarks.metrics import Array
from headlens.benchmarks.registry import Benchmark, Differentiable, open_benchmark, sample_benchmark
from headlens.engine.local import Engine, Here
from headlens.errors import InputError
from headlens.model.heads import Head
from headlens.model.lens import Lens, fingerprint
from headlens.runs.read import tagged_heads
from headlens.runs.result import Clock, Examples, record
from headlens.util import __version__
from headlens.util.files import GATES, file_sha256, locked
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
        out: directory that keeps finished conditions, so that a second call with the same arguments goes on
            from there; `Sweep.save` writes the result.
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
    result = run_sweep(lens, benchmark, plan)
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


def run_sweep(lens: Lens, benchmark: str | Benchmark | None, plan: SweepPlan) -> Sweep:
    """Carry out a plan.

    Args:
        lens: the model.
        benchmark: what it is measured on, see `open_for`.
        plan: what to take out and how.

    Returns:
        What was measured.

    Raises:
        InputError: the plan names what does not exist, or heads that the benchmark never runs.
        RunError: `plan.out` holds another run, or cannot be written.
    """
    clock = Clock.start()
    plan.check()
    opened = open_for(lens, benchmark, plan.options)
    with nullcontext() if plan.out is None else locked(plan.out):
        heads = _heads(lens, opened, plan)
        units = None
        if plan.out is not None:
            units = Units(plan.out, run_key(lens, opened, heads, plan), plan.overwrite)
        wanted = _study(lens, opened, heads, plan, units)
        measuring = Measuring(
            lens, wanted.benchmark, plan.mode, units, prefix_memory=plan.prefix_memory,
            seed=plan.options.seed, progress=plan.progress, engine=plan.engine,
        )  # fmt: skip
        result = _assemble(wanted, measuring, measuring.values(wanted.conditions), plan)
    said = {one.name: getattr(plan, one.name) for one in fields(plan) if one.name not in _NOT_SAID}
    facts = {**result.run, "bundled_sample": benchmark is None}
    run = record("ablate", lens, said, facts, clock)
    return replace(result, run=run, examples=Examples(lens, opened))


_NOT_SAID = ("engine", "progress", "overwrite")  # options that a record leaves out


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
class _Study:
    """What a sweep will measure.

    Args:
        lens: the model.
        benchmark: what conditions are measured on.
        conditions: in the order of the tables.
        found: estimates of importance, by method.
        estimated_on: how many examples they rest on, in words.
        measured_examples: numbers of the examples that conditions are measured on, where not all are.
        heads: the heads in question.
        tests: how many conditions were in question; more than there are where heads were screened.
    """

    lens: Lens
    benchmark: Benchmark
    conditions: tuple[Condition, ...]
    found: tuple[Estimate, ...]
    estimated_on: str
    heads: tuple[Head, ...]
    tests: int
    measured_examples: tuple[int, ...] = ()


def _study(
    lens: Lens, benchmark: Benchmark, heads: tuple[Head, ...], plan: SweepPlan, units: Units | None
) -> _Study:
    """Estimate importance where it is wanted, and list the conditions.

    *cumulative* estimates on one half of the examples and is measured on the other; any other sweep does both
    on all of them.
    """
    choice = Choice(lens.anatomy, heads, step=plan.step, draws=plan.draws, seed=plan.options.seed)
    if plan.sweep == "cumulative":
        return _by_halves(lens, benchmark, choice, plan, units)
    order = tuple(name for name in plan.order if (plan.sweep, name) != ("each", "each"))
    if plan.screen is not None and not order:
        order = ("gradient",)
    if plan.sweep == "tags" and plan.tagged_by is not None:
        choice = replace(choice, tagged=_tagged(lens, heads, plan))
    found = _estimates(lens, benchmark, heads, order, plan, units)
    chosen = _screened(found[0], plan.screen) if plan.screen is not None else heads
    conditions = tuple(SWEEPS[plan.sweep](replace(choice, heads=chosen)))
    tests = sum(not one.control_of for one in conditions)
    said = f"all {benchmark.facts['examples']} examples"
    tests = max(tests, len(heads) if plan.screen else 0)
    return _Study(lens, benchmark, conditions, tuple(found), said, heads, tests)


def _by_halves(
    lens: Lens, benchmark: Benchmark, choice: Choice, plan: SweepPlan, units: Units | None
) -> _Study:
    numbers = halves(benchmark, plan.options.seed)
    first, second = (benchmark.take(half) for half in numbers)
    order = plan.order or (("gradient",) if isinstance(benchmark, Differentiable) else ("each",))
    found = _estimates(lens, first, choice.heads, order, plan, units)
    choice = replace(choice, order=_removal_order(found[0]), random=order[0] == "random")
    conditions = tuple(SWEEPS[plan.sweep](choice))
    said = f"a random half, {first.facts['examples']} examples, and measured on the other"
    tests = sum(not one.control_of for one in conditions)
    return _Study(lens, second, conditions, tuple(found), said, choice.heads, tests, tuple(numbers[1]))


def _screened(found: Estimate, most: int) -> tuple[Head, ...]:
    """The heads that rank first, in model order."""
    chosen = set(_removal_order(found)[-most:])
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


def _assemble(study: _Study, measuring: Measuring, values: Sequence[Array], plan: SweepPlan) -> Sweep:
    """Compare every condition with the baseline, and lay everything out."""
    baseline = measuring.baseline()
    metrics = study.benchmark.metrics
    measured = {one.name: found for one, found in zip(study.conditions, values, strict=True)}
    drawn = draws(len(baseline), plan.options.seed)
    compared = []
    for metric in metrics:
        parts = []
        for random in (False, True):
            names = [one.name for one in study.conditions if bool(one.control_of) == random]
            if names:
                mine = [measured[name] for name in names]
                made = compare(metric, baseline, mine, drawn, 0 if random else study.tests)
                parts.append(made.table(names))
        compared.append(pd.concat(parts))
    table = tabulate(study.conditions, plan.sweep, plan.mode, metrics, compared, len(baseline))
    importance = _importance(study, table, plan)
    roles = [one.roles for one in study.found if one.roles is not None]
    named = study.lens.anatomy.name
    said = _notes(study, measuring, baseline, measured)
    return Sweep(
        table=table,
        importance=importance,
        run={**_facts(study, measuring, plan, table, importance), "notes": said},
        controls=against_controls(study.conditions, metrics, table),
        gates=roles[0] if roles else pd.DataFrame(columns=GATES),
        best=best_of_layers(study.conditions, measured, baseline, metrics[0], named),
        baseline=baseline,
        values=measured,
    )


def _importance(study: _Study, table: pd.DataFrame, plan: SweepPlan) -> pd.DataFrame:
    parts = [one.importance for one in study.found]
    if plan.sweep == "each":
        primary = study.benchmark.metrics[0]
        rows = table[table["metric"] == primary.name].set_index("condition")["delta"]
        by_head = {one.heads[0]: rows[one.name] for one in study.conditions}
        parts.insert(0, from_each(study.heads, by_head, primary))
    return pd.concat(parts, ignore_index=True) if parts else no_importance()


def _notes(
    study: _Study, measuring: Measuring, baseline: Array, measured: Mapping[str, Array]
) -> tuple[str, ...]:
    warn = getattr(study.benchmark, "warn", None)
    own: tuple[str, ...] = warn(baseline) if warn is not None else ()
    alike = same_input(study.benchmark, baseline)
    return (*own, *alike, *notes(baseline, measured), *filter(None, [measuring.note]))


def _facts(
    study: _Study, measuring: Measuring, plan: SweepPlan, table: pd.DataFrame, importance: pd.DataFrame
) -> dict[str, Any]:
    benchmark = study.benchmark
    baseline = measuring.baseline()
    facts: dict[str, Any] = {
        "benchmark": {"name": benchmark.name, **benchmark.facts},
        "baseline": {metric.name: float(metric.value(baseline)) for metric in benchmark.metrics},
        "larger_is_better": {metric.name: metric.larger_is_better for metric in benchmark.metrics},
        "metric_labels": {metric.name: metric.label for metric in benchmark.metrics},
        "heads_in_question": len(study.heads),
        "heads_of_model": len(study.lens.anatomy.heads),
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
        facts["importance_agreement"] = agreement(importance).to_dict("records")
    if study.measured_examples:
        facts["measured_examples"] = list(study.measured_examples)
    if plan.sweep == "cumulative":
        ordered = [one.name for one in study.conditions if not one.control_of]
        primary = (table["metric"] == benchmark.metrics[0].name) & table["condition"].isin(ordered)
        facts["largest_share_without_significant_loss"] = headline(table[primary], len(study.heads))
    return facts


# ---- Importance of heads for a sweep: estimated once by each method that is asked for, and kept on disk


def halves(benchmark: Benchmark, seed: int) -> tuple[list[int], list[int]]:
    """Split examples at random: estimate on one half, and measure on the other what the estimate chose."""
    n = int(benchmark.facts["examples"])
    if n < 2 * MIN_EXAMPLES:
        raise InputError(
            f"{benchmark.name} has {n} examples. Importance is estimated on one half of them and measured on "
            f"the other, which takes {2 * MIN_EXAMPLES} or more.",
            "Give a longer file, or choose another sweep.",
        )
    order = np.random.default_rng(seed).permutation(n)
    return sorted(order[: n // 2].tolist()), sorted(order[n // 2 :].tolist())


def _estimates(
    lens: Lens,
    benchmark: Benchmark,
    heads: tuple[Head, ...],
    order: Sequence[str],
    plan: SweepPlan,
    units: Units | None,
) -> list[Estimate]:
    """Estimate importance by several methods, with the settings of a plan; `units` keep what is finished."""
    return [_kept(lens, benchmark, heads, method, plan, units) for method in order]


def _removal_order(found: Estimate) -> tuple[Head, ...]:
    """Order heads for removal: the least important first, of equals the last of the model.

    A head without number (the metric is not defined without it) counts as the most important.
    """
    worth = np.where(np.isnan(found.values), np.inf, found.values)
    ranks = np.argsort(-worth, kind="stable")
    return tuple(found.heads[place] for place in ranks[::-1])


def _kept(
    lens: Lens,
    benchmark: Benchmark,
    heads: tuple[Head, ...],
    method: str,
    plan: SweepPlan,
    units: Units | None,
) -> Estimate:
    name = f"importance {method}"
    known = units.load_facts(name) if units else None
    if known is None:
        made = _made(lens, benchmark, heads, method, plan, units)
        known = {
            "values": made.values.tolist(),
            "error": None if made.error is None else made.error.tolist(),
            "facts": dict(made.facts),
            "roles": None if made.roles is None else made.roles.to_dict("list"),
        }
        if units:
            units.save_facts(name, known)
    return Estimate(
        method,
        heads,
        np.array(known["values"], dtype=np.float64),
        None if known["error"] is None else np.array(known["error"], dtype=np.float64),
        known["facts"],
        None if known["roles"] is None else pd.DataFrame(known["roles"]),
    )


def _made(
    lens: Lens,
    benchmark: Benchmark,
    heads: tuple[Head, ...],
    method: str,
    plan: SweepPlan,
    units: Units | None,
) -> Estimate:
    if method == "each":
        return _measured(lens, benchmark, heads, plan, units)
    seed, permutations, known = plan.options.seed, plan.permutations, None
    if method == "shapley":
        sets = removed_sets(heads, permutations, seed)
        known = _losses(lens, benchmark, sets, units, plan.engine, plan.progress)
    settings = ImportanceSettings(
        normalise=plan.normalise,
        permutations=permutations,
        seed=seed,
        value=None if known is None else known.__getitem__,
        progress=plan.progress and known is None,
    )
    return estimate(lens, benchmark, heads, method, settings)


def _measured(
    lens: Lens, benchmark: Benchmark, heads: tuple[Head, ...], plan: SweepPlan, units: Units | None
) -> Estimate:
    """The loss of the primary metric when each head is removed alone."""
    measuring = Measuring(
        lens, benchmark, plan.mode, units, label="importance ", prefix_memory=plan.prefix_memory,
        seed=plan.options.seed, progress=plan.progress, engine=plan.engine,
    )  # fmt: skip
    metric = benchmark.metrics[0]
    start = metric.value(measuring.baseline())
    found = measuring.values(each(Choice(lens.anatomy, heads)))
    deltas = np.array([metric.value(values) - start for values in found])
    return Estimate("each", heads, 0.0 - deltas if metric.larger_is_better else deltas)


# ---- How bad a model is without each of many sets of heads: measured once per set, kept on disk


Heads = frozenset[Head]


@dataclass(frozen=True, eq=False)
class _Losing:
    """The work of measuring a benchmark's loss without some heads."""

    benchmark: Benchmark

    def begin(self, lens: Lens) -> Callable[[Heads], float]:
        """See `headlens.engine.local.Work`."""
        return badness(lens, self.benchmark)


def _losses(
    lens: Lens,
    benchmark: Benchmark,
    sets: Sequence[Heads],
    units: Units | None,
    engine: Engine | None = None,
    progress: bool = False,
) -> dict[Heads, float]:
    """Measure what is lost without sets of heads, see `headlens.ablation.importance.badness`."""
    names = {out: _name(out) for out in sets}
    known: dict[Heads, float] = {}
    for out, name in names.items():
        found = units.load_facts(name) if units else None
        if found is not None:
            known[out] = float(found)
    queue = [out for out in sets if out not in known]
    with tqdm(
        total=len(sets), initial=len(known), desc="remove", disable=not progress, file=sys.stderr, unit="run"
    ) as bar:
        for number, loss in (engine or Here()).run(lens, _Losing(benchmark), queue):
            known[queue[number]] = float(loss)
            if units:
                units.save_facts(names[queue[number]], float(loss))
            bar.update()
    return known


def _name(out: Heads) -> str:
    text = " ".join(map(str, sorted(out)))
    return f"without {hashlib.sha256(text.encode()).hexdigest()[:24]}"


# ---- Everything that the values of a sweep depend on: a run directory made with another key is refused


def run_key(lens: Lens, benchmark: Benchmark, heads: tuple[Head, ...], plan: SweepPlan) -> dict[str, Any]:
    """Put together what a sweep's values depend on: equal keys, equal values.

    Where files lie is not part of it, what is in them is.
    """
    poolers = [name for name in lens.missing if "pooler" in name]  # random at every load
    tagged_by = plan.tagged_by if plan.sweep == "tags" else None
    read_by_nobody = [] if getattr(benchmark, "reads_pooler", False) else poolers
    return {
        "benchmark": benchmark.name,
        **{f"benchmark_{name}": value for name, value in benchmark.facts.items() if name != "path"},
        "columns": list(plan.options.columns),
        "sweep": plan.sweep,
        "mode": plan.mode,
        "heads": " ".join(lens.anatomy.name(head) for head in heads),
        "order": list(plan.order),
        "step": plan.step,
        "draws": plan.draws,
        "screen": plan.screen,
        "tags": file_sha256([tagged_by / "tags.csv"]) if tagged_by else None,
        "permutations": plan.permutations,
        "normalise": plan.normalise,
        "seed": plan.options.seed,
        "batch_size": plan.options.batch_size,
        "max_length": plan.options.max_length,
        "beams": plan.options.beams,
        "architecture": lens.anatomy.architecture,
        "dtype": str(lens.model.dtype),
        "device": (plan.engine or Here()).device(lens),
        "weights": fingerprint(lens.model, read_by_nobody),
        "headlens": __version__,
        "torch": torch.__version__,
        "transformers": transformers.__version__,
    }
