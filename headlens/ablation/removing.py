"""What is done with one set of heads of a sweep: the benchmark runs without them."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import torch

from headlens.ablation.modes import NEED_REFERENCE
from headlens.ablation.prefix import Prefix
from headlens.ablation.reference import Reference, gather
from headlens.attention import Block
from headlens.benchmarks.base import Benchmark, Differentiable
from headlens.benchmarks.metrics import Array
from headlens.errors import ModelError
from headlens.heads import Head, Site
from headlens.lens import Lens
from headlens.numeric import REMEDY, broken_parameter, check_numbers


@dataclass(frozen=True, slots=True)
class Outcome:
    """What came of one set of heads.

    Args:
        values: per-example values [example, column].
        passes: passes of the model that could begin later than at the first block.
        reused: those that did.
        level: how much they leave out, see `headlens.ablation.replay`.
        tried: whether there were passes to be reused, whatever came of them.
    """

    values: Array
    passes: int
    reused: int
    level: int
    tried: bool


@dataclass(frozen=True, eq=False)
class Removing:
    """The work of measuring a benchmark without some heads; without none, it is the baseline.

    The baseline passes through the seam, too, so that only ablation can differ.

    Args:
        benchmark: what is measured.
        mode: what stands in removed heads' places.
        prefix_memory: bytes that prefix reuse may keep.
        seed: of what *resample* draws.
    """

    benchmark: Benchmark
    mode: str = "zero"
    prefix_memory: int = 0
    seed: int = 0

    def begin(self, lens: Lens) -> Callable[[tuple[Head, ...]], Outcome]:
        """See `headlens.engine.Work`.

        Raises:
            ModelError: the model computes with NaN.
        """
        return _Model(self, lens).measured


class _Model:
    """The benchmark on one model, with what is kept from one set of heads to the next."""

    def __init__(self, work: Removing, lens: Lens) -> None:
        self._work = work
        self._lens = lens
        self._prefix = Prefix(lens, work.prefix_memory)
        self._reference: Reference | None = None
        self._recorded = False

    def measured(self, heads: tuple[Head, ...]) -> Outcome:
        prefix = self._prefix
        passes, reused = prefix.passes, prefix.reused
        values = self._without(heads) if heads else self._clean()
        return Outcome(values, prefix.passes - passes, prefix.reused - reused, prefix.level, prefix.tried)

    def _without(self, heads: tuple[Head, ...]) -> Array:
        if not self._recorded:  # the baseline came from disk or elsewhere: its passes are still to be seen
            self._clean()
        mode = self._work.mode
        if mode in NEED_REFERENCE and self._reference is None:
            self._reference = self._gathered()
        with (
            self._prefix.reuse(heads, patterns=mode == "uniform"),
            self._lens.ablate(heads, mode, self._reference),
        ):
            return self._work.benchmark.measure(self._lens)

    def _clean(self) -> Array:
        self._recorded = True
        with self._prefix.record(), self._lens.ablate(()):
            values = self._work.benchmark.measure(self._lens)
        if np.isnan(values).any():
            self._check_numbers()
        return values

    def _check_numbers(self) -> None:
        """Refuse a model that computes with NaN; a metric can be undefined for other reasons, too."""
        if broken := broken_parameter(self._lens.model.named_parameters()):
            raise ModelError(f"The model's weight {broken} holds NaN or an infinite number.", REMEDY)

        def see(site: Site, block: Block) -> None:
            check_numbers(site, block.pattern, block.visible.any(-1)[:, 0].expand(len(block.pattern), -1))

        with self._lens.observe(see):
            show(self._work.benchmark, self._lens)

    def _gathered(self) -> Reference:
        benchmark = self._work.benchmark
        sites = [site for site in self._lens.anatomy.sites if site.stack in benchmark.stacks]
        return gather(self._lens.seam, lambda: show(benchmark, self._lens), sites, self._work.seed)


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
