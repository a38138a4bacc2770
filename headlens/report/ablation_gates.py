"""The map of roles that learned gates give to heads."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

import numpy as np
from matplotlib.colors import to_hex, to_rgb

from headlens.ablation.result import Sweep
from headlens.benchmarks.metrics import Array
from headlens.model.heads import Head
from headlens.report.ablation_grid import Cell, Grid
from headlens.report.ablation_words import BETTER, MISSING, WORSE, estimated_on
from headlens.report.figures import InchFigure, wrapped
from headlens.report.fonts import BASE
from headlens.report.parts import MARGIN
from headlens.util.formatting import counted

STRIP, HIGH, GAP, STRIP_TOP = 0.8, 0.15, 0.05, 0.24  # inches of the key: a strip of shades, what is around it
SIZE = 7  # points


@dataclass(frozen=True, slots=True)
class Role:
    """How a role looks and what it means.

    Args:
        colour: where it is certain; it fades to white as it gets less so.
        letter: written on the cell.
        meaning: what the head does.
    """

    colour: str
    letter: str
    meaning: str


ROLES: Mapping[str, Role] = {
    "facilitating": Role(WORSE, "F", "stays open under pressure to close"),
    "irrelevant": Role("#777777", "", "follows either pressure"),
    "interfering": Role(BETTER, "I", "closes under pressure to open"),
}


def gates_figure(sweep: Sweep) -> InchFigure:
    """Draw the likeliest role of each head and how sure it is: a map of layers and heads.

    Args:
        sweep: with learned gates.

    Returns:
        The figure, a panel per stack.
    """
    table = sweep.gates
    sure = certainty(
        table["open_closing"].to_numpy(np.float64), table["open_opening"].to_numpy(np.float64), table["role"]
    )
    places = zip(table["stack"], table["layer"], table["head"], strict=True)
    heads = [Head(str(stack), int(layer), int(head)) for stack, layer, head in places]
    cells = {
        head: Cell(_faded(ROLES[role].colour, share), ROLES[role].letter)
        for head, role, share in zip(heads, table["role"], sure, strict=True)
    }
    counts = {role: int((table["role"] == role).sum()) for role in ROLES}
    title = f"Of {counted(len(table), 'head')} " + ", ".join(
        f"{count or 'none'} {'are' if count > 1 else 'is'} {role}" for role, count in counts.items()
    )
    caption = (
        "Gates were learned twice, with a cost and with a gain for open ones (causal head gating, Nam et al. "
        "2025). How sure: the probability of what the role says about the gate. Where heads stand in "
        f"for each other, it is chance which of them stays open. {estimated_on(sweep)}"
    )
    grid = Grid(cells)
    key = [_key_text(role, grid.width) for role in ROLES]
    heights = [max(high, HIGH) + GAP for _, high in key]
    figure, top = grid.draw(title, caption, STRIP_TOP + sum(heights) + GAP)
    figure.write(MARGIN, top + 0.1, "unsure", 6.5)
    figure.write(MARGIN + STRIP, top + 0.1, "sure", 6.5, ha="right")
    top += STRIP_TOP
    for role, (text, _), height in zip(ROLES, key, heights, strict=True):
        _strip(figure, top, role)
        figure.write(MARGIN + STRIP + 0.08, top + 0.015, text, SIZE)
        top += height
    return figure


def certainty(closing: Array, opening: Array, roles: Iterable[str]) -> Array:
    """Compute how likely each head's role is.

    Args:
        closing: probability that the gate is open under pressure to close, [head].
        opening: the same under pressure to open, [head].
        roles: names in `ROLES`, [head].

    Returns:
        Probabilities 0..1, [head]: open under pressure to close; closed under pressure to open; or neither.
    """
    likely = {
        "facilitating": closing,
        "irrelevant": opening * (1 - closing),
        "interfering": 1 - opening,
    }
    return np.array([likely[role][place] for place, role in enumerate(roles)])


def _faded(colour: str, share: float) -> str:
    if not np.isfinite(share):
        return MISSING
    red, green, blue = (1 - share * (1 - part) for part in to_rgb(colour))
    return to_hex((red, green, blue))


def _key_text(role: str, width: float) -> tuple[str, float]:
    """What a role means, in lines that fit beside the strips, and their height in inches."""
    look = ROLES[role]
    letter = f" ({look.letter})" if look.letter else ""
    return wrapped(f"{role}{letter}: {look.meaning}", width - 2 * MARGIN - STRIP - 0.08, SIZE, [BASE])


def _strip(figure: InchFigure, top: float, role: str) -> None:
    axes = figure.place(MARGIN, top, STRIP, HIGH)
    shades = [to_rgb(_faded(ROLES[role].colour, share)) for share in np.linspace(0, 1, 50)]
    axes.imshow([shades], aspect="auto", interpolation="nearest")
    axes.set_axis_off()
