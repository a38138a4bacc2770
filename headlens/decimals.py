"""Numbers as people write them in data files."""

from __future__ import annotations

import math
import re

_DECIMAL = re.compile(r"[+-]?([0-9]+\.?[0-9]*|\.[0-9]+)([eE][+-]?[0-9]+)?")


def decimal(text: str) -> float:
    """Read a number: a sign, ASCII digits, a point, an exponent, and nothing else.

    Python's own `float` also takes ``1_0``, digits of other scripts and ``inf``: in a data file these are
    more likely mistakes than numbers.

    Args:
        text: the number, without blanks around it.

    Returns:
        Its value; NaN where `text` is no such number, or one too large to hold.
    """
    value = float(text) if _DECIMAL.fullmatch(text) else math.nan
    return value if math.isfinite(value) else math.nan
