"""Heads and their names: `Head`, `Site`, and selectors such as ``2.8,3.*``."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from headlens.errors import SelectorError

STACKS = ("encoder", "decoder", "cross")


@dataclass(frozen=True, order=True, slots=True)
class Head:
    """One attention head, counted from 0: ``encoder 4.11`` is head 11 of layer 4.

    Args:
        stack: "encoder", "decoder" or "cross".
        layer: the layer's number in the model itself, from 0.
        head: the query head's number in its layer, from 0.
    """

    stack: str
    layer: int
    head: int

    def __str__(self) -> str:
        return f"{self.stack}.{self.layer}.{self.head}"


@dataclass(frozen=True, slots=True)
class Site:
    """One place where attention is computed: one layer of one stack.

    Args:
        index: position in the order in which the model's sites run, from 0.
        stack: "encoder", "decoder" (decoder self-attention) or "cross" (decoder over encoder).
        layer: the layer's number in the model itself, from 0.
        module: dotted path of the attention module in the model.
        n_heads: number of query heads.
        n_kv_heads: number of key-value heads; query head h reads key-value head h // (n_heads // n_kv_heads).
        head_width: width of one head's output before W_O.
        causal: whether a query may see only keys at or before its own position.
    """

    index: int
    stack: str
    layer: int
    module: str
    n_heads: int
    n_kv_heads: int
    head_width: int
    causal: bool

    @property
    def heads(self) -> tuple[Head, ...]:
        """The heads of this site, in order."""
        return tuple(Head(self.stack, self.layer, head) for head in range(self.n_heads))

    def __str__(self) -> str:
        return f"{self.stack}.{self.layer}"


def head_name(head: Head, sites: Iterable[Site]) -> str:
    """Write a head as users do: ``4.11``, with its stack where the model has several.

    Args:
        head: the head to write.
        sites: all sites of the model.

    Returns:
        ``4.11`` or ``cross.4.11``.
    """
    if len({site.stack for site in sites}) > 1:
        return str(head)
    return f"{head.layer}.{head.head}"


_PART = re.compile(
    r"(?:(?P<stack>encoder|decoder|cross)\.)?(?P<layer>\*|\d{1,9}(?:-\d{1,9})?)\.(?P<head>\*|\d{1,9}(?:-\d{1,9})?)"
)


def select(selector: str | Head | Iterable[Head], sites: Sequence[Site]) -> tuple[Head, ...]:
    """Find the heads that a selector names.

    Args:
        selector: ``4.11``, ``4.*``, ``*.3``, ``4.0-5``, ``cross.4.11``, or several joined by commas;
            or heads themselves.
        sites: all sites of the model.

    Returns:
        The heads, each once, in model order.

    Raises:
        SelectorError: the selector cannot be read, or a part of it names no head of the model.

    Examples:
        >>> site = Site(0, "encoder", 0, "layer.0", n_heads=4, n_kv_heads=4, head_width=8, causal=False)
        >>> [head_name(head, [site]) for head in select("0.3,0.0-1", [site])]
        ['0.0', '0.1', '0.3']
        >>> select("0.4", [site])
        Traceback (most recent call last):
        headlens.errors.SelectorError: There is no head 0.4 in this model. It has ...
    """
    known = [head for site in sites for head in site.heads]
    if isinstance(selector, str):
        parts = dict.fromkeys(part.strip() for part in selector.split(","))
        chosen = [head for part in parts for head in _matches(part, sites)]
    else:
        chosen = [selector] if isinstance(selector, Head) else list(selector)
        for head in chosen:
            if head not in known:
                raise SelectorError(f"There is no head {head} in this model.", _what_there_is(sites))
    wanted = set(chosen)
    return tuple(head for head in known if head in wanted)


def _matches(part: str, sites: Sequence[Site]) -> list[Head]:
    match = _PART.fullmatch(part)
    if match is None:
        raise SelectorError(
            f"Expected heads such as 4.11, 4.*, *.3 or 4.0-5 joined by commas, found {part!r}.",
            "Layers and heads count from 0.",
        )
    stack, layer, number = match["stack"], match["layer"], match["head"]
    for text in (layer, number):
        first, _, last = text.partition("-")
        if last and int(last) < int(first):
            raise SelectorError(f"The range {text} in {part!r} runs backwards.", f"Write {last}-{first}.")
    if stack is None and len({site.stack for site in sites}) > 1:
        raise SelectorError(f"{part!r} does not say which stack it means.", _what_there_is(sites))
    found = [
        head
        for site in sites
        if stack in (None, site.stack) and _covers(layer, site.layer)
        for head in site.heads
        if _covers(number, head.head)
    ]
    for bound in _upper_bounds(stack, layer, number, found):
        raise SelectorError(f"There is no head {bound} in this model.", _what_there_is(sites))
    return found


def _covers(text: str, number: int) -> bool:
    if text == "*":
        return True
    first, _, last = text.partition("-")
    return int(first) <= number <= int(last or first)


def _upper_bounds(stack: str | None, layer: str, number: str, found: list[Head]) -> list[str]:
    """Name the part of a selector that reaches past what was found; nothing if all of it exists."""
    prefix = f"{stack}." if stack else ""
    if not found:
        return [f"{prefix}{layer}.{number}"]
    missing = []
    for text, reached, name in (
        (layer, max(head.layer for head in found), f"{prefix}{{}}.{number}"),
        (number, max(head.head for head in found), f"{prefix}{layer}.{{}}"),
    ):
        last = text.rpartition("-")[2]
        if last != "*" and int(last) > reached:
            missing.append(name.format(last))
    return missing


def number_ranges(numbers: Iterable[int]) -> str:
    """Write numbers as a selector does.

    Args:
        numbers: in rising order.

    Returns:
        ``0-5``, or ``0-2,6,8`` where some are left out.
    """
    runs: list[list[int]] = []
    for number in numbers:
        if runs and number == runs[-1][-1] + 1:
            runs[-1].append(number)
        else:
            runs.append([number])
    return ",".join(f"{run[0]}-{run[-1]}" if len(run) > 1 else str(run[0]) for run in runs)


def _what_there_is(sites: Sequence[Site]) -> str:
    parts = []
    for stack in STACKS:
        mine = [site for site in sites if site.stack == stack]
        if mine:
            layers = sorted({site.layer for site in mine})
            heads = max(site.n_heads for site in mine)
            parts.append(f"{stack} layers {number_ranges(layers)} with heads {number_ranges(range(heads))}")
    example = f"{sites[0].stack}.{sites[0].layer}.0" if len(parts) > 1 else f"{sites[0].layer}.0"
    return f"It has {' and '.join(parts)}; write for example {example}."


def link_name(head: Head, several: bool) -> str:
    """Write a head as pages name it: with its stack where the model has several."""
    return str(head) if several else f"{head.layer}.{head.head}"
