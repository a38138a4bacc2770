"""The work of a sweep: a benchmark, or a part of it, runs without some heads."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Generic, TypeVar

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
from headlens.offloaded import named_weights

T = TypeVar("T")

PART = 2048  # examples: more are measured in parts


@dataclass(frozen=True, slots=True)
class Reuse:
    """How far a unit was spared passes from the first block on.

    Args:
        passes: passes of the model that could begin later.
        reused: those that did.
        level: how much they leave out, see `headlens.ablation.replay`.
        tried: whether there were passes to be reused, whatever came of them.
    """

    passes: int
    reused: int
    level: int
    tried: bool


@dataclass(frozen=True, slots=True)
class Outcome:
    """What came of a unit.

    Args:
        values: per-example values [example, column].
        reuse: what was spared.
    """

    values: Array
    reuse: Reuse


@dataclass(frozen=True, slots=True)
class Unit:
    """A unit of work: a part of the examples without some heads; without none, it is the baseline.

    Args:
        heads: which are taken out.
        part: number of the part, from 0.
    """

    heads: tuple[Head, ...]
    part: int = 0


@dataclass(frozen=True, eq=False)
class Removing:
    """The work of measuring a benchmark without some heads.

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

    @property
    def parts(self) -> list[list[int]]:
        """Numbers of the examples of each part: two workers can share a condition."""
        n = int(self.benchmark.facts["examples"])
        return [list(range(start, min(start + PART, n))) for start in range(0, max(n, 1), PART)]

    def begin(self, lens: Lens) -> Callable[[Unit], Outcome]:
        """See `headlens.engine.Work`.

        Raises:
            ModelError: the model computes with NaN.
        """
        parts = self.parts
        reference = Once(lambda: self._gathered(lens) if self.mode in NEED_REFERENCE else None)
        known: dict[int, _Part] = {}

        def measured(unit: Unit) -> Outcome:
            if unit.part not in known:
                mine = self.benchmark.take(parts[unit.part]) if len(parts) > 1 else self.benchmark
                prefix = Prefix(lens, self.prefix_memory // len(parts))
                known[unit.part] = _Part(lens, mine, self.mode, prefix, reference)
            return known[unit.part].measured(unit.heads)

        return measured

    def _gathered(self, lens: Lens) -> Reference:
        stacks = self.benchmark.stacks
        sites = [site for site in lens.anatomy.sites if site.stack in stacks]
        return gather(lens.seam, lambda: show(self.benchmark, lens), sites, self.seed)


class Once(Generic[T]):
    """Makes something when it is first wanted.

    Args:
        make: makes it.
    """

    def __init__(self, make: Callable[[], T]) -> None:
        self._make = make
        self._made: list[T] = []

    def __call__(self) -> T:
        """Get it."""
        if not self._made:
            self._made.append(self._make())
        return self._made[0]


@dataclass
class _Part:
    """A part of a benchmark on one model, with what is kept from one set of heads to the next."""

    lens: Lens
    benchmark: Benchmark
    mode: str
    prefix: Prefix
    reference: Once[Reference | None]
    recorded: bool = False

    def measured(self, heads: tuple[Head, ...]) -> Outcome:
        prefix = self.prefix
        passes, reused = prefix.passes, prefix.reused
        values = self._without(heads) if heads else self._clean()
        reuse = Reuse(prefix.passes - passes, prefix.reused - reused, prefix.level, prefix.tried)
        return Outcome(values, reuse)

    def _without(self, heads: tuple[Head, ...]) -> Array:
        if not self.recorded:  # the baseline came from disk or elsewhere: its passes are still to be seen
            self._clean()
        reference = self.reference()
        with (
            self.prefix.reuse(heads, patterns=self.mode == "uniform"),
            self.lens.ablate(heads, self.mode, reference),
        ):
            return self.benchmark.measure(self.lens)

    def _clean(self) -> Array:
        self.recorded = True
        with self.prefix.record(), self.lens.ablate(()):
            values = self.benchmark.measure(self.lens)
        if np.isnan(values).any():
            self._check_numbers()
        return values

    def _check_numbers(self) -> None:
        """Refuse a model that computes with NaN; a metric can be undefined for other reasons, too."""
        trained = dict(self.lens.model.named_parameters(remove_duplicate=False))
        weights = (pair for pair in named_weights(self.lens.model) if pair[0] in trained)
        if broken := broken_parameter(weights):
            raise ModelError(f"The model's weight {broken} holds NaN or an infinite number.", REMEDY)

        def see(site: Site, block: Block) -> None:
            check_numbers(site, block.pattern, block.visible.any(-1)[:, 0].expand(len(block.pattern), -1))

        with self.lens.observe(see):
            show(self.benchmark, self.lens)


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
