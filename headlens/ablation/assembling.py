"""From per-example values to what a sweep says: comparisons, tables, headlines and warnings."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import pandas as pd

from headlens.ablation.compare import Comparison, compare
from headlens.ablation.importance import agreement, from_each
from headlens.ablation.measuring import Measuring
from headlens.ablation.ordering import table_of
from headlens.ablation.plan import Plan
from headlens.ablation.result import (
    Sweep,
    against_controls,
    headline,
    no_importance,
    notes,
    same_input,
    tabulate,
)
from headlens.ablation.study import Study
from headlens.benchmarks.metrics import Array
from headlens.util.files import GATES
from headlens.util.statistics import RESAMPLES, draws


def assemble(study: Study, measuring: Measuring, values: Sequence[Array], plan: Plan) -> Sweep:
    """Compare every condition with the baseline, and lay everything out.

    Args:
        study: what was measured.
        measuring: what measured it.
        values: per-example values of each condition.
        plan: what was asked for.

    Returns:
        The result.
    """
    baseline = measuring.baseline()
    metrics = tuple(study.benchmark.metrics)
    measured = {one.name: found for one, found in zip(study.conditions, values, strict=True)}
    drawn = draws(len(baseline), plan.options.seed)
    compared = []
    for metric in metrics:
        found: dict[str, tuple[Comparison, int]] = {}
        for random in (False, True):
            names = [one.name for one in study.conditions if bool(one.control_of) == random]
            made = compare(
                metric, baseline, [measured[name] for name in names], drawn, 0 if random else study.tests
            )
            found |= {name: (made, place) for place, name in enumerate(names)}
        compared.append(found)
    table = tabulate(study.conditions, plan.sweep, plan.mode, metrics, compared, len(baseline))
    importance = _importance(study, table, plan)
    roles = [one.roles for one in study.found if one.roles is not None]
    agreed = agreement(importance)
    return Sweep(
        kind=plan.sweep,
        table=table,
        importance=importance,
        run=_facts(study, measuring, plan, table, agreed),
        metrics=metrics,
        conditions=study.conditions,
        baseline=baseline,
        values=measured,
        controls=against_controls(study.conditions, metrics, table),
        agreement=agreed,
        gates=roles[0] if roles else pd.DataFrame(columns=GATES),
        notes=_notes(study, measuring, baseline, measured),
    )


def _importance(study: Study, table: pd.DataFrame, plan: Plan) -> pd.DataFrame:
    parts = [table_of(study.found)] if study.found else []
    if plan.sweep == "each":
        primary = study.benchmark.metrics[0]
        rows = table[table["metric"] == primary.name].set_index("condition")["delta"]
        by_head = {one.heads[0]: rows[one.name] for one in study.conditions}
        parts.insert(0, from_each(study.heads, by_head, primary))
    return pd.concat(parts, ignore_index=True) if parts else no_importance()


def _notes(
    study: Study, measuring: Measuring, baseline: Array, measured: Mapping[str, Array]
) -> tuple[str, ...]:
    warn = getattr(study.benchmark, "warn", None)
    own: tuple[str, ...] = warn(baseline) if warn is not None else ()
    alike = same_input(study.benchmark, baseline)
    return (*own, *alike, *notes(baseline, measured), *filter(None, [measuring.note]))


def _facts(
    study: Study, measuring: Measuring, plan: Plan, table: pd.DataFrame, agreed: pd.DataFrame
) -> dict[str, Any]:
    benchmark = study.benchmark
    baseline = measuring.baseline()
    facts: dict[str, Any] = {
        "benchmark": {"name": benchmark.name, **benchmark.facts},
        "baseline": {metric.name: float(metric.value(baseline)) for metric in benchmark.metrics},
        "larger_is_better": {metric.name: metric.larger_is_better for metric in benchmark.metrics},
        "heads_in_question": len(study.heads),
        "heads_of_model": study.of_model,
        "conditions": len(study.conditions),
        "conditions_reused": measuring.reused,
        "resamples": RESAMPLES,
        "resampled_unit": benchmark.facts.get("example", "example"),
        "prefix_reuse": measuring.facts,
        "engine": measuring.engine.facts,
    }
    if study.found:
        facts["importance"] = {one.method: one.facts for one in study.found}
        facts["importance_estimated_on"] = study.estimated_on
        facts["importance_agreement"] = agreed.to_dict("records")
    if study.measured_examples:
        facts["measured_examples"] = list(study.measured_examples)
    if plan.sweep == "cumulative":
        ordered = [one.name for one in study.conditions if not one.control_of]
        primary = (table["metric"] == benchmark.metrics[0].name) & table["condition"].isin(ordered)
        facts["largest_share_without_significant_loss"] = headline(table[primary], len(study.heads))
    return facts
