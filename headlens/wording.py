"""Numbers in sentences: with what they count, and as per cent that never reads 0 or 100 where it is not."""

from __future__ import annotations

import math

MOST = 9  # decimals


def per_cent(share: float, decimals: int = 0) -> str:
    """Round a share to per cent; what is neither 0 nor 100 % gets as many decimals as it takes to say so.

    Args:
        share: 0..1, or the difference of two shares; finite.
        decimals: at least so many.

    Returns:
        The number of per cent, without the sign: ``67``, ``0.3`` of 1 in 320, ``99.7`` of 319 in 320.
    """
    while decimals < MOST and abs(share) not in (0, 1) and _reads_whole(f"{100 * share:.{decimals}f}"):
        decimals += 1
    return f"{100 * share:.{decimals}f}"


def counted(number: int, one: str) -> str:
    """Write a number with what it counts: ``1 head``, ``2 heads``."""
    return f"{number:,} {one}{'s' * (number != 1)}"


def apart(numbers: list[float], least: int, most: int) -> int:
    """Choose decimals so that numbers which differ read differently.

    Args:
        numbers: finite ones.
        least: decimals at least.
        most: decimals at most.

    Returns:
        How many decimals to write.
    """
    different = set(numbers)
    for decimals in range(least, most):
        if len({f"{one:.{decimals}f}" for one in different}) == len(different):
            return decimals
    return most


def _reads_whole(text: str) -> bool:
    return math.isclose(abs(float(text)), 0) or math.isclose(abs(float(text)), 100)
