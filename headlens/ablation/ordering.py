"""Importance of heads for a sweep: estimated once by each method that is asked for, and kept on disk."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pandas as pd

from headlens.ablation.conditions import Choice, each
from headlens.ablation.estimates import Estimate, Settings
from headlens.ablation.losses import losses
from headlens.ablation.measuring import Measuring
from headlens.ablation.methods import estimate
from headlens.ablation.plan import Plan
from headlens.ablation.shapley import removed_sets
from headlens.ablation.units import Units
from headlens.benchmarks.base import MIN_EXAMPLES
from headlens.benchmarks.registry import Benchmark, Differentiable
from headlens.errors import InputError
from headlens.model.heads import Head
from headlens.model.lens import Lens


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
    lens: Lens, benchmark: Benchmark, heads: tuple[Head, ...], plan: Plan, units: Units | None
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
    lens: Lens, benchmark: Benchmark, heads: tuple[Head, ...], method: str, plan: Plan, units: Units | None
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
    lens: Lens, benchmark: Benchmark, heads: tuple[Head, ...], method: str, plan: Plan, units: Units | None
) -> Estimate:
    if method == "each":
        return _measured(lens, benchmark, heads, plan, units)
    seed, permutations, known = plan.options.seed, plan.permutations, None
    if method == "shapley":
        sets = removed_sets(heads, permutations, seed)
        known = losses(lens, benchmark, sets, units, plan.engine, plan.progress)
    settings = Settings(
        normalise=plan.normalise,
        permutations=permutations,
        seed=seed,
        value=None if known is None else known.__getitem__,
        progress=plan.progress and known is None,
    )
    return estimate(lens, benchmark, heads, method, settings)


def _measured(
    lens: Lens, benchmark: Benchmark, heads: tuple[Head, ...], plan: Plan, units: Units | None
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
