"""Numbers, heads and tags as the sentences and tables of a page write them."""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any
from urllib.parse import quote

from markupsafe import Markup

from headlens.report.tag_styles import style_of
from headlens.util.formatting import apart, per_cent, visible

_WRITTEN = {
    "number": "{:.4g}",
    "value": "{:.4f}",
    "change": "{:+.4f}",
    "share": "{:.3f}",
    "p": "{:.2g}",
    "count": "{:,.0f}",
}


@dataclass(frozen=True, slots=True)
class Place:
    """Where a run stands in a page.

    Args:
        number: of the run, from 0.
        alone: whether it is the only one, so that links need not say which run they mean.
    """

    number: int = 0
    alone: bool = True

    @property
    def name(self) -> str:
        """Of the run's section, and the beginning of every name in it."""
        return f"run-{self.number}"

    def address(self, head: str) -> str:
        """The fragment that opens a head."""
        return f"#{'' if self.alone else f'run={self.number}&'}head={quote(head, safe='.')}"

    def link(self, head: str) -> Markup:
        """A link that opens a head."""
        return Markup('<a class="head" href="{}">{}</a>').format(self.address(head), visible(head))


def number(value: Any, kind: str) -> str:
    """Write a number.

    Args:
        value: the number.
        kind: as in `headlens.report.page.parts.Column`.

    Returns:
        Rounded as suits its kind; whole numbers as they are.
    """
    if kind == "number" and float(value).is_integer() and abs(float(value)) < 1e9:
        return f"{int(value):,}"
    return _WRITTEN[kind].format(float(value))


def percent(share: float) -> str:
    """Write a share as per cent, with one decimal below 10 %."""
    return f"{per_cent(share, 0 if abs(share) >= 0.0995 else 1)} %"


def level(share: float, low: float, high: float) -> tuple[str, str]:
    """Write a share and its own interval as per cent, with one decimal where whole ones hide the interval.

    Args:
        share: 0..1.
        low: lower end of its 95 % interval.
        high: its upper end.

    Returns:
        The share, such as ``90.3 %``, and the interval, such as ``90.1 to 90.5 %``.
    """
    decimals = apart([100 * one for one in (low, share, high)], 0, 1)
    said = [per_cent(one, decimals) for one in (share, low, high)]
    return f"{said[0]} %", f"{said[1]} to {said[2]} %"


def points(low: float, high: float) -> str:
    """Write an interval of a difference of shares in percentage points."""
    decimals = 0 if min(abs(low), abs(high)) >= 0.0995 else 1
    return f"{100 * low:+.{decimals}f} to {100 * high:+.{decimals}f} points"


def only_stack(stacks: Iterable[str]) -> str:
    """Name the stack that all heads are in; nothing where there are several, or none."""
    found = set(stacks)
    return found.pop() if len(found) == 1 else ""


def term_id(key: str) -> str:
    """Name the place of a definition, by its key: a name that an address can hold, whatever the key."""
    return "def-" + re.sub(r"[^a-z0-9-]", lambda found: f"_{ord(found[0]):x}_", key)


def chip(tag: str) -> Markup:
    """Write a tag with its colour and letter, as a link to what it means."""
    look, key = style_of(tag), visible(f"tag {tag}")
    return Markup(
        '<a class="tag" href="#{}" data-term="{}"><span class="chip" style="background:{};color:{}" '
        'aria-hidden="true">{}</span>{}</a>'
    ).format(term_id(key), key, look.colour, look.ink, visible(look.letter), visible(tag))


def chips(tags: Iterable[str]) -> Markup:
    """Write several tags."""
    return Markup(" ").join(chip(tag) for tag in tags if tag)
