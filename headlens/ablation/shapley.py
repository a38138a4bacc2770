"""Shapley values of heads, from sampled permutations."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import torch
from tqdm import tqdm

from headlens.ablation.gating import loss_without
from headlens.ablation.showing import show
from headlens.benchmarks.metrics import Array
from headlens.benchmarks.registry import Benchmark, Differentiable
from headlens.model.finite import diagnosing
from headlens.model.heads import Head
from headlens.model.lens import Lens

Value = Callable[[frozenset[Head]], float]
"""How bad the model is without some heads: a loss, or any number of which smaller is better."""


@dataclass(frozen=True, slots=True)
class Shapley:
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
) -> Shapley:
    """Remove heads one after another in random orders, and note what each removal costs.

    The mean over permutations is an unbiased estimate of the Shapley value (Castro et al. 2009; of heads:
    Held and Yang 2022). Heads that stand in for each other share what they carry together.

    It misleads as far as it averages over models with half of their heads gone, which behave unlike the
    whole one; with few permutations look at the standard error.

    Args:
        heads: the heads under study; all others stay.
        value: the loss without some heads; each set is asked for once.
        permutations: how many orders.
        seed: of the orders.
        progress: show a progress bar on stderr.

    Returns:
        The marginal effects.
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
    return Shapley(marginals, known[frozenset()], known[frozenset(heads)])


def removed_sets(heads: Sequence[Head], permutations: int, seed: int) -> list[frozenset[Head]]:
    """List the sets whose losses `shapley` asks for.

    Args:
        heads: the heads under study.
        permutations: how many orders.
        seed: of the orders.

    Returns:
        Each set once, in the order in which they are first asked for.
    """
    orders = list(_orders(heads, permutations, seed))
    sets = (frozenset(heads[i] for i in order[:n]) for order in orders for n in range(len(heads) + 1))
    return list(dict.fromkeys(sets))


def badness(lens: Lens, benchmark: Benchmark) -> Value:
    """Make the function that says how bad a model is without some heads.

    Args:
        lens: the model.
        benchmark: what it is measured on.

    Returns:
        The benchmark's loss; where it has none its primary metric, its sign turned if larger is better.
    """

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
