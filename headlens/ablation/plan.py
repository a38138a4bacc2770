"""What a sweep does: everything that a user may say about it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

from headlens.ablation.conditions import DRAWS, check_sweep
from headlens.ablation.methods import METHODS
from headlens.ablation.prefix import MEMORY
from headlens.benchmarks.base import Options
from headlens.engine.local import Engine
from headlens.errors import InputError
from headlens.model.heads import Head
from headlens.model.replacements import check_mode

ORDERS = ("each", *METHODS)


@dataclass(frozen=True, slots=True)
class Plan:
    """What a sweep does.

    Args:
        sweep: which heads are taken out together, a name in `headlens.ablation.conditions.SWEEPS`.
        mode: what stands in their place, a name in `headlens.model.replacements.MODES`.
        heads: the heads that may be taken out; all that the benchmark runs by default.
        order: how importance is estimated, names in `ORDERS`; *cumulative* goes by the first.
        step: share of heads that *cumulative* takes out at each step, 0..1.
        draws: random sets that *tags* and *cumulative* hold each of theirs against.
        screen: *each* measures only the so many heads that rank first by the first `order` (by the gradient
            if there is none); None measures all.
        tagged_by: run directory of `classify` whose tags *tags* takes heads from.
        permutations: how many orders *shapley* removes heads in.
        normalise: "layer" divides gradient importance by its layer's norm.
        options: how the benchmark is read and run, and the seed of everything drawn at random.
        out: run directory that keeps finished conditions; None keeps none.
        overwrite: throw away another run that `out` holds.
        prefix_memory: bytes that prefix reuse may keep; 0 turns it off.
        progress: show a progress bar on stderr.
        engine: where conditions are measured; here by default.
    """

    sweep: str = "each"
    mode: str = "zero"
    heads: str | Head | Sequence[Head] | None = None
    order: tuple[str, ...] = ()
    step: float = 0.1
    draws: int = DRAWS
    screen: int | None = None
    tagged_by: Path | None = None
    permutations: int = 10
    normalise: str | None = None
    options: Options = field(default_factory=Options)
    out: Path | None = None
    overwrite: bool = False
    prefix_memory: int = MEMORY
    progress: bool = False
    engine: Engine | None = None

    def check(self) -> None:
        """Refuse what cannot be done, before anything is run.

        Raises:
            InputError: a name that does not exist, or things that do not go together.
        """
        check_sweep(self.sweep)
        check_mode(self.mode)
        for order in self.order:
            if order not in ORDERS:
                raise InputError(f"There is no order {order!r}.", f"Choose one of: {', '.join(ORDERS)}.")
        if not 0 < self.step <= 1:
            raise InputError(
                f"Expected a step above 0 and up to 100 %, found {self.step:.0%}.", "Type --step 10%."
            )
        if self.sweep in ("tags", "cumulative") and self.draws < 2:
            raise InputError(f"Expected 2 random sets or more, found {self.draws}.", f"Type --draws {DRAWS}.")
        if self.sweep == "tags" and self.tagged_by is None:
            raise InputError(
                "The sweep tags needs to know which heads carry them.",
                "Run headlens classify first, and name its directory with --from.",
            )
        if self.sweep == "set" and self.heads is None:
            raise InputError("The sweep set needs its heads.", "Name them with --heads, such as 2.8,3.*.")
        if self.screen is not None and (self.sweep != "each" or self.screen < 1):
            raise InputError(
                "Screening is for --sweep each, and measures 1 head or more.",
                "Type --sweep each --screen 20.",
            )
