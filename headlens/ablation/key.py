"""Everything that the values of a sweep depend on: a run directory made with another key is refused."""

from __future__ import annotations

from typing import Any

import torch
import transformers

import headlens
from headlens.ablation.plan import Plan
from headlens.ablation.tagged import tags_sha256
from headlens.ablation.units import fingerprint
from headlens.benchmarks.registry import Benchmark
from headlens.engine.local import Here
from headlens.model.heads import Head
from headlens.model.lens import Lens

READ_POOLER = ("classification", "harness")  # kinds of benchmark


def run_key(lens: Lens, benchmark: Benchmark, heads: tuple[Head, ...], plan: Plan) -> dict[str, Any]:
    """Put together what a sweep's values depend on.

    Args:
        lens: the model.
        benchmark: what it is measured on.
        heads: the heads in question.
        plan: what is done with them.

    Returns:
        Plain data; equal keys, equal values. Where files lie is not part of it, what is in them is.
    """
    poolers = [name for name in lens.missing if "pooler" in name]  # random at every load
    read_by_nobody = [] if benchmark.facts.get("kind") in READ_POOLER else poolers
    tags = None if plan.tagged_by is None else tags_sha256(plan.tagged_by)
    return {
        "benchmark": benchmark.name,
        **{f"benchmark_{name}": value for name, value in benchmark.facts.items() if name != "path"},
        "columns": list(plan.options.columns),
        "sweep": plan.sweep,
        "mode": plan.mode,
        "heads": " ".join(lens.anatomy.name(head) for head in heads),
        "order": list(plan.order),
        "step": plan.step,
        "draws": plan.draws,
        "screen": plan.screen,
        "tags": tags,
        "permutations": plan.permutations,
        "normalise": plan.normalise,
        "seed": plan.options.seed,
        "batch_size": plan.options.batch_size,
        "max_length": plan.options.max_length,
        "beams": plan.options.beams,
        "architecture": lens.anatomy.architecture,
        "dtype": str(lens.model.dtype),
        "device": (plan.engine or Here()).device(lens),
        "weights": fingerprint(lens.model, read_by_nobody),
        "headlens": headlens.__version__,
        "torch": torch.__version__,
        "transformers": transformers.__version__,
    }
