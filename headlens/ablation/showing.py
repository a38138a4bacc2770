"""All inputs of a benchmark through a model, for what its heads do."""

from __future__ import annotations

import torch

from headlens.benchmarks.registry import Benchmark, Differentiable
from headlens.model.lens import Lens


def show(benchmark: Benchmark, lens: Lens) -> None:
    """Run a model over all inputs of a benchmark, for what its heads do.

    Args:
        benchmark: the inputs; one that generates shows its references (teacher forcing), and one that pads
            without saying so shows its inputs one by one, as its own `show` does.
        lens: the model.
    """
    own = getattr(benchmark, "show", None)
    with torch.no_grad():
        if own is not None:
            own(lens)
        elif isinstance(benchmark, Differentiable):
            for _ in benchmark.losses(lens):
                pass
        else:
            benchmark.measure(lens)
