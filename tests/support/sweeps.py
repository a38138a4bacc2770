"""Sweeps of ablation with numbers of our own."""

from __future__ import annotations

import numpy as np
import pandas as pd

from headlens.ablation.importance import agreement, from_each, ranked
from headlens.ablation.plan import Condition
from headlens.ablation.result import (
    PairedComparison,
    Sweep,
    against_controls,
    best_of_layers,
    no_importance,
    tabulate,
)
from headlens.benchmarks.metrics import Ratio
from headlens.model.heads import Head
from headlens.report.ablation_figures import figures
from headlens.runs.record import plain

LOSS = Ratio("loss", "loss per token (nats)", False, 0)
ACCURACY = Ratio("accuracy", "accuracy", True, 0)


def heads_of(layers, heads, stack="encoder"):
    return [Head(stack, layer, head) for layer in range(layers) for head in range(heads)]


def sweep_of(kind, conditions, deltas, q_values, metric=LOSS, **more):
    """A sweep with deltas and q-values of our own; every interval reaches 0.1 to both sides."""
    delta, q_value = np.array(deltas, dtype=float), np.array(q_values, dtype=float)
    made = PairedComparison(1.0, 1 + delta, delta, delta - 0.1, delta + 0.1, q_value, q_value)
    compared = made.table([one.name for one in conditions])
    table = tabulate(conditions, kind, "mean", [metric], [compared], 40)
    about = {
        "benchmark": {"name": "language:toy.txt", "examples": 40},
        "metric_labels": {metric.name: metric.label},
        "larger_is_better": {metric.name: metric.larger_is_better},
        **more.pop("run", {}),
    }
    controls = against_controls(conditions, [metric], table)
    return Sweep(table, more.pop("importance", no_importance()), about, controls, **more)


def each(deltas, q_values, heads, metric=LOSS, in_question=None):
    """Heads removed one by one; the others in question were not measured."""
    several = len({head.stack for head in heads}) > 1
    conditions = [Condition(f"head {head if several else str(head)[8:]}", (head,)) for head in heads]
    known = dict(zip(heads, deltas, strict=True))
    importance = from_each(in_question or heads, known, metric)
    return sweep_of("each", conditions, deltas, q_values, metric, importance=importance)


def drawn(sweep):
    """The figure of a kind, which comes first."""
    return next(figures(sweep))[1]


def cumulative(deltas, q_values, share, controls=(), **more):
    """Four steps of n heads; `controls` holds the deltas of each step's two random sets."""
    n = more.get("n", 8)
    heads = heads_of(2, n // 2)
    sizes = [n * i // 4 for i in range(1, 5)]
    steps = [Condition(f"least important {size} of {n}", tuple(heads[:size])) for size in sizes]
    random = (
        []
        if not controls
        else [
            Condition(f"control {draw} of {one.name}", one.heads, one.name)
            for one in steps
            for draw in (0, 1)
        ]
    )
    flat = [delta for pair in controls for delta in pair]
    return sweep_of(
        "cumulative", [*steps, *random], [*deltas, *flat], [*q_values, *[1.0] * len(flat)],
        importance=ranked(heads, more.get("method", "gradient"), np.arange(float(n))),
        run={"largest_share_without_significant_loss": share, "importance_estimated_on": "one half"},
    )  # fmt: skip


def only(values):
    """Layers of two heads; `values` holds the per-example losses when each is kept."""
    named, conditions = {}, []
    for name in values:
        *stack, layer, head = name.split(".")
        kept = Head(*(stack or ["encoder"]), int(layer), int(head))
        named[kept] = name
        conditions.append(Condition(f"only head {name}", (Head("encoder", 0, 0),), kept=kept))
    measured = {f"only head {name}": losses[:, None] for name, losses in values.items()}
    best = best_of_layers(conditions, measured, np.ones((40, 1)), LOSS, named.get)
    return sweep_of("only", conditions, [0.0] * len(values), [1.0] * len(values), best=best)


def with_methods(**methods):
    heads = heads_of(1, 4)
    table = pd.concat([ranked(heads, name, np.array(v, float)) for name, v in methods.items()])
    one = Condition("set", tuple(heads))
    return sweep_of("set", [one], [0.3], [0.01], importance=table, run=agreeing(table))


def agreeing(importance):
    """What a record says of how methods agree."""
    return plain({"importance_agreement": agreement(importance).to_dict("records")})
