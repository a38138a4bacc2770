"""Which heads are taken out together: a sweep is a list of conditions."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from headlens.ablation.modes import MODES
from headlens.anatomy import Anatomy
from headlens.errors import InputError
from headlens.heads import Head


@dataclass(frozen=True, slots=True)
class Condition:
    """Some heads that are out, and what stands in their place.

    Args:
        name: what it is called: ``head 4.10``, which no program takes for a number.
        heads: the heads that are out, in model order.
        mode: a name in `headlens.ablation.modes.MODES`.
    """

    name: str
    heads: tuple[Head, ...]
    mode: str


def each(anatomy: Anatomy, heads: Sequence[Head], mode: str) -> list[Condition]:
    """Take every head out alone.

    It misleads where heads stand in for each other: each alone seems to do nothing.

    Args:
        anatomy: the model's.
        heads: the heads to take out.
        mode: what stands in their place.

    Returns:
        One condition per head, in model order, named after the head.
    """
    return [Condition(f"head {anatomy.name(head)}", (head,), mode) for head in heads]


SWEEPS: Mapping[str, Callable[[Anatomy, Sequence[Head], str], list[Condition]]] = {"each": each}
"""What lists the conditions of each kind of sweep."""


def conditions(kind: str, anatomy: Anatomy, heads: Sequence[Head], mode: str) -> list[Condition]:
    """List the conditions of a sweep.

    Args:
        kind: a name in `SWEEPS`.
        anatomy: the model's.
        heads: the heads that may be taken out, in model order.
        mode: a name in `headlens.ablation.modes.MODES`.

    Returns:
        The conditions, in the order of the tables.

    Raises:
        InputError: there is no such kind, or no such mode.
    """
    if kind not in SWEEPS:
        raise InputError(f"There is no sweep {kind!r}.", f"Choose one of: {', '.join(SWEEPS)}.")
    if mode not in MODES:
        raise InputError(f"There is no ablation mode {mode!r}.", f"Choose one of: {', '.join(MODES)}.")
    return SWEEPS[kind](anatomy, heads, mode)
