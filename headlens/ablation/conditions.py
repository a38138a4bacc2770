"""The conditions of a sweep: which heads are removed, how, and which random sets they are held against."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np

from headlens.errors import InputError
from headlens.model.anatomy import Anatomy
from headlens.model.heads import Head

DRAWS = 20  # random sets that a set of heads is held against


@dataclass(frozen=True, slots=True)
class Condition:
    """Some heads that are out.

    Args:
        name: what it is called: ``head 4.10``, which no program takes for a number.
        heads: the heads that are out, in model order.
        control_of: the condition that this random set is held against; empty for one that is not random.
    """

    name: str
    heads: tuple[Head, ...]
    control_of: str = ""


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
            order = permuted(choice.heads, generator)
            sets = [order[:count] for count in counts]
        else:
            sets = matched(steps, choice.heads, generator)
        made += [
            Condition(f"control {draw} of {name}", choice.sorted(heads), name)
            for name, heads in zip(names, sets, strict=True)
        ]
    return made


def only(choice: Choice) -> list[Condition]:
    """Keep one head of a layer and take all others of that layer out; every head has its turn."""
    return [
        Condition(f"only head {choice.anatomy.name(head)}", tuple(other for other in layer if other != head))
        for layer in choice.layers().values()
        if len(layer) > 1
        for head in layer
        if head in choice.heads
    ]


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
        made.append(Condition(name, choice.sorted(heads)))
        for draw in range(choice.draws):
            generator = np.random.default_rng([choice.seed, number, draw])
            (drawn,) = matched([heads], choice.heads, generator)
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


def check_sweep(kind: str) -> None:
    """Refuse a sweep that does not exist.

    Args:
        kind: what the user asks for.

    Raises:
        InputError: it is not in `SWEEPS`.
    """
    if kind not in SWEEPS:
        raise InputError(f"There is no sweep {kind!r}.", f"Choose one of: {', '.join(SWEEPS)}.")


# ---- Random sets of heads that a set is held against: as many heads, from the same layers


def matched(
    sets: Sequence[Sequence[Head]], pool: Sequence[Head], generator: np.random.Generator
) -> list[list[Head]]:
    """Draw a random set for each of some sets that grow: as many heads of each layer.

    Heads of the set itself may be drawn; otherwise a set that holds most of a layer could not be matched.

    Args:
        sets: sets of heads, each one holding the one before.
        pool: the heads that can be drawn.
        generator: draws them.

    Returns:
        Sets that grow likewise, drawn without replacement, uniformly within each layer.
    """
    layers: dict[tuple[str, int], list[Head]] = defaultdict(list)
    for head in pool:
        layers[head.stack, head.layer].append(head)
    orders = {layer: permuted(heads, generator) for layer, heads in layers.items()}
    made = []
    for heads in sets:
        counts = Counter((head.stack, head.layer) for head in heads)
        made.append([head for layer, count in counts.items() for head in orders[layer][:count]])
    return made


def permuted(heads: Sequence[Head], generator: np.random.Generator) -> list[Head]:
    """Put heads in random order.

    Args:
        heads: the heads.
        generator: draws the order.

    Returns:
        The same heads.
    """
    return [heads[place] for place in generator.permutation(len(heads))]
