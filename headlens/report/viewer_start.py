"""What the attention viewer shows first: settings by name, checked before they go into a page."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any

from headlens.errors import InputError
from headlens.model.heads import Head, Site, head_name, select

SETTINGS: Mapping[str, tuple[Any, ...]] = {
    "unit": ("tokens", "words"),
    "special": (True, False),
    "lens": ("weights", "norms"),
    "sort": ("layer", "entropy", "importance", "tag"),
    "shape": ("lines", "heatmap"),
    "least": ("0", "0.01", "0.05", "0.1", "0.25", "0.5"),
    "theme": ("auto", "light", "dark"),
}
"""What each setting takes; beside them ``heads``, ``pin`` and ``text``."""


def checked_start(start: Mapping[str, Any], sites: Sequence[Site]) -> dict[str, Any]:
    """Check what a page shall show first.

    Args:
        start: settings by name: those of `SETTINGS`, ``heads`` as a selector or a list of selectors, ``pin``
            such as ``q3`` (a query) or ``k3`` (a key), ``text`` as a number from 0.
        sites: of the model.

    Returns:
        The settings as the page reads them, heads by name.

    Raises:
        InputError: there is no such setting, or it does not take that value.
        SelectorError: a head is not in the model.
    """
    return {name: _checked(name, value, sites) for name, value in start.items()}


def _checked(name: str, value: Any, sites: Sequence[Site]) -> Any:
    if name == "heads":
        return _names(value, sites)
    if name in SETTINGS:
        fits, expected = value in SETTINGS[name], " or ".join(map(repr, SETTINGS[name]))
    elif name == "pin":
        fits = isinstance(value, str) and re.fullmatch(r"[qk]\d+", value) is not None
        expected = "'q' or 'k' and a number"
    elif name == "text":
        fits, expected = isinstance(value, int) and value >= 0, "a number from 0"
    else:
        known = ", ".join([*SETTINGS, "heads", "pin", "text"])
        raise InputError(f"The page has no setting {name!r}.", f"It has: {known}.")
    if not fits:
        raise InputError(f"Expected {expected} for {name}, got {value!r}.", "Give one of those.")
    return value


def _names(value: Any, sites: Sequence[Site]) -> list[str]:
    """Names of heads, in the order in which they were given."""
    given = [value] if isinstance(value, (str, Head)) else list(value)
    names = [
        head_name(head, sites)
        for one in given
        for head in select([one] if isinstance(one, Head) else one, sites)
    ]
    return list(dict.fromkeys(names))
