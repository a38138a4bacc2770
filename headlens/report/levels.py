"""Weights in a byte each: which of a few levels is nearest.

Most weights of a long text are tiny, and it is they that take the room. So levels are fine at large weights,
which are rare, and go by the square root below, more coarsely the longer the text is: that keeps the maps of
72 heads over 500 tokens under 3.5 MB.
"""

from __future__ import annotations

import math
import zlib

import numpy as np
from numpy.typing import NDArray

LINEAR = 200  # steps of large weights
ROOTS = ((40, 128), (80, 64), (300, 24), (1 << 62, 20))
"""Up to how many tokens the square root of small weights has how many steps."""


def levels(n_tokens: int) -> NDArray[np.float64]:
    """Choose the levels for a text.

    Args:
        n_tokens: of the longer axis.

    Returns:
        At most 256 weights from 0 to 1, rising.
    """
    roots = next(steps for longest, steps in ROOTS if n_tokens <= longest)
    found = [0.0]
    while (following := ((len(found)) / roots) ** 2) - found[-1] < 1 / LINEAR:
        found.append(following)
    count = math.ceil((1 - found[-1]) * LINEAR)
    return np.concatenate([found[:-1], np.linspace(found[-1], 1, count + 1)])


def coded(weights: NDArray[np.float32], steps: NDArray[np.float64]) -> bytes:
    """Write a pattern as the browser reads it.

    Key by key, since what successive queries give to one key is more alike than what one query gives to
    successive keys; and with runs alone, which is a hundred times faster here than a search for any repeats,
    and no larger.

    Args:
        weights: [query, key], 0..1.
        steps: from `levels`.

    Returns:
        A zlib stream of one byte for each weight.
    """
    made = zlib.compressobj(6, zlib.DEFLATED, zlib.MAX_WBITS, 9, zlib.Z_RLE)
    return made.compress(quantise(weights.T, steps).tobytes()) + made.flush()


def quantise(weights: NDArray[np.float32], steps: NDArray[np.float64]) -> NDArray[np.uint8]:
    """Find the nearest level of each weight.

    Args:
        weights: 0..1, of any shape.
        steps: from `levels`.

    Returns:
        Places in `steps`, of the same shape.
    """
    middles = ((steps[1:] + steps[:-1]) / 2).astype(np.float32)
    return np.searchsorted(middles, weights).astype(np.uint8)
