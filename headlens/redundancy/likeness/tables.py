"""The tables of a comparison of heads."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
import pandas as pd

from headlens.model.heads import Head
from headlens.redundancy.likeness.clusters import Clusters
from headlens.redundancy.likeness.measuring import Array, Compared
from headlens.report.links import link_name

DISTANCES = ["stack_a", "layer_a", "head_a", "stack_b", "layer_b", "head_b", "js", "cka"]
CLUSTERS = ["stack", "layer", "head", "cluster", "x", "y", "nearest", "nearest_js", "tags"]


def distance_table(compared: Compared) -> pd.DataFrame:
    """Write a row for every pair of heads, each once, in model order.

    Args:
        compared: heads of one stack.

    Returns:
        Columns as in `DISTANCES`.
    """
    first, second = np.triu_indices(len(compared.heads), 1)
    stacks = np.array([head.stack for head in compared.heads], dtype=object)
    layers, numbers = np.array([(head.layer, head.head) for head in compared.heads]).T
    sides = {
        f"{name}_{side}": values[rows]
        for side, rows in (("a", first), ("b", second))
        for name, values in (("stack", stacks), ("layer", layers), ("head", numbers))
    }
    values = {"js": compared.js[first, second], "cka": compared.cka[first, second]}
    return pd.DataFrame({**sides, **values}, columns=DISTANCES)


def cluster_table(
    compared: Compared,
    found: Clusters,
    places: Array,
    several: bool,
    tags: Mapping[Head, Sequence[str]] | None = None,
) -> pd.DataFrame:
    """Write a row for every head.

    Args:
        compared: heads of one stack.
        found: their clusters.
        places: their places in a plane, [head, 2].
        several: whether names of heads need their stack.
        tags: of each head, where they are known.

    Returns:
        Columns as in `CLUSTERS`.
    """
    rows = []
    for number, head in enumerate(compared.heads):
        others = compared.js[number].copy()
        others[number] = np.inf
        near = int(others.argmin())  # the first of several
        alone = len(others) == 1
        rows.append(
            (
                head.stack, head.layer, head.head, int(found.labels[number]), *places[number].tolist(),
                "" if alone else link_name(compared.heads[near], several),
                np.nan if alone else others[near],
                ";".join((tags or {}).get(head, ())),
            )
        )  # fmt: skip
    return pd.DataFrame(rows, columns=CLUSTERS)


def matrix_of(distances: pd.DataFrame, heads: pd.DataFrame, value: str = "js") -> Array:
    """Lay one column of the table of pairs out as a matrix.

    Args:
        distances: columns as in `DISTANCES`.
        heads: rows of `CLUSTERS` of one stack, in model order.
        value: "js" or "cka".

    Returns:
        Symmetric [head, head], 0 on the diagonal.
    """
    places = {
        head: i for i, head in enumerate(heads[["stack", "layer", "head"]].itertuples(index=False, name=None))
    }
    matrix = np.zeros((len(heads), len(heads)))
    sides = [distances[[f"{name}_{side}" for name in ("stack", "layer", "head")]] for side in "ab"]
    one, other = ([places.get(key, -1) for key in side.itertuples(index=False, name=None)] for side in sides)
    rows, columns = np.array(one, dtype=int), np.array(other, dtype=int)
    mine = (rows >= 0) & (columns >= 0)
    matrix[rows[mine], columns[mine]] = distances[value].to_numpy(float)[mine]
    return matrix + matrix.T


def has_several(clusters: pd.DataFrame) -> bool:
    """Whether heads are named with their stack, as the column `nearest` does."""
    return bool(clusters["nearest"].astype(str).str.count(r"\.").max() > 1)


def names_of(table: pd.DataFrame, several: bool, side: str = "") -> list[str]:
    """Write the heads of a table.

    Args:
        table: columns as in `CLUSTERS`, or as in `DISTANCES`.
        several: whether names need their stack.
        side: "_a" or "_b" for a table of pairs.

    Returns:
        ``4.11`` or ``encoder.4.11``, one per row.
    """
    columns = [table[f"{name}{side}"] for name in ("stack", "layer", "head")]
    return [link_name(Head(str(s), int(x), int(h)), several) for s, x, h in zip(*columns, strict=True)]
