"""Clusters of heads by average linkage, and how many there are."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.cluster.hierarchy import leaves_list, linkage
from scipy.spatial.distance import squareform
from sklearn.metrics import silhouette_score  # type: ignore[import-untyped]

MOST = 20  # clusters that are tried
Array = NDArray[np.float64]


@dataclass(frozen=True, eq=False)
class Clusters:
    """Heads put together.

    Args:
        labels: the cluster of each head, counted from 0 in the order of their first heads, [head].
        silhouette: mean silhouette, -1..1: 1 for clusters far apart, 0 for none to speak of; NaN where it is
            not defined (one cluster, or each head alone).
    """

    labels: NDArray[np.int64]
    silhouette: float

    @property
    def count(self) -> int:
        """How many clusters there are."""
        return int(self.labels.max()) + 1


def tree(distances: Array) -> Array:
    """Join heads to a tree by average linkage.

    Args:
        distances: symmetric [head, head], two heads or more.

    Returns:
        The merges, as `scipy.cluster.hierarchy.linkage` writes them, [head - 1, 4].
    """
    return np.asarray(linkage(squareform(distances, checks=False), "average"), dtype=np.float64)


def leaves(distances: Array) -> list[int]:
    """Order heads as they stand at the foot of their tree."""
    return [0] if len(distances) == 1 else [int(leaf) for leaf in leaves_list(tree(distances))]


def cluster(distances: Array, count: int | None = None) -> Clusters:
    """Cut the tree of heads into clusters.

    Args:
        distances: symmetric [head, head].
        count: how many clusters; by default the number from 2 to 20 (and below that of the heads) with the
            best mean silhouette, the fewer where two are as good. Heads at distance 0 always share one, so
            there can be fewer.

    Returns:
        The clusters.
    """
    n_heads = len(distances)
    if n_heads == 1:
        return Clusters(np.zeros(1, dtype=np.int64), np.nan)
    merges = tree(distances)
    if count is not None:
        return _scored(distances, _cut(merges, count))
    tried = [_scored(distances, _cut(merges, k)) for k in range(2, min(MOST, n_heads - 1) + 1)]
    best = None
    for one in tried:
        if not np.isnan(one.silhouette) and (best is None or one.silhouette > best.silhouette + 1e-12):
            best = one
    return best or _scored(distances, _cut(merges, n_heads))  # two heads, or all alike: as many as differ


def _cut(merges: Any, count: int) -> NDArray[np.int64]:
    """Undo the last merges but those at height 0; number what is left by its first heads."""
    n_heads = len(merges) + 1
    member = np.arange(2 * n_heads - 1)  # of each node, the node that it belongs to
    for number, (one, other, height, _) in enumerate(merges):
        if number < n_heads - count or height == 0:
            member[[int(one), int(other)]] = n_heads + number
    roots = np.arange(n_heads)
    while (member[roots] != roots).any():
        roots = member[roots]
    order = {root: label for label, root in enumerate(dict.fromkeys(roots.tolist()))}
    return np.array([order[root] for root in roots.tolist()], dtype=np.int64)


def _scored(distances: Array, labels: NDArray[np.int64]) -> Clusters:
    defined = 2 <= labels.max() + 1 < len(labels)
    score = silhouette_score(distances, labels, metric="precomputed") if defined else np.nan
    return Clusters(labels, float(score))
