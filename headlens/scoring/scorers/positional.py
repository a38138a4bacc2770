"""Positional heads: those that look at one relative offset, such as the previous token."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar, Literal

import torch
from torch import Tensor

from headlens.model.devices import moved
from headlens.model.heads import STACKS
from headlens.scoring.base import Counts, Gold, Rule, Scorer, TokenView, is_unique_max


@dataclass(frozen=True, slots=True)
class Positional(Scorer):
    """Share of queries whose largest weight falls on one offset, and mean weight there, for each offset.

    A query counts for an offset where it may see a token there: the first token has no previous one, and a
    causal model sees no next one. A largest weight that several keys share falls nowhere. Baseline: uniform
    weights over the keys that the query may see. Voita et al. 2019 call a head positional when at least
    90 % of its largest weights fall on one offset, Clark et al. 2019 when it puts over half of its weight
    there.

    Args:
        offsets: key position minus query position.
    """

    offsets: tuple[int, ...] = tuple(range(-5, 6))
    tag: ClassVar[str] = "positional"
    anywhere: ClassVar[bool] = True
    stacks: ClassVar[tuple[str, ...]] = STACKS
    rules: ClassVar[Mapping[str, Rule]] = {
        "argmax": Rule("score", 0.9),
        "mass": Rule("score", 0.5, strict=True),
    }

    colour: ClassVar[str] = "#332288"
    letter: ClassVar[str] = "P"
    meaning: ClassVar[str] = (
        "At least 90 % of the head's largest weights, or more than half of its weight, fall on one offset:"
        " the previous token, the next, the token itself. Held against uniform attention."
    )
    figure: ClassVar[Literal["offsets"]] = "offsets"
    words: ClassVar[Mapping[str, str]] = {"argmax": "largest weights", "mass": "weight"}

    @classmethod
    def in_words(cls, measure: str) -> str:
        """Say which weights are on which offset."""
        name, _, offset = measure.partition("@")
        return f"{cls.words[name]} on offset {offset}" if offset and name in cls.words else measure

    @property
    def measures(self) -> tuple[str, ...]:
        """``argmax@k`` and ``mass@k`` for every offset k."""
        names = [f"{offset:+d}" if offset else "0" for offset in self.offsets]
        return (*(f"argmax@{name}" for name in names), *(f"mass@{name}" for name in names))

    def __call__(self, view: TokenView) -> Counts:
        """Score one block."""
        keys, valid, gold = view.once(self._places)
        n_heads = view.pattern.shape[1]
        mass = view.pattern.gather(3, keys[None, None].expand(len(valid), n_heads, -1, -1))
        largest = is_unique_max(view.pattern, mass)  # [input, head, query, offset]
        sums = [(found * valid[:, None]).sum(2) for found in (largest, mass)]  # each [input, head, offset]
        return Counts(torch.cat(sums, dim=-1).transpose(1, 2), gold)

    def _places(self, view: TokenView) -> tuple[Tensor, Tensor, Gold]:
        """The key at each offset [query, offset], where a query may see it [input, query, offset]; gold."""
        n_keys = view.pattern.shape[-1]
        keys = view.queries[:, None] + moved(torch.tensor(self.offsets), view.pattern.device)
        inside = (keys >= 0) & (keys < n_keys)
        keys = keys.clamp(0, n_keys - 1)
        seen = view.visible.gather(2, keys.expand(len(view.visible), -1, -1))
        valid = (inside & seen & view.counted[..., None]).to(view.pattern)
        uniform = (valid / view.n_visible.clamp(min=1)[..., None]).sum(1)  # [input, offset]
        gold = Gold(valid.sum(1).repeat(1, 2), uniform.repeat(1, 2)[..., None])
        return keys, valid, gold
