"""How bad a model is without each of many sets of heads: measured once per set, kept on disk."""

from __future__ import annotations

import hashlib
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from tqdm import tqdm

from headlens.ablation.shapley import badness
from headlens.ablation.units import Units
from headlens.benchmarks.registry import Benchmark
from headlens.engine.local import Engine, Here
from headlens.model.heads import Head
from headlens.model.lens import Lens

Heads = frozenset[Head]


@dataclass(frozen=True, eq=False)
class Losing:
    """The work of measuring a benchmark's loss without some heads.

    Args:
        benchmark: what is measured.
    """

    benchmark: Benchmark

    def begin(self, lens: Lens) -> Callable[[Heads], float]:
        """See `headlens.engine.local.Work`."""
        return badness(lens, self.benchmark)


def losses(
    lens: Lens,
    benchmark: Benchmark,
    sets: Sequence[Heads],
    units: Units | None,
    engine: Engine | None = None,
    progress: bool = False,
) -> dict[Heads, float]:
    """Measure what is lost without sets of heads, see `headlens.ablation.shapley.badness`.

    Args:
        lens: the model.
        benchmark: what is measured.
        sets: the sets of heads, each once.
        units: finished work on disk; None keeps none.
        engine: where they are measured; here by default.
        progress: show a progress bar on stderr.

    Returns:
        The loss, or the metric turned so that smaller is better, by set.
    """
    names = {out: _name(out) for out in sets}
    known: dict[Heads, float] = {}
    for out, name in names.items():
        found = units.load_facts(name) if units else None
        if found is not None:
            known[out] = float(found)
    queue = [out for out in sets if out not in known]
    with tqdm(
        total=len(sets), initial=len(known), desc="remove", disable=not progress, file=sys.stderr, unit="run"
    ) as bar:
        for number, loss in (engine or Here()).run(lens, Losing(benchmark), queue):
            known[queue[number]] = float(loss)
            if units:
                units.save_facts(names[queue[number]], float(loss))
            bar.update()
    return known


def _name(out: Heads) -> str:
    text = " ".join(map(str, sorted(out)))
    return f"without {hashlib.sha256(text.encode()).hexdigest()[:24]}"
