"""Importance of heads by every way but measuring each: the one dict that names the ways."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict
from typing import Any

import numpy as np

from headlens.ablation.estimates import Estimate, Settings
from headlens.ablation.gates import learn_gates
from headlens.ablation.gating import loss_without
from headlens.ablation.gradients import integrated, layer_norms, per_example
from headlens.ablation.importance import ranked
from headlens.ablation.shapley import badness, shapley
from headlens.ablation.showing import show
from headlens.benchmarks.metrics import Array
from headlens.benchmarks.registry import Benchmark, Differentiable
from headlens.errors import InputError
from headlens.model.finite import diagnosing
from headlens.model.heads import Head
from headlens.model.lens import Lens

Way = Callable[[Lens, Any, tuple[Head, ...], Settings], Estimate]


def gradient(lens: Lens, benchmark: Differentiable, heads: tuple[Head, ...], settings: Settings) -> Estimate:
    """Take the mean over examples of the size of a gate's derivative (Michel et al. 2019).

    It misleads where a loss is curved: a head that saturates what it does has derivative 0 and matters.
    It has no sign: a head that harms counts like one that helps.

    Args:
        lens: the model.
        benchmark: what it is measured on.
        heads: the heads under study.
        settings: `normalise`.

    Returns:
        Importances of 0 or more; the norm of a layer is that of all its heads, under study or not.
    """
    if settings.normalise is None:
        return _mean("gradient", heads, np.abs(per_example(lens, benchmark, heads)))
    layers = {(head.stack, head.layer) for head in heads}
    whole = tuple(head for head in lens.anatomy.heads if (head.stack, head.layer) in layers)
    found = np.abs(per_example(lens, benchmark, whole))
    found = found / layer_norms(found.mean(axis=0), whole)
    return _mean("gradient", heads, found[:, [whole.index(head) for head in heads]], normalise="layer")


def taylor(lens: Lens, benchmark: Differentiable, heads: tuple[Head, ...], settings: Settings) -> Estimate:
    """Estimate to first order what the loss rises by when a head is removed: its gate falls from 1 to 0.

    Args:
        lens: the model.
        benchmark: what it is measured on.
        heads: the heads under study.
        settings: not looked at.

    Returns:
        Minus the mean derivative of the loss.
    """
    return _mean("taylor", heads, -per_example(lens, benchmark, heads))


def integrate(lens: Lens, benchmark: Differentiable, heads: tuple[Head, ...], settings: Settings) -> Estimate:
    """Share out the loss of removing all heads; see `headlens.ablation.gradients.integrated`.

    Args:
        lens: the model.
        benchmark: what it is measured on.
        heads: the heads under study.
        settings: `steps`.

    Returns:
        Importances that add up to the loss without the heads minus the loss with them.
    """
    found = integrated(lens, benchmark, heads, settings.steps, settings.progress)
    on, off = loss_without(lens, benchmark), loss_without(lens, benchmark, heads)
    total = float(found.mean(axis=0).sum())
    return _mean("integrated", heads, found, steps=settings.steps, all_on=on, all_off=off, sum=total)


def permute(lens: Lens, benchmark: Benchmark, heads: tuple[Head, ...], settings: Settings) -> Estimate:
    """Average marginal effects over permutations; see `headlens.ablation.shapley`.

    Args:
        lens: the model.
        benchmark: what it is measured on.
        heads: the heads under study.
        settings: `permutations`, `seed` and `value`.

    Returns:
        Importances with their standard error over permutations.
    """
    value = settings.value or badness(lens, benchmark)
    found = shapley(heads, value, settings.permutations, settings.seed, settings.progress)
    facts: dict[str, Any] = {"permutations": settings.permutations, "seed": settings.seed}
    facts |= {"all_on": found.all_on, "all_off": found.all_off, "sum": float(found.values.sum())}
    return Estimate("shapley", heads, found.values, found.error, facts)


def gates(lens: Lens, benchmark: Differentiable, heads: tuple[Head, ...], settings: Settings) -> Estimate:
    """Learn gates under two pressures; see `headlens.ablation.gates`.

    Args:
        lens: the model.
        benchmark: what it is measured on.
        heads: the heads under study.
        settings: `fit` and `seed`.

    Returns:
        Importances in -1..1 and roles.
    """
    found = learn_gates(lens, benchmark, heads, settings.fit, settings.seed, settings.progress)
    facts = {**asdict(settings.fit), "price": found.price, "all_on": found.all_on, "all_off": found.all_off}
    facts["skipped_steps"] = found.skipped
    roles = ranked(heads, "gates", found.importance)[["stack", "layer", "head"]]
    roles = roles.assign(open_closing=found.open_closing, open_opening=found.open_opening, role=found.roles)
    return Estimate("gates", heads, found.importance, None, {**facts, "seed": settings.seed}, roles)


def draw_order(lens: Lens, benchmark: Benchmark, heads: tuple[Head, ...], settings: Settings) -> Estimate:
    """Draw an order at random, for others to be compared with.

    Args:
        lens: not looked at.
        benchmark: not looked at.
        heads: the heads under study.
        settings: `seed`.

    Returns:
        The numbers from 1 on in random order; only their order says anything.
    """
    order = np.random.default_rng(settings.seed).permutation(len(heads)).astype(np.float64) + 1
    return Estimate("random", heads, order, None, {"seed": settings.seed})


METHODS: Mapping[str, Way] = {
    "gradient": gradient,
    "taylor": taylor,
    "integrated": integrate,
    "shapley": permute,
    "gates": gates,
    "random": draw_order,
}
"""What estimates importance; *each* is not among them: it is measured by a sweep."""

NEED_LOSSES = ("gradient", "taylor", "integrated", "gates")


def estimate(
    lens: Lens,
    benchmark: Benchmark,
    heads: Sequence[Head],
    method: str,
    settings: Settings | None = None,
) -> Estimate:
    """Estimate how much each head matters to a benchmark.

    Args:
        lens: the model.
        benchmark: what it is measured on.
        heads: the heads under study, each once; all others stay as they are.
        method: a name in `METHODS`.
        settings: how.

    Returns:
        Importance of each head, positive where the model is worse without it, in units of the benchmark's
        loss (*gates*: -1..1; *shapley*: of its primary metric, where it has no loss).

    Raises:
        InputError: there is no such method, no head, or the method needs losses and the benchmark has none.
        ModelError: the model computes NaN or infinite numbers.
    """
    if method not in METHODS:
        raise InputError(
            f"There is no estimate of importance {method!r}.", f"Choose one of: {', '.join(METHODS)}."
        )
    if method in NEED_LOSSES and not isinstance(benchmark, Differentiable):
        raise InputError(
            f"Importance by {method} needs a loss that can be differentiated, and {benchmark.name} has none.",
            "Choose each, shapley or random instead.",
        )
    if not heads:
        raise InputError("No heads are named.", "Name one at least, such as 0.0.")
    with diagnosing(lens, lambda: show(benchmark, lens)):
        return METHODS[method](lens, benchmark, tuple(heads), settings or Settings())


def _mean(method: str, heads: tuple[Head, ...], found: Array, **facts: Any) -> Estimate:
    """The mean over examples and its standard error of what is known for each, [example, head]."""
    n = len(found)
    error = found.std(axis=0, ddof=1) / np.sqrt(n) if n > 1 else np.full(len(heads), np.nan)
    return Estimate(method, heads, found.mean(axis=0), error, facts)
