"""What a sweep will measure: its conditions, on which examples, and the importance that they rest on."""

from __future__ import annotations

from dataclasses import dataclass, replace

from headlens.ablation.conditions import SWEEPS, Choice, Condition
from headlens.ablation.estimates import Estimate
from headlens.ablation.ordering import default_order, estimates, halves, removal_order
from headlens.ablation.plan import Plan
from headlens.ablation.tagged import tagged_heads
from headlens.ablation.units import Units
from headlens.benchmarks.registry import Benchmark
from headlens.errors import InputError
from headlens.model.heads import Head
from headlens.model.lens import Lens


@dataclass(frozen=True, eq=False)
class Study:
    """What a sweep will measure.

    Args:
        benchmark: what conditions are measured on.
        conditions: in the order of the tables.
        found: estimates of importance, by method.
        estimated_on: how many examples they rest on, in words.
        measured_examples: numbers of the examples that conditions are measured on, where not all are.
        heads: the heads in question.
        of_model: how many heads the whole model has.
        tests: how many conditions were in question; more than there are where heads were screened.
    """

    benchmark: Benchmark
    conditions: tuple[Condition, ...]
    found: tuple[Estimate, ...]
    estimated_on: str
    heads: tuple[Head, ...]
    of_model: int
    tests: int
    measured_examples: tuple[int, ...] = ()


def study(
    lens: Lens, benchmark: Benchmark, heads: tuple[Head, ...], plan: Plan, units: Units | None
) -> Study:
    """Estimate importance where it is wanted, and list the conditions.

    *cumulative* estimates on one half of the examples and is measured on the other; any other sweep does both
    on all of them.

    Args:
        lens: the model.
        benchmark: what it is measured on.
        heads: the heads in question, in model order.
        plan: what is done with them.
        units: finished work on disk; None keeps none.

    Returns:
        What is to be measured.

    Raises:
        InputError: the plan does not fit the model or the benchmark.
        RunError: the run that tags are taken from is unfit.
    """
    choice = Choice(lens.anatomy, heads, step=plan.step, draws=plan.draws, seed=plan.options.seed)
    if plan.sweep == "cumulative":
        return _by_halves(lens, benchmark, choice, plan, units)
    order = tuple(name for name in plan.order if (plan.sweep, name) != ("each", "each"))
    if plan.screen is not None and not order:
        order = ("gradient",)
    if plan.sweep == "tags" and plan.tagged_by is not None:
        choice = replace(choice, tagged=_tagged(lens, heads, plan))
    found = estimates(lens, benchmark, heads, replace(plan, order=order), units)
    chosen = _screened(found[0], plan.screen) if plan.screen is not None else heads
    conditions = tuple(SWEEPS[plan.sweep](replace(choice, heads=chosen)))
    tests = sum(not one.control_of for one in conditions)
    said = f"all {benchmark.facts['examples']} examples"
    tests = max(tests, len(heads) if plan.screen else 0)
    return Study(benchmark, conditions, tuple(found), said, heads, len(lens.anatomy.heads), tests)


def _by_halves(lens: Lens, benchmark: Benchmark, choice: Choice, plan: Plan, units: Units | None) -> Study:
    numbers = halves(benchmark, plan.options.seed)
    first, second = (benchmark.take(half) for half in numbers)
    order = plan.order or default_order(benchmark)
    found = estimates(lens, first, choice.heads, replace(plan, order=order), units)
    choice = replace(choice, order=removal_order(found[0]), random=order[0] == "random")
    conditions = tuple(SWEEPS[plan.sweep](choice))
    said = f"a random half, {first.facts['examples']} examples, and measured on the other"
    tests = sum(not one.control_of for one in conditions)
    of_model = len(lens.anatomy.heads)
    return Study(second, conditions, tuple(found), said, choice.heads, of_model, tests, tuple(numbers[1]))


def _screened(found: Estimate, most: int) -> tuple[Head, ...]:
    """The heads that rank first, in model order."""
    chosen = set(removal_order(found)[-most:])
    return tuple(head for head in found.heads if head in chosen)


def _tagged(lens: Lens, heads: tuple[Head, ...], plan: Plan) -> dict[str, tuple[Head, ...]]:
    assert plan.tagged_by is not None  # the plan was checked
    known = tagged_heads(lens, plan.tagged_by)
    chosen = {tag: tuple(head for head in mine if head in heads) for tag, mine in known.items()}
    chosen = {tag: mine for tag, mine in chosen.items() if mine}
    if not chosen:
        raise InputError(
            "None of the heads in question has a tag.", "Name others with --heads, or leave it out."
        )
    return chosen
