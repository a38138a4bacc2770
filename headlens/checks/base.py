"""What a check of the measuring is, and what it finds."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass

from headlens.checks.subject import Subject
from headlens.model.heads import Head
from headlens.model.lens import Lens


@dataclass(frozen=True, slots=True)
class Outcome:
    """What a check came to.

    Args:
        passed: None where it does not apply.
        said: in words, with its figure; why, where it does not apply.
        figure: what was measured.
        allowed: the largest figure that passes.
    """

    passed: bool | None
    said: str
    figure: float | None = None
    allowed: float | None = None


@dataclass(frozen=True, slots=True)
class Check:
    """One thing that must hold for numbers to mean anything.

    Args:
        does: looks at a model.
        meaning: what it means where it does not hold, one sentence.
        cheap: whether it takes a few short passes at most.
    """

    does: Callable[[Subject], Outcome]
    meaning: str
    cheap: bool = True


@dataclass(frozen=True, slots=True)
class Finding:
    """What one check found.

    Args:
        name: of the check.
        passed: None where it does not apply.
        said: in words, with its figure; why, where it does not apply.
        figure: what was measured, None where there is no number.
        allowed: the largest figure that passes.
        meaning: what a failure means, one sentence.
    """

    name: str
    passed: bool | None
    said: str
    figure: float | None
    allowed: float | None
    meaning: str


def within(figure: float, allowed: float, said: str) -> Outcome:
    """Pass where a figure is small enough; one that is no number is not.

    Args:
        figure: what was measured.
        allowed: the largest that passes.
        said: what it is, with the figure in it.

    Returns:
        The outcome; what is allowed is added to what is said.
    """
    return Outcome(figure <= allowed, f"{said}, allowed {allowed:.2g}", figure, allowed)


def does_not_apply(reason: str) -> Outcome:
    """Say why a check does not apply."""
    return Outcome(None, reason)


def worst(lens: Lens, figures: Mapping[Head, float]) -> str:
    """Write the largest figure, with its head where it is not 0."""
    head = max(figures, key=lambda head: figures[head])
    where = f" (head {lens.anatomy.name(head)})" if figures[head] else ""
    return f"{largest(figures.values()):.2g}{where}"


def largest(figures: Iterable[float]) -> float:
    """Find the largest figure, NaN where one is NaN, 0 of none."""
    known = [0.0, *figures]
    return math.nan if any(map(math.isnan, known)) else max(known)
