"""Measures a benchmark under conditions, each once: finished ones come from disk."""

from __future__ import annotations

import sys
from collections import defaultdict
from collections.abc import Sequence
from typing import Any

import numpy as np
from tqdm import tqdm

from headlens.ablation.conditions import Condition
from headlens.ablation.removing import Removing, Reuse, Unit
from headlens.ablation.replay import NOTHING
from headlens.ablation.units import Units
from headlens.benchmarks.metrics import Array
from headlens.benchmarks.registry import Benchmark
from headlens.engine.local import Engine, Here
from headlens.model.blocks import blocks_of, first_block
from headlens.model.heads import Head
from headlens.model.lens import Lens

BASELINE = "baseline"


class Measuring:
    """One benchmark of one model, under any ablation in one mode.

    Args:
        lens: the model.
        benchmark: what it is measured on.
        mode: what stands in removed heads' places.
        units: finished work on disk; None keeps none.
        label: begins the names of what is kept, so that two benchmarks can share a directory.
        prefix_memory: bytes that prefix reuse may keep.
        seed: of what *resample* draws.
        progress: show a progress bar on stderr.
        engine: where conditions are measured.
    """

    def __init__(
        self,
        lens: Lens,
        benchmark: Benchmark,
        mode: str = "zero",
        units: Units | None = None,
        *,
        label: str = "",
        prefix_memory: int = 0,
        seed: int = 0,
        progress: bool = False,
        engine: Engine | None = None,
    ) -> None:
        self._lens = lens
        self.benchmark = benchmark
        self._work = Removing(benchmark, mode, prefix_memory, seed)
        self._blocks = (blocks_of(lens) if prefix_memory else None) or ()
        self._units = units
        self._label = label
        self._progress = progress
        self.engine = engine or Here()
        self._known: dict[frozenset[Head], Array] = {}
        self._spared: list[Reuse] = []
        self.reused = 0  # conditions that were on disk

    def baseline(self) -> Array:
        """Measure the model as it is.

        Returns:
            Per-example values [example, column].

        Raises:
            ModelError: the model computes with NaN.
        """
        self._measure([Condition(BASELINE, ())])
        return self._known[frozenset()]

    def values(self, conditions: Sequence[Condition]) -> list[Array]:
        """Measure conditions; equal sets of heads are measured once.

        Args:
            conditions: in any order; they are run in that of their first heads.

        Returns:
            Per-example values of each, in the order given.
        """
        self.baseline()
        self._measure(sorted(conditions, key=lambda one: first_block(self._blocks, one.heads)))
        return [self._known[frozenset(one.heads)] for one in conditions]

    @property
    def facts(self) -> dict[str, Any]:
        """What `run.json` says about prefix reuse."""
        return {
            "passes": sum(one.passes for one in self._spared),
            "reused": sum(one.reused for one in self._spared),
            "level": min((one.level for one in self._spared), default=NOTHING),
        }

    @property
    def note(self) -> str:
        """What the user should know about prefix reuse; empty where it worked or nothing came of it."""
        if not any(one.tried and one.level == NOTHING for one in self._spared):
            return ""
        kind = type(self._lens.model).__name__
        return f"{kind} needs more than its blocks hand on, so every ablation ran the whole model."

    def _measure(self, conditions: Sequence[Condition]) -> None:
        """Come to know the values of conditions, all of them at once where there are many workers."""
        waiting: dict[frozenset[Head], Condition] = {}
        for one in conditions:
            if frozenset(one.heads) not in self._known:
                waiting.setdefault(frozenset(one.heads), one)
        queue = [one for one in waiting.values() if not self._read(one)]
        parts = range(len(self._work.parts))
        units = [(one, Unit(one.heads, part)) for one in queue for part in parts]
        bar = tqdm(
            total=len(waiting) * len(parts), initial=(len(waiting) - len(queue)) * len(parts), unit="run",
            desc=f"{self._label}ablate", disable=not self._progress or not any(waiting), file=sys.stderr,
        )  # fmt: skip
        found: dict[frozenset[Head], dict[int, Array]] = defaultdict(dict)
        with bar:
            results = self.engine.run(self._lens, self._work, [unit for _, unit in units])
            for number, outcome in results:
                one, unit = units[number]
                mine = found[frozenset(one.heads)]
                mine[unit.part] = outcome.values
                self._spared.append(outcome.reuse)
                if len(mine) == len(parts):
                    self._keep(one, np.concatenate([mine[part] for part in parts]))
                bar.update()

    def _read(self, one: Condition) -> bool:
        """Whether a condition's values are on disk; they are known then."""
        if self._units is None:
            return False
        values = self._units.load(self._label + one.name, int(self.benchmark.facts["examples"]))
        if values is not None:
            self._known[frozenset(one.heads)] = values
            self.reused += bool(one.heads)
        return values is not None

    def _keep(self, one: Condition, values: Array) -> None:
        self._known[frozenset(one.heads)] = values
        if self._units:
            self._units.save(self._label + one.name, values)
