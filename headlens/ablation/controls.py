"""Random sets of heads that a set is held against: as many heads, from the same layers."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Sequence

import numpy as np

from headlens.model.heads import Head


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
