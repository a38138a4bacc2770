"""Heads laid out in a plane so that distances there come close to their distances."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray
from sklearn.manifold import smacof  # type: ignore[import-untyped]

Array = NDArray[np.float64]


def layout(distances: Array) -> Array:
    """Lay heads out by metric multidimensional scaling, as Clark et al. (2019) did.

    It begins with classical scaling, so nothing is drawn at random. The plane is turned so that x has the
    greatest spread, and flipped so that on each axis the head farthest out is on the positive side. A plane
    cannot hold all distances: heads that are near each other in it may be far apart.

    Args:
        distances: symmetric [head, head].

    Returns:
        Coordinates [head, 2], in the unit of the distances, with the mean at 0.
    """
    n_heads = len(distances)
    if not distances.any():
        return np.zeros((n_heads, 2))
    start = _classical(distances)
    if n_heads > 2:
        start, _ = smacof(
            distances, n_components=2, init=start, n_init=1, random_state=0, normalized_stress=False
        )
    return _turned(np.asarray(start, dtype=np.float64))


def _classical(distances: Array) -> Array:
    """Classical scaling: the two largest directions of the doubly centred squares."""
    squares = distances**2
    centred = -(squares - squares.mean(0) - squares.mean(1)[:, None] + squares.mean()) / 2
    values, vectors = np.linalg.eigh(centred)
    found: Array = vectors[:, ::-1][:, :2] * np.sqrt(values[::-1][:2].clip(min=0))
    return found


def _turned(places: Array) -> Array:
    places = places - places.mean(0)
    _, _, axes = np.linalg.svd(places, full_matrices=False)
    places = places @ axes.T
    farthest = places[np.abs(places).argmax(0), [0, 1]]
    turned: Array = places * np.where(farthest < 0, -1, 1) + 0.0
    return turned


def faithfulness(distances: Array, places: Array) -> float:
    """Measure how well a plane shows distances.

    Args:
        distances: symmetric [head, head].
        places: coordinates [head, 2].

    Returns:
        Pearson correlation of the distances in the plane with the true ones, over pairs; NaN where one of
        them does not vary.
    """
    pairs = np.triu_indices(len(distances), 1)
    true = distances[pairs]
    shown = np.sqrt(((places[pairs[0]] - places[pairs[1]]) ** 2).sum(1))
    if len(true) < 2 or np.ptp(true) == 0 or np.ptp(shown) == 0:
        return float("nan")
    return float(np.corrcoef(true, shown)[0, 1])
