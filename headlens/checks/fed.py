"""Inputs side by side as checks feed them, and what the model makes of them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from headlens.checks.texts import Pair
from headlens.corpus.batches import make_batches
from headlens.model.heads import Site
from headlens.model.lens import Lens, known_pad, takes_positions

N_STATES = 5  # positions of the states that a decoder without an encoder of its own looks at


@dataclass(frozen=True, slots=True)
class Fed:
    """Inputs side by side.

    Args:
        inputs: what the model is given.
        source: which tokens are real, bool [row, token].
        target: the same of a decoder beside an encoder; None where there is none.
    """

    inputs: dict[str, Tensor]
    source: Tensor
    target: Tensor | None

    @property
    def sides(self) -> tuple[Tensor, ...]:
        """Which tokens are real of what the model puts out, then of its encoder where it has both."""
        return (self.source,) if self.target is None else (self.target, self.source)

    def queries(self, site: Site) -> Tensor:
        """Which queries of a site are real, bool [row, query]."""
        return self.source if self.target is None or site.stack == "encoder" else self.target

    def keys(self, site: Site) -> Tensor:
        """Which keys of a site are real, bool [row, key]."""
        if site.stack != "cross":
            return self.queries(site)
        if self.target is not None:
            return self.source
        return torch.ones(len(self.source), N_STATES, dtype=torch.bool)


def feed(lens: Lens, pairs: Sequence[Pair], left: bool = False) -> Fed:
    """Put inputs side by side.

    Args:
        lens: the model.
        pairs: the inputs.
        left: pad what is read (not what is written) on the left.

    Returns:
        The inputs.
    """
    pad, n = _pad_id(lens), len(pairs)
    sources = [source for source, _ in pairs]
    (source,) = make_batches(sources, pad, n, left, takes_positions(lens), ordered=True)
    inputs = dict(source.inputs)
    targets = [target for _, target in pairs if target is not None]
    if not targets:
        if getattr(lens.model.config.get_text_config(), "add_cross_attention", False):
            inputs["encoder_hidden_states"] = torch.cat([_states(lens)] * n)
        return Fed(inputs, source.real, None)
    (target,) = make_batches(targets, pad, n, ordered=True)
    inputs |= {f"decoder_{name}": target.inputs[name] for name in ("input_ids", "attention_mask")}
    return Fed(inputs, source.real, target.real)


def repeated(fed: Fed, n: int) -> Fed:
    """Put one input beside itself.

    Args:
        fed: one input.
        n: how many rows of it there shall be.

    Returns:
        The rows.
    """
    target = None if fed.target is None else fed.target.expand(n, -1)
    inputs = {name: torch.cat([x] * n) for name, x in fed.inputs.items()}
    return Fed(inputs, fed.source.expand(n, -1), target)


def run(lens: Lens, fed: Fed) -> tuple[Tensor, ...]:
    """Run inputs through the body of the model.

    Args:
        lens: the model.
        fed: the inputs.

    Returns:
        Its last hidden states, and its encoder's where it has both; float32 on the CPU.
    """
    outputs: Any = lens.run(fed.inputs)
    states = (outputs[0],) if fed.target is None else (outputs[0], outputs.encoder_last_hidden_state)
    return tuple(one.float().cpu() for one in states)


def real_states(states: Sequence[Tensor], fed: Fed) -> list[Tensor]:
    """Leave padding out.

    Args:
        states: from `run`, [row, token, width].
        fed: what they are of.

    Returns:
        The same, [real token, width].
    """
    return [one[real] for one, real in zip(states, fed.sides, strict=True)]


def apart(some: Sequence[Tensor], others: Sequence[Tensor]) -> float:
    """Tell by how much numbers differ at most.

    Args:
        some: tensors.
        others: the same, got in another way.

    Returns:
        The largest difference, as a share of the largest number of its tensor where that is above 1.
    """
    shares = [_share(one, other) for one, other in zip(some, others, strict=True)]
    return float(torch.stack(shares).max())  # keeps NaN


def _share(one: Tensor, other: Tensor) -> Tensor:
    return (one - other).abs().max() / one.abs().max().clamp(min=1)


def _pad_id(lens: Lens) -> int:
    """The padding id, which the attention mask hides; but RoBERTa counts its positions by it."""
    for holder in (lens.tokenizer, lens.model.config.get_text_config()):
        pad = getattr(holder, "pad_token_id", None)
        if isinstance(pad, int) and pad >= 0:
            return known_pad(lens, pad)
    return 0


def _states(lens: Lens) -> Tensor:
    """Drawn once, for a decoder that looks at the states of another model."""
    width = lens.model.config.get_text_config().hidden_size
    drawn = torch.randn(1, N_STATES, width, generator=torch.Generator().manual_seed(0))
    return drawn.to(lens.model.dtype)
