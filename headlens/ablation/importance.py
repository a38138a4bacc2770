"""Importance of heads: gradients, integrated gradients, Shapley values, one at a time."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from itertools import combinations
from typing import Any

import numpy as np
import pandas as pd
import torch
from scipy import stats
from tqdm import tqdm

from headlens.ablation.gates import Fit, RowGates, differentiating, learn_gates, loss_without, show
from headlens.benchmarks.metrics import Array, Metric
from headlens.benchmarks.predict import until_it_fits
from headlens.benchmarks.registry import Benchmark, Differentiable
from headlens.errors import InputError
from headlens.model.finite import diagnosing, not_numbers
from headlens.model.heads import Head
from headlens.model.lens import Lens
from headlens.util.files import IMPORTANCE

NORMS = ("layer",)


@dataclass(frozen=True, slots=True)
class ImportanceSettings:
    """What a user may say about how importance is estimated.

    Args:
        normalise: "layer" divides *gradient* importance by the L2 norm of its layer.
        steps: of *integrated*, along the gates.
        permutations: of *shapley*.
        fit: of *gates*.
        seed: of everything drawn at random, 0 or more.
        value: for *shapley*, how bad the model is without some heads; by default the benchmark's loss, or
            its primary metric where it has none.
        progress: show a progress bar on stderr.
    """

    normalise: str | None = None
    steps: int = 32
    permutations: int = 10
    fit: Fit = field(default_factory=Fit)
    seed: int = 0
    value: Value | None = None
    progress: bool = False

    def __post_init__(self) -> None:
        if self.normalise is not None and self.normalise not in NORMS:
            raise InputError(
                f"There is no way {self.normalise!r} to normalise importance.",
                f"Choose one of: {', '.join(NORMS)}; or none.",
            )
        for name, number in (("steps", self.steps), ("permutations", self.permutations)):
            if number < 1:
                raise InputError(f"Expected 1 or more {name}, found {number}.", f"Write {name}=1 or more.")


@dataclass(frozen=True, eq=False)
class Estimate:
    """How much each head matters, by one method.

    Args:
        method: a name in `headlens.ablation.importance.METHODS`.
        heads: the heads, in the order given.
        values: importance of each, positive where the model is worse without it, [head].
        error: its standard error, over examples or permutations, [head]; None where there is none.
        facts: what `run.json` says about it; `all_on` and `all_off` are the loss with and without all
            heads under study, `sum` is what must equal their difference.
        roles: of *gates*, the table stack, layer, head, open_closing, open_opening, role.
    """

    method: str
    heads: tuple[Head, ...]
    values: Array
    error: Array | None = None
    facts: Mapping[str, Any] = field(default_factory=dict)
    roles: pd.DataFrame | None = None

    @property
    def importance(self) -> pd.DataFrame:
        """The table `importance.csv` of this method."""
        return ranked(self.heads, self.method, self.values)


# ---- Importance of heads by every way but measuring each: the one dict that names the ways


Way = Callable[[Lens, Any, tuple[Head, ...], ImportanceSettings], Estimate]


def _by_gradient(
    lens: Lens, benchmark: Differentiable, heads: tuple[Head, ...], settings: ImportanceSettings
) -> Estimate:
    """Take the mean over examples of the size of a gate's derivative (Michel et al. 2019).

    It misleads where a loss is curved: a head that saturates what it does has derivative 0 and matters.
    It has no sign: a head that harms counts like one that helps.
    """
    if settings.normalise is None:
        return _mean("gradient", heads, np.abs(per_example(lens, benchmark, heads)))
    layers = {(head.stack, head.layer) for head in heads}
    whole = tuple(head for head in lens.anatomy.heads if (head.stack, head.layer) in layers)
    found = np.abs(per_example(lens, benchmark, whole))
    found = found / layer_norms(found.mean(axis=0), whole)
    return _mean("gradient", heads, found[:, [whole.index(head) for head in heads]], normalise="layer")


def _by_taylor(
    lens: Lens, benchmark: Differentiable, heads: tuple[Head, ...], settings: ImportanceSettings
) -> Estimate:
    """Estimate to first order what the loss rises by when a head is removed: its gate falls from 1 to 0."""
    return _mean("taylor", heads, -per_example(lens, benchmark, heads))


def _by_integration(
    lens: Lens, benchmark: Differentiable, heads: tuple[Head, ...], settings: ImportanceSettings
) -> Estimate:
    """Share out the loss of removing all heads; see `integrated`."""
    found = integrated(lens, benchmark, heads, settings.steps, settings.progress)
    on, off = loss_without(lens, benchmark), loss_without(lens, benchmark, heads)
    total = float(found.mean(axis=0).sum())
    return _mean("integrated", heads, found, steps=settings.steps, all_on=on, all_off=off, sum=total)


def _by_shapley(
    lens: Lens, benchmark: Benchmark, heads: tuple[Head, ...], settings: ImportanceSettings
) -> Estimate:
    """Average marginal effects over permutations; see `shapley`."""
    value = settings.value or badness(lens, benchmark)
    found = shapley(heads, value, settings.permutations, settings.seed, settings.progress)
    facts: dict[str, Any] = {"permutations": settings.permutations, "seed": settings.seed}
    facts |= {"all_on": found.all_on, "all_off": found.all_off, "sum": float(found.values.sum())}
    return Estimate("shapley", heads, found.values, found.error, facts)


def _by_gates(
    lens: Lens, benchmark: Differentiable, heads: tuple[Head, ...], settings: ImportanceSettings
) -> Estimate:
    """Learn gates under two pressures; see `headlens.ablation.gates`."""
    found = learn_gates(lens, benchmark, heads, settings.fit, settings.seed, settings.progress)
    facts = {**asdict(settings.fit), "price": found.price, "all_on": found.all_on, "all_off": found.all_off}
    facts["skipped_steps"] = found.skipped
    roles = ranked(heads, "gates", found.importance)[["stack", "layer", "head"]]
    roles = roles.assign(open_closing=found.open_closing, open_opening=found.open_opening, role=found.roles)
    return Estimate("gates", heads, found.importance, None, {**facts, "seed": settings.seed}, roles)


def _at_random(
    lens: Lens, benchmark: Benchmark, heads: tuple[Head, ...], settings: ImportanceSettings
) -> Estimate:
    """Draw an order at random, for others to be compared with."""
    order = np.random.default_rng(settings.seed).permutation(len(heads)).astype(np.float64) + 1
    return Estimate("random", heads, order, None, {"seed": settings.seed})


METHODS: Mapping[str, Way] = {
    "gradient": _by_gradient,
    "taylor": _by_taylor,
    "integrated": _by_integration,
    "shapley": _by_shapley,
    "gates": _by_gates,
    "random": _at_random,
}
"""What estimates importance; *each* is not among them: it is measured by a sweep."""

NEED_LOSSES = ("gradient", "taylor", "integrated", "gates")


def estimate(
    lens: Lens,
    benchmark: Benchmark,
    heads: Sequence[Head],
    method: str,
    settings: ImportanceSettings | None = None,
) -> Estimate:
    """Estimate how much each head matters to a benchmark."""
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
        return METHODS[method](lens, benchmark, tuple(heads), settings or ImportanceSettings())


def _mean(method: str, heads: tuple[Head, ...], found: Array, **facts: Any) -> Estimate:
    """The mean over examples and its standard error of what is known for each, [example, head]."""
    n = len(found)
    error = found.std(axis=0, ddof=1) / np.sqrt(n) if n > 1 else np.full(len(heads), np.nan)
    return Estimate(method, heads, found.mean(axis=0), error, facts)


# ---- Importance from gradients of a benchmark's losses by the heads' gates


def per_example(lens: Lens, benchmark: Differentiable, heads: Sequence[Head], gate: float = 1.0) -> Array:
    """Differentiate the loss of every example by the heads' gates.

    An example that is spread over rows and batches has the sum of its rows' gradients.

    Args:
        lens: the model.
        benchmark: what it is measured on.
        heads: the heads under study; all others keep gate 1.
        gate: where the derivative is taken, the same for all heads under study.

    Returns:
        dL(x)/dxi_h, [example, head].

    Raises:
        NotNumbersError: some derivative is none; it names the first head with one.
    """

    def work() -> Array:
        gates = RowGates(heads, gate)
        with differentiating(lens, gates.edit):
            sums = torch.zeros(int(benchmark.facts["examples"]), len(heads), dtype=torch.float64)
            for lot in benchmark.losses(lens):
                sums.index_add_(0, lot.owners.cpu(), gates.gradients(lot))
        broken = ~sums.isfinite().all(0)  # [head]
        if bool(broken.any()):
            raise not_numbers(heads[int(broken.int().argmax())], "derivative of the loss by the gate")
        return sums.numpy()

    return until_it_fits(lens, work)


def integrated(
    lens: Lens, benchmark: Differentiable, heads: Sequence[Head], steps: int = 32, progress: bool = False
) -> Array:
    """Share out what an example loses when all heads are removed, by integrated gradients.

    The gates go from 0 to 1 together, and the gradients on the way are averaged by the midpoint rule
    (Sundararajan et al. 2017; over attention: Hao et al. 2021). Over all heads the shares of an example add
    up to its loss with all gates at 0 minus that with all at 1, up to the error of the rule.

    It misleads as far as a model with all heads half open is unlike any that one would run.

    Args:
        lens: the model.
        benchmark: what it is measured on.
        heads: the heads under study; all others keep gate 1.
        steps: gradients on the way.
        progress: show a progress bar on stderr.

    Returns:
        Minus the integral of dL(x)/dxi_h, [example, head]; positive where the model is worse without the
        head.
    """
    total = np.zeros((int(benchmark.facts["examples"]), len(heads)))
    for step in tqdm(range(steps), "integrate", disable=not progress, file=sys.stderr, unit="step"):
        total -= per_example(lens, benchmark, heads, (step + 0.5) / steps)
    return total / steps


def layer_norms(importance: Array, heads: Sequence[Head]) -> Array:
    """Compute the L2 norm of every layer's importances (Michel et al. 2019, after Molchanov et al. 2017).

    Args:
        importance: of each head, [head].
        heads: the heads, whole layers.

    Returns:
        The norm of each head's layer, [head]; 1 for a layer of zeros, so that zeros stay zeros.
    """
    _, layer = np.unique([f"{head.stack}.{head.layer}" for head in heads], return_inverse=True)
    norms = np.sqrt(np.bincount(layer, importance**2))[layer]
    return np.where(norms > 0, norms, 1.0)


# ---- Shapley values of heads, from sampled permutations


Value = Callable[[frozenset[Head]], float]
"""How bad the model is without some heads: a loss, or any number of which smaller is better."""


@dataclass(frozen=True, slots=True)
class _Shapley:
    """Marginal effects of heads on a loss.

    Args:
        marginals: what the loss rose by when the head was removed, [permutation, head].
        all_on: the loss with all heads.
        all_off: the loss without the heads under study; the marginals of every permutation add up to the
            difference.
    """

    marginals: Array
    all_on: float
    all_off: float

    @property
    def values(self) -> Array:
        """The mean marginal effect of each head, [head]; NaN where a loss on the way was not defined."""
        mean: Array = self.marginals.mean(axis=0)
        return mean

    @property
    def error(self) -> Array:
        """Its standard error over permutations, [head]; NaN for a single one."""
        n = len(self.marginals)
        if n < 2:
            return np.full(self.marginals.shape[1], np.nan)
        error: Array = self.marginals.std(axis=0, ddof=1) / np.sqrt(n)
        return error


def shapley(
    heads: Sequence[Head], value: Value, permutations: int = 10, seed: int = 0, progress: bool = False
) -> _Shapley:
    """Remove heads one after another in random orders, and note what each removal costs.

    The mean over permutations is an unbiased estimate of the Shapley value (Castro et al. 2009; of heads:
    Held and Yang 2022). Heads that stand in for each other share what they carry together.

    It misleads as far as it averages over models with half of their heads gone, which behave unlike the
    whole one; with few permutations look at the standard error.
    """
    known: dict[frozenset[Head], float] = {}
    marginals = np.zeros((permutations, len(heads)))
    with tqdm(
        total=permutations * len(heads), desc="remove", disable=not progress, file=sys.stderr, unit="run"
    ) as bar:
        for row, order in zip(marginals, _orders(heads, permutations, seed), strict=True):
            out: frozenset[Head] = frozenset()
            before = _once(value, out, known)
            for place in order:
                out |= {heads[place]}
                after = _once(value, out, known)
                row[place], before = after - before, after
                bar.update()
    return _Shapley(marginals, known[frozenset()], known[frozenset(heads)])


def removed_sets(heads: Sequence[Head], permutations: int, seed: int) -> list[frozenset[Head]]:
    """List the sets whose losses `shapley` asks for, each once, in the order in which it first asks."""
    orders = list(_orders(heads, permutations, seed))
    sets = (frozenset(heads[i] for i in order[:n]) for order in orders for n in range(len(heads) + 1))
    return list(dict.fromkeys(sets))


def badness(lens: Lens, benchmark: Benchmark) -> Value:
    """Make the function that says how bad a model is without some heads."""

    def loss(out: tuple[Head, ...]) -> float:
        if isinstance(benchmark, Differentiable):
            return loss_without(lens, benchmark, out)
        metric = benchmark.metrics[0]
        with torch.no_grad(), lens.ablate(out):
            value = metric.value(benchmark.measure(lens))
        return 0.0 - value if metric.larger_is_better else value

    def bad(out: frozenset[Head]) -> float:
        heads = tuple(sorted(out))

        def again() -> None:
            with lens.ablate(heads):
                show(benchmark, lens)

        with diagnosing(lens, again, heads):
            return loss(heads)

    return bad


def _orders(heads: Sequence[Head], permutations: int, seed: int) -> Iterator[list[int]]:
    generator = np.random.default_rng(seed)
    for _ in range(permutations):
        yield generator.permutation(len(heads)).tolist()


def _once(value: Value, out: frozenset[Head], known: dict[frozenset[Head], float]) -> float:
    if out not in known:
        known[out] = float(value(out))
    return known[out]


# ---- How much each head matters, from what a sweep measured


def from_each(heads: Sequence[Head], deltas: Mapping[Head, float], metric: Metric) -> pd.DataFrame:
    """Take as importance what is lost when a head is removed alone; a head that was not measured has none.

    It misleads where heads stand in for each other: backup heads make every one of them look idle.
    """
    found = np.array([deltas.get(head, np.nan) for head in heads], dtype=np.float64)
    return ranked(heads, "each", 0.0 - found if metric.larger_is_better else found)


def ranked(heads: Sequence[Head], method: str, importance: Array) -> pd.DataFrame:
    """Rank heads as `importance.csv` does: rank 1 matters most, of equals the first of the model."""
    table = pd.DataFrame(
        {
            "stack": [head.stack for head in heads],
            "layer": [head.layer for head in heads],
            "head": [head.head for head in heads],
            "method": method,
            "importance": np.asarray(importance, dtype=np.float64),
        }
    )
    table["rank"] = table["importance"].rank(method="first", ascending=False).astype("Int64")
    return table[list(IMPORTANCE)]


def agreement(importance: pd.DataFrame) -> pd.DataFrame:
    """Compare how every two methods rank the heads, by Spearman's rho over the n heads that both measured.

    NaN where it is not defined: fewer than 3 heads, or all equal.
    """
    wide = importance.pivot_table("importance", ["stack", "layer", "head"], "method", dropna=False)
    rows = []
    for a, b in combinations(importance["method"].unique(), 2):
        both = wide[[a, b]].dropna()
        defined = len(both) >= 3 and (both.nunique() > 1).all()
        rho = float(stats.spearmanr(both[a], both[b]).statistic) if defined else float("nan")
        rows.append((a, b, rho, len(both)))
    return pd.DataFrame(rows, columns=["method_a", "method_b", "rho", "n"])
