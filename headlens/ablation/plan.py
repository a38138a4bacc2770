"""What a sweep will do: its options, the order of its heads, and the key that decides whether it goes on."""

from __future__ import annotations

import hashlib
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import torch
import transformers
from tqdm import tqdm

from headlens.ablation.conditions import DRAWS, Choice, check_sweep, each
from headlens.ablation.importance import (
    METHODS,
    Estimate,
    ImportanceSettings,
    badness,
    estimate,
    removed_sets,
)
from headlens.ablation.measure import Measuring, Units
from headlens.ablation.prefix import MEMORY
from headlens.benchmarks.base import MIN_EXAMPLES, BenchmarkOptions
from headlens.benchmarks.registry import Benchmark, Differentiable
from headlens.engine.local import Engine, Here
from headlens.errors import InputError
from headlens.model.heads import Head
from headlens.model.lens import Lens, fingerprint
from headlens.model.replacements import check_mode
from headlens.runs.read import tags_sha256
from headlens.util import __version__

ORDERS = ("each", *METHODS)


@dataclass(frozen=True, slots=True)
class SweepPlan:
    """What a sweep does.

    Args:
        sweep: which heads are taken out together, a name in `headlens.ablation.conditions.SWEEPS`.
        mode: what stands in their place, a name in `headlens.model.replacements.MODES`.
        heads: the heads that may be taken out; all that the benchmark runs by default.
        order: how importance is estimated, names in `ORDERS`; *cumulative* goes by the first.
        step: share of heads that *cumulative* takes out at each step, 0..1.
        draws: random sets that *tags* and *cumulative* hold each of theirs against.
        screen: *each* measures only the so many heads that rank first by the first `order` (by the gradient
            if there is none); None measures all.
        tagged_by: run directory of `classify` whose tags *tags* takes heads from.
        permutations: how many orders *shapley* removes heads in.
        normalise: "layer" divides gradient importance by its layer's norm.
        options: how the benchmark is read and run, and the seed of everything drawn at random.
        out: run directory that keeps finished conditions; None keeps none.
        overwrite: throw away another run that `out` holds.
        prefix_memory: bytes that prefix reuse may keep; 0 turns it off.
        progress: show a progress bar on stderr.
        engine: where conditions are measured; here by default.
    """

    sweep: str = "each"
    mode: str = "zero"
    heads: str | Head | Sequence[Head] | None = None
    order: tuple[str, ...] = ()
    step: float = 0.1
    draws: int = DRAWS
    screen: int | None = None
    tagged_by: Path | None = None
    permutations: int = 10
    normalise: str | None = None
    options: BenchmarkOptions = field(default_factory=BenchmarkOptions)
    out: Path | None = None
    overwrite: bool = False
    prefix_memory: int = MEMORY
    progress: bool = False
    engine: Engine | None = None

    def check(self) -> None:
        """Refuse what cannot be done, before anything is run.

        Raises:
            InputError: a name that does not exist, or things that do not go together.
        """
        check_sweep(self.sweep)
        check_mode(self.mode)
        for order in self.order:
            if order not in ORDERS:
                raise InputError(f"There is no order {order!r}.", f"Choose one of: {', '.join(ORDERS)}.")
        if not 0 < self.step <= 1:
            raise InputError(
                f"Expected a step above 0 and up to 100 %, found {self.step:.0%}.", "Type --step 10%."
            )
        if self.sweep in ("tags", "cumulative") and self.draws < 2:
            raise InputError(f"Expected 2 random sets or more, found {self.draws}.", f"Type --draws {DRAWS}.")
        if self.sweep == "tags" and self.tagged_by is None:
            raise InputError(
                "The sweep tags needs to know which heads carry them.",
                "Run headlens classify first, and name its directory with --from.",
            )
        if self.sweep == "set" and self.heads is None:
            raise InputError("The sweep set needs its heads.", "Name them with --heads, such as 2.8,3.*.")
        if self.screen is not None and (self.sweep != "each" or self.screen < 1):
            raise InputError(
                "Screening is for --sweep each, and measures 1 head or more.",
                "Type --sweep each --screen 20.",
            )


# ---- Importance of heads for a sweep: estimated once by each method that is asked for, and kept on disk


def halves(benchmark: Benchmark, seed: int) -> tuple[list[int], list[int]]:
    """Split examples at random: estimate on one half, and measure on the other what the estimate chose.

    Args:
        benchmark: what is split.
        seed: of the split.

    Returns:
        Numbers of examples, from 0, in order; none is in both.

    Raises:
        InputError: it has too few examples.
    """
    n = int(benchmark.facts["examples"])
    if n < 2 * MIN_EXAMPLES:
        raise InputError(
            f"{benchmark.name} has {n} examples. Importance is estimated on one half of them and measured on "
            f"the other, which takes {2 * MIN_EXAMPLES} or more.",
            "Give a longer file, or choose another sweep.",
        )
    order = np.random.default_rng(seed).permutation(n)
    return sorted(order[: n // 2].tolist()), sorted(order[n // 2 :].tolist())


def estimates(
    lens: Lens, benchmark: Benchmark, heads: tuple[Head, ...], plan: SweepPlan, units: Units | None
) -> list[Estimate]:
    """Estimate importance by every method of a plan.

    Args:
        lens: the model.
        benchmark: what it is estimated on.
        heads: the heads under study.
        plan: names the methods and their settings.
        units: finished work on disk; None keeps none.

    Returns:
        One estimate per method, in the plan's order.
    """
    return [_kept(lens, benchmark, heads, method, plan, units) for method in plan.order]


def removal_order(found: Estimate) -> tuple[Head, ...]:
    """Order heads for removal: the least important first, of equals the last of the model.

    Args:
        found: an estimate; a head without number (the metric is not defined without it) counts as the
            most important.

    Returns:
        The heads.
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
        known = losses(lens, benchmark, sets, units, plan.engine, plan.progress)
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


def default_order(benchmark: Benchmark) -> tuple[str, ...]:
    """Choose how importance is estimated where the user does not say.

    Args:
        benchmark: what it is estimated on.

    Returns:
        *gradient* where the benchmark has losses, else *each*.
    """
    return ("gradient",) if isinstance(benchmark, Differentiable) else ("each",)


def table_of(found: Sequence[Estimate]) -> pd.DataFrame:
    """Put estimates together as `importance.csv`.

    Args:
        found: the estimates.

    Returns:
        A row per method and head.
    """
    return pd.concat([one.importance for one in found], ignore_index=True)


# ---- How bad a model is without each of many sets of heads: measured once per set, kept on disk


Heads = frozenset[Head]


@dataclass(frozen=True, eq=False)
class Losing:
    """The work of measuring a benchmark's loss without some heads.

    Args:
        benchmark: what is measured.
    """

    benchmark: Benchmark

    def begin(self, lens: Lens) -> Callable[[Heads], float]:
        """See `headlens.engine.local.Work`."""
        return badness(lens, self.benchmark)


def losses(
    lens: Lens,
    benchmark: Benchmark,
    sets: Sequence[Heads],
    units: Units | None,
    engine: Engine | None = None,
    progress: bool = False,
) -> dict[Heads, float]:
    """Measure what is lost without sets of heads, see `headlens.ablation.importance.badness`.

    Args:
        lens: the model.
        benchmark: what is measured.
        sets: the sets of heads, each once.
        units: finished work on disk; None keeps none.
        engine: where they are measured; here by default.
        progress: show a progress bar on stderr.

    Returns:
        The loss, or the metric turned so that smaller is better, by set.
    """
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
        for number, loss in (engine or Here()).run(lens, Losing(benchmark), queue):
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
    """Put together what a sweep's values depend on.

    Args:
        lens: the model.
        benchmark: what it is measured on.
        heads: the heads in question.
        plan: what is done with them.

    Returns:
        Plain data; equal keys, equal values. Where files lie is not part of it, what is in them is.
    """
    poolers = [name for name in lens.missing if "pooler" in name]  # random at every load
    read_by_nobody = [] if getattr(benchmark, "reads_pooler", False) else poolers
    tags = None if plan.tagged_by is None else tags_sha256(plan.tagged_by)
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
        "tags": tags,
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
