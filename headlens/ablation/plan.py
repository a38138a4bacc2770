"""What a sweep is asked to do, and its conditions: which heads are out, and the random sets beside them."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np

from headlens.ablation.importance import METHODS, ImportanceSettings
from headlens.ablation.prefix import MEMORY
from headlens.benchmarks.base import BenchmarkOptions
from headlens.engine.local import Engine
from headlens.errors import InputError
from headlens.model.anatomy import Anatomy
from headlens.model.heads import Head
from headlens.model.replacements import check_mode
from headlens.runs.read import read_tags

DRAWS = 20  # random sets that a set of heads is held against


@dataclass(frozen=True, slots=True)
class Condition:
    """Some heads that are out.

    Args:
        name: what it is called: ``head 4.10``, which no program takes for a number.
        heads: the heads that are out, in model order.
        control_of: the condition that this random set is held against; empty for one that is not random.
        kept: the head of the layer that alone is kept, where that is what the condition is about.
        tag: what its heads are tagged with, where that is why they go together.
    """

    name: str
    heads: tuple[Head, ...]
    control_of: str = ""
    kept: Head | None = None
    tag: str = ""


@dataclass(frozen=True, eq=False)
class Choice:
    """What the conditions of a sweep are made of.

    Args:
        anatomy: the model's.
        heads: the heads that may be taken out, in model order.
        order: the same heads, the least important first; needed by *cumulative*.
        step: share of the heads that each condition of *cumulative* takes out more than the one before.
        tagged: heads of each tag, by its name; needed by *tags*.
        draws: how many random sets each set is held against, where the kind has controls.
        seed: of the random sets.
        random: whether the order itself is random; its controls are then other random orders.
    """

    anatomy: Anatomy
    heads: tuple[Head, ...]
    order: tuple[Head, ...] = ()
    step: float = 0.1
    tagged: Mapping[str, tuple[Head, ...]] = field(default_factory=dict)
    draws: int = DRAWS
    seed: int = 0
    random: bool = False

    def layers(self) -> dict[str, tuple[Head, ...]]:
        """The heads by layer, named ``4`` or ``cross.4``, all of the layer whether or not they are chosen."""
        several = len(self.anatomy.stacks) > 1
        found = {}
        for site in self.anatomy.sites:
            if any(head in self.heads for head in site.heads):
                found[str(site) if several else str(site.layer)] = site.heads
        return found

    def sorted(self, heads: Sequence[Head]) -> tuple[Head, ...]:
        """Heads in model order."""
        chosen = set(heads)
        return tuple(head for head in self.anatomy.heads if head in chosen)


def each(choice: Choice) -> list[Condition]:
    """Take every head out alone.

    It misleads where heads stand in for each other: each alone seems to do nothing.
    """
    return [Condition(f"head {choice.anatomy.name(head)}", (head,)) for head in choice.heads]


def cumulative(choice: Choice) -> list[Condition]:
    """Take heads out step by step, the least important first, until none of them is left.

    Every step is held against random sets that take as many heads out of each layer; a draw's sets grow from
    step to step as the ordered one does.
    """
    n = len(choice.order)
    counts = sorted({max(1, round(n * share)) for share in np.arange(choice.step, 1, choice.step)} | {n})
    steps = [choice.sorted(choice.order[:count]) for count in counts]
    names = [f"least important {count} of {n}" for count in counts]
    made = [Condition(name, heads) for name, heads in zip(names, steps, strict=True)]
    for draw in range(choice.draws):
        generator = np.random.default_rng([choice.seed, draw])
        if choice.random:
            order = _permuted(choice.heads, generator)
            sets = [order[:count] for count in counts]
        else:
            sets = _matched(steps, choice.heads, generator)
        made += [
            Condition(f"control {draw} of {name}", choice.sorted(heads), name)
            for name, heads in zip(names, sets, strict=True)
        ]
    return made


def only(choice: Choice) -> list[Condition]:
    """Keep one head of a layer and take all others of that layer out; every head has its turn."""
    made = []
    for layer in choice.layers().values():
        for head in layer:
            if head in choice.heads and len(layer) > 1:
                others = tuple(other for other in layer if other != head)
                made.append(Condition(f"only head {choice.anatomy.name(head)}", others, kept=head))
    if not made:
        raise InputError("No layer has several heads, one of which could be kept.", "Choose another --sweep.")
    return made


def layer(choice: Choice) -> list[Condition]:
    """Take out each whole layer; with chosen heads, those of it that are chosen."""
    return [
        Condition(f"layer {name}", tuple(head for head in heads if head in choice.heads))
        for name, heads in choice.layers().items()
    ]


def tags(choice: Choice) -> list[Condition]:
    """Take out all heads of each tag, held against random sets with as many heads of each layer."""
    made = []
    for number, (tag, heads) in enumerate(choice.tagged.items()):
        name = f"tag {tag}"
        made.append(Condition(name, choice.sorted(heads), tag=tag))
        for draw in range(choice.draws):
            generator = np.random.default_rng([choice.seed, number, draw])
            (drawn,) = _matched([heads], choice.heads, generator)
            made.append(Condition(f"control {draw} of {name}", choice.sorted(drawn), name))
    return made


def together(choice: Choice) -> list[Condition]:
    """Take all chosen heads out together."""
    return [Condition("set", choice.heads)]


SWEEPS: Mapping[str, Callable[[Choice], list[Condition]]] = {
    "each": each,
    "cumulative": cumulative,
    "only": only,
    "layer": layer,
    "tags": tags,
    "set": together,
}
"""What lists the conditions of each kind of sweep, in the order of the tables."""


# ---- What a user asks of a sweep


ORDERS = ("each", *METHODS)


@dataclass(frozen=True, slots=True)
class SweepPlan:
    """What a sweep does.

    Args:
        sweep: which heads are taken out together, a name in `SWEEPS`.
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
    options: BenchmarkOptions = field(default_factory=BenchmarkOptions)
    out: Path | None = None
    overwrite: bool = False
    prefix_memory: int = MEMORY
    progress: bool = False
    engine: Engine | None = None

    def check(self) -> None:
        """Refuse what cannot be done, before a model is loaded: the one check of all options of a sweep.

        Raises:
            InputError: a name that does not exist, or things that do not go together.
            RunError: the run that tags are taken from has no table of tags.
        """
        if self.sweep not in SWEEPS:
            raise InputError(f"There is no sweep {self.sweep!r}.", f"Choose one of: {', '.join(SWEEPS)}.")
        check_mode(self.mode)
        for order in self.order:
            if order not in ORDERS:
                raise InputError(f"There is no order {order!r}.", f"Choose one of: {', '.join(ORDERS)}.")
        ImportanceSettings(normalise=self.normalise, permutations=self.permutations)
        if not 0 < self.step <= 1:
            raise InputError(
                f"Expected a step above 0 and up to 100 %, found {self.step:.0%}.", "Type --step 10%."
            )
        if self.sweep in ("tags", "cumulative") and self.draws < 2:
            raise InputError(f"Expected 2 random sets or more, found {self.draws}.", f"Type --draws {DRAWS}.")
        if self.sweep == "set" and self.heads is None:
            raise InputError("The sweep set needs its heads.", "Name them with --heads, such as 2.8,3.*.")
        if self.screen is not None and (self.sweep != "each" or self.screen < 1):
            raise InputError(
                "Screening is for --sweep each, and measures 1 head or more.",
                "Type --sweep each --screen 20.",
            )
        if self.sweep == "tags":
            if self.tagged_by is None:
                raise InputError(
                    "The sweep tags needs to know which heads carry them.",
                    "Run headlens classify first, and name its directory with --from.",
                )
            read_tags(self.tagged_by)


# ---- Random sets of heads that a set is held against: as many heads, from the same layers


def _matched(
    sets: Sequence[Sequence[Head]], pool: Sequence[Head], generator: np.random.Generator
) -> list[list[Head]]:
    """Draw for sets that grow random ones that grow likewise, uniformly: as many heads of each layer.

    Heads of the set itself may be drawn; otherwise a set that holds most of a layer could not be matched.
    """
    layers: dict[tuple[str, int], list[Head]] = defaultdict(list)
    for head in pool:
        layers[head.stack, head.layer].append(head)
    orders = {layer: _permuted(heads, generator) for layer, heads in layers.items()}
    made = []
    for heads in sets:
        counts = Counter((head.stack, head.layer) for head in heads)
        made.append([head for layer, count in counts.items() for head in orders[layer][:count]])
    return made


def _permuted(heads: Sequence[Head], generator: np.random.Generator) -> list[Head]:
    """Put heads in random order."""
    return [heads[place] for place in generator.permutation(len(heads))]
