"""Importance from gradients of a benchmark's losses by the heads' gates."""

from __future__ import annotations

import sys
from collections.abc import Sequence

import numpy as np
import torch
from tqdm import tqdm

from headlens.ablation.gating import RowGates, differentiating
from headlens.benchmarks.metrics import Array
from headlens.benchmarks.predict import until_it_fits
from headlens.benchmarks.registry import Differentiable
from headlens.model.finite import not_numbers
from headlens.model.heads import Head
from headlens.model.lens import Lens


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
