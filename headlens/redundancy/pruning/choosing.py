"""Which heads to remove: those that a finished run found to matter least."""

from __future__ import annotations

import math
import shlex
from pathlib import Path

from headlens.errors import InputError
from headlens.model.heads import Head
from headlens.model.lens import Lens
from headlens.report.marks import read_marks


def least_important(lens: Lens, run: str | Path, keep: float) -> tuple[Head, ...]:
    """Choose the least important heads of a model.

    Args:
        lens: the model.
        run: directory of ``headlens ablate``.
        keep: share of all heads that stay, 0..1; rounded to whole heads.

    Returns:
        The others: the least important, of equals the last of the model. A head without importance stays.

    Raises:
        InputError: the share is none, or so small that heads without importance would have to go.
        RunError: the run has no importance, or is about another model.
    """
    heads = lens.anatomy.heads
    if not 0 <= keep < 1:
        raise InputError(
            f"Expected a share of heads to keep, from 0 to below 1, found {keep:g}.", "Write 0.75."
        )
    worth = read_marks([run], lens).importance
    if worth is None:
        model = shlex.quote(lens.source.name) if lens.source else "MODEL"
        raise InputError(
            f"{run} says nothing about the importance of heads.",
            f"Type first: headlens ablate {model} --out RUN",
        )
    known = [head for head in heads if not math.isnan(worth.get(head, math.nan))]
    n_gone = len(heads) - math.floor(keep * len(heads) + 0.5)
    if n_gone == 0:
        raise InputError(
            f"To keep {keep:.4g} of {len(heads)} heads removes none.",
            f"Keep {1 - 1 / len(heads):.2f} or less.",
        )
    if n_gone > len(known):
        raise InputError(
            f"To keep {keep:.4g} of {len(heads)} heads {n_gone} must go, and {run} has the importance of "
            f"{len(known)}.",
            "Keep more, or measure all heads.",
        )
    order = sorted(range(len(known)), key=lambda place: (worth[known[place]], -place))
    gone = {known[place] for place in order[:n_gone]}
    return tuple(head for head in heads if head in gone)
