"""Runs a benchmark under conditions: finished ones come from disk, known blocks are not run again."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from tqdm import tqdm

from headlens.ablation.conditions import Condition
from headlens.ablation.modes import NEED_REFERENCE
from headlens.ablation.prefix import Prefix
from headlens.ablation.reference import Reference, gather
from headlens.ablation.replay import NOTHING
from headlens.ablation.units import Units
from headlens.attention import Block
from headlens.benchmarks.base import Benchmark, Differentiable
from headlens.benchmarks.metrics import Array
from headlens.errors import ModelError
from headlens.heads import Head, Site
from headlens.lens import Lens
from headlens.numeric import REMEDY, broken_parameter, check_numbers
from headlens.offloaded import named_weights

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
    ) -> None:
        self._lens = lens
        self.benchmark = benchmark
        self._mode = mode
        self._units = units
        self._label = label
        self._prefix = Prefix(lens, prefix_memory)
        self._seed = seed
        self._progress = progress
        self._known: dict[frozenset[Head], Array] = {}
        self._reference: Reference | None = None
        self._recorded = False
        self.reused = 0  # conditions that were on disk

    def baseline(self) -> Array:
        """Measure the model as it is; it passes through the seam, so that only ablation can differ.

        Returns:
            Per-example values [example, column].

        Raises:
            ModelError: the model computes with NaN.
        """
        return self._of(BASELINE, ())

    def values(self, conditions: Sequence[Condition]) -> list[Array]:
        """Measure conditions; equal sets of heads are measured once.

        Args:
            conditions: in any order; they are run in that of their first heads.

        Returns:
            Per-example values of each, in the order given.
        """
        self.baseline()
        before = set(self._known)
        waiting: dict[frozenset[Head], Condition] = {}
        for one in conditions:
            waiting.setdefault(frozenset(one.heads), one)
        queue = sorted(waiting.values(), key=lambda one: self._prefix.position(one.heads))
        queue = [one for one in queue if frozenset(one.heads) not in before]
        for one in tqdm(
            queue, f"{self._label}ablate", disable=not self._progress, file=sys.stderr, unit="run"
        ):
            self._of(one.name, one.heads)
        return [self._known[frozenset(one.heads)] for one in conditions]

    @property
    def facts(self) -> dict[str, Any]:
        """What `run.json` says about prefix reuse."""
        prefix = self._prefix
        return {"passes": prefix.passes, "reused": prefix.reused, "level": prefix.level}

    @property
    def note(self) -> str:
        """What the user should know about prefix reuse; empty where it worked or nothing came of it."""
        if not self._prefix.tried or self._prefix.level > NOTHING:
            return ""
        kind = type(self._lens.model).__name__
        return f"{kind} needs more than its blocks hand on, so every ablation ran the whole model."

    def _of(self, name: str, heads: tuple[Head, ...]) -> Array:
        chosen = frozenset(heads)
        if chosen in self._known:
            return self._known[chosen]
        unit = f"{self._label}{name}"
        values = self._units.load(unit, int(self.benchmark.facts["examples"])) if self._units else None
        if values is not None:
            self.reused += name != BASELINE
        else:
            values = self._measured(heads)
            if self._units:
                self._units.save(unit, values)
        self._known[chosen] = values
        return values

    def _measured(self, heads: tuple[Head, ...]) -> Array:
        if not heads:
            return self._clean()
        if not self._recorded:  # the baseline came from disk: its passes are still to be seen
            self._clean()
        if self._mode in NEED_REFERENCE and self._reference is None:
            self._reference = self._gathered()
        with (
            self._prefix.reuse(heads, patterns=self._mode == "uniform"),
            self._lens.ablate(heads, self._mode, self._reference),
        ):
            return self.benchmark.measure(self._lens)

    def _clean(self) -> Array:
        self._recorded = True
        with self._prefix.record(), self._lens.ablate(()):
            values = self.benchmark.measure(self._lens)
        if np.isnan(values).any():
            self._check_numbers()
        return values

    def _check_numbers(self) -> None:
        """Refuse a model that computes with NaN; a metric can be undefined for other reasons, too."""
        trained = dict(self._lens.model.named_parameters(remove_duplicate=False))
        weights = (pair for pair in named_weights(self._lens.model) if pair[0] in trained)
        if broken := broken_parameter(weights):
            raise ModelError(f"The model's weight {broken} holds NaN or an infinite number.", REMEDY)

        def see(site: Site, block: Block) -> None:
            check_numbers(site, block.pattern, block.visible.any(-1)[:, 0].expand(len(block.pattern), -1))

        with self._lens.observe(see):
            show(self.benchmark, self._lens)

    def _gathered(self) -> Reference:
        stacks = self.benchmark.stacks
        sites = [site for site in self._lens.anatomy.sites if site.stack in stacks]
        return gather(self._lens.seam, lambda: show(self.benchmark, self._lens), sites, self._seed)


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
