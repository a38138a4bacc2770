"""What is seen of inputs, and how it differs from what was seen of the same inputs elsewhere."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from headlens.checks.fed import Fed, apart, run
from headlens.model.heads import Head, Site
from headlens.model.lens import Lens
from headlens.model.seam import Block


@dataclass(frozen=True, slots=True)
class Seen:
    """What was seen of inputs.

    Args:
        fed: the inputs.
        states: last hidden states [row, token, width] of the model, then of its encoder where it has both.
        patterns: weights [row, head, query, key] of every site that ran.
        visible: which keys each query could see, bool [row, 1, query, key].
    """

    fed: Fed
    states: tuple[Tensor, ...]
    patterns: dict[Site, Tensor]
    visible: dict[Site, Tensor]

    def real_states(self, row: int) -> list[Tensor]:
        """The states of one input's real tokens, each [token, width]."""
        return [one[row][real[row]] for one, real in zip(self.states, self.fed.sides, strict=True)]

    def real_pattern(self, site: Site, row: int) -> Tensor:
        """What the real queries of one input look at, all keys, [head, query, key]."""
        return self.patterns[site][row][:, self.fed.queries(site)[row]]


def look(lens: Lens, fed: Fed) -> Seen:
    """Run inputs under observation.

    Args:
        lens: the model.
        fed: the inputs.

    Returns:
        What was seen, as float32 on the CPU.
    """
    parts: dict[Site, list[tuple[Tensor, Tensor]]] = {}

    def keep(site: Site, block: Block) -> None:
        unseen = (0, block.n_keys - block.pattern.shape[-1])
        pattern, visible = (torch.nn.functional.pad(x, unseen) for x in (block.pattern, block.visible))
        parts.setdefault(site, []).append((pattern.float().cpu(), visible.cpu()))

    with lens.observe(keep):
        states = run(lens, fed)
    patterns, visible = (
        {site: torch.cat([block[part] for block in blocks], dim=2) for site, blocks in parts.items()}
        for part in (0, 1)
    )
    return Seen(fed, states, patterns, visible)


@dataclass(frozen=True, slots=True)
class Gap:
    """How what was seen of an input differs from what was seen of it elsewhere.

    Args:
        weights: by head, the largest difference of a weight.
        states: largest difference of states, see `apart`.
    """

    weights: dict[Head, float]
    states: float


def gap(alone: Seen, together: Seen, row: int) -> Gap:
    """Compare an input by itself with the same among others.

    Args:
        alone: the input by itself.
        together: with others.
        row: which of them it is.

    Returns:
        How they differ; weight on padding counts as a difference.
    """
    differ: dict[Head, float] = {}
    for site, mine in alone.patterns.items():
        theirs = together.real_pattern(site, row)
        expected = torch.zeros_like(theirs)
        expected[..., together.fed.keys(site)[row]] = mine[0]
        largest = (theirs - expected).abs().amax(dim=(1, 2))  # [head]
        differ |= dict(zip(site.heads, largest.tolist(), strict=True))
    return Gap(differ, apart(alone.real_states(0), together.real_states(row)))
