"""What an estimate of importance is made by, and what it holds."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import pandas as pd

from headlens.ablation.gates import Fit
from headlens.ablation.importance import ranked
from headlens.ablation.shapley import Value
from headlens.benchmarks.metrics import Array
from headlens.errors import InputError
from headlens.model.heads import Head

NORMS = ("layer",)


@dataclass(frozen=True, slots=True)
class Settings:
    """What a user may say about how importance is estimated.

    Args:
        normalise: "layer" divides *gradient* importance by the L2 norm of its layer.
        steps: of *integrated*, along the gates.
        permutations: of *shapley*.
        fit: of *gates*.
        seed: of everything drawn at random, 0 or more.
        value: for *shapley*, how bad the model is without some heads; by default the benchmark's loss, or
            its primary metric where it has none.
        progress: show a progress bar on stderr.
    """

    normalise: str | None = None
    steps: int = 32
    permutations: int = 10
    fit: Fit = field(default_factory=Fit)
    seed: int = 0
    value: Value | None = None
    progress: bool = False

    def __post_init__(self) -> None:
        if self.normalise is not None and self.normalise not in NORMS:
            raise InputError(
                f"There is no way {self.normalise!r} to normalise importance.",
                f"Choose one of: {', '.join(NORMS)}; or none.",
            )
        for name, number in (("steps", self.steps), ("permutations", self.permutations)):
            if number < 1:
                raise InputError(f"Expected 1 or more {name}, found {number}.", f"Write {name}=1 or more.")


@dataclass(frozen=True, eq=False)
class Estimate:
    """How much each head matters, by one method.

    Args:
        method: a name in `headlens.ablation.methods.METHODS`.
        heads: the heads, in the order given.
        values: importance of each, positive where the model is worse without it, [head].
        error: its standard error, over examples or permutations, [head]; None where there is none.
        facts: what `run.json` says about it; `all_on` and `all_off` are the loss with and without all
            heads under study, `sum` is what must equal their difference.
        roles: of *gates*, the table stack, layer, head, open_closing, open_opening, role.
    """

    method: str
    heads: tuple[Head, ...]
    values: Array
    error: Array | None = None
    facts: Mapping[str, Any] = field(default_factory=dict)
    roles: pd.DataFrame | None = None

    @property
    def importance(self) -> pd.DataFrame:
        """The table `importance.csv` of this method."""
        return ranked(self.heads, self.method, self.values)
