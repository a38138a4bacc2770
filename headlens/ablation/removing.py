"""The work of a sweep: a benchmark, or a part of it, runs without some heads."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Generic, TypeVar

import numpy as np

from headlens.ablation.prefix import Prefix
from headlens.ablation.showing import show
from headlens.benchmarks.metrics import Array
from headlens.benchmarks.registry import Benchmark
from headlens.model.finite import diagnosing, find_source
from headlens.model.heads import Head
from headlens.model.lens import Lens
from headlens.model.replacements import NEED_REFERENCE, Reference, gather

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
        """See `headlens.engine.local.Work`.

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
        self.reference()  # found before, with passes of its own
        with self.prefix.reuse(heads, patterns=self.mode == "uniform"), self._out(heads):
            values = self.benchmark.measure(self.lens)
        return self._checked(values, heads)

    def _clean(self) -> Array:
        self.recorded = True
        with self.prefix.record(), self._out(()):
            values = self.benchmark.measure(self.lens)
        return self._checked(values, ())

    @contextmanager
    def _out(self, heads: tuple[Head, ...]) -> Iterator[None]:
        """Without heads while the block lasts, and numbers that are none are refused by their source."""
        reference = self.reference() if heads else None
        mode = self.mode if heads else "zero"
        with self.lens.ablate(heads, mode, reference), diagnosing(self.lens, self._again, heads):
            yield

    def _checked(self, values: Array, heads: tuple[Head, ...]) -> Array:
        """The same; the model is looked at where some are no numbers: a metric can be undefined, too."""
        if not np.isfinite(values).all():
            with self._out(heads):
                find_source(self.lens, self._again)
        return values

    def _again(self) -> None:
        show(self.benchmark, self.lens)
