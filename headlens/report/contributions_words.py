"""What is said about contributions: in titles, in captions and on a terminal."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

import pandas as pd

from headlens.model.heads import Head

if TYPE_CHECKING:
    from headlens.contributions.contributions import Contributions

NAMED = 3  # heads that a sentence names
DEFAULT = "branch_share"
SIGNED = {"branch_share", "cosine", "stream_share", "logit"}

LABELS: Mapping[str, str] = {
    "output_norm": "length of the output before W_O",
    "written_norm": "length of what is written (units of the residual stream)",
    "branch_share": "share of what the layer's attention writes",
    "cosine": "cosine with what the layer's attention writes",
    "stream_share": "share of the residual stream",
    "logit": "direct effect on the logit (logits)",
}
"""What the colours of each measure are."""

MEANINGS: Mapping[str, str] = {
    "output_norm": "the Euclidean length of a head's output before W_O",
    "written_norm": "the Euclidean length of what a head writes: its output times its rows of W_O",
    "branch_share": "how much of what a layer's attention writes lies along one head; the shares of a "
    "layer's heads and of W_O's bias add up to 1, and are negative for a head that writes against the rest",
    "cosine": "the cosine of what a head writes and what its layer's attention writes together",
    "stream_share": "how much of the residual stream, with the layer's attention added, lies along what one "
    "head writes",
    "logit": "how much what a head writes raises the logit through the residual stream alone, with all other "
    "branches held fixed and norms at their scale",
}
"""What each measure is."""


def heads_of(found: Contributions, measure: str) -> dict[Head, float]:
    """Take one measure of every head that was asked for, means over tokens.

    Args:
        found: what heads write.
        measure: its name.

    Returns:
        The numbers in model order, without W_O's biases; NaN where a measure is not defined.
    """
    table = found.table.dropna(subset=["head"])
    places = zip(table["stack"], table["layer"], table["head"], strict=True)
    return {
        Head(str(stack), int(layer), int(head)): float(value)
        for (stack, layer, head), value in zip(places, table[measure], strict=True)
    }


def finding(found: Contributions, measure: str) -> str:
    """Say which heads stand out by a measure: a title.

    Args:
        found: what heads write.
        measure: its name.

    Returns:
        One sentence without a stop.
    """
    values = heads_of(found, measure)
    top = _top(found, values)
    against = sum(value < 0 for value in values.values())
    said = {
        "output_norm": f"the largest outputs before W_O are those of {top}",
        "written_norm": f"most is written by {top}",
        "branch_share": f"the largest shares of what their layers' attention writes are those of {top}; "
        f"{against or 'none'} of {_counted(len(values))} write{'s' * (against < 2)} against the rest",
        "cosine": f"most alike to what their layers' attention writes: {top}",
        "stream_share": f"the largest shares of the residual stream are those of {top}",
        "logit": _for_and_against(found, values),
    }
    return f"{found.model}: {said[measure]}"


def _for_and_against(found: Contributions, values: Mapping[Head, float]) -> str:
    parts: list[str] = []
    for verb, sign in (("raise", 1), ("lower", -1)):
        mine = {head: value for head, value in values.items() if value * sign > 0}
        if mine:
            what = "it" if parts else f"the logit of {found.token!r}"
            parts.append(f"{_top(found, mine, sign=sign)} {verb}{'s' * (len(mine) == 1)} {what} most")
    return ", ".join(parts) or f"no head changes the logit of {found.token!r}"


def _top(found: Contributions, values: Mapping[Head, float], sign: int = 0) -> str:
    """Name the largest heads with their numbers: signed ones, of one sign, where a sign is given."""
    known = [head for head, value in values.items() if value == value]
    best = sorted(known, key=lambda head: -values[head] * (sign or 1))[:NAMED]
    named = [f"{found.name(head)} ({values[head]:{'+' if sign else ''}.2g})" for head in best]
    return " and ".join(filter(None, [", ".join(named[:-1]), *named[-1:]])) or "no head"


def about(found: Contributions, measure: str) -> str:
    """Say how to read a figure of a measure, means over tokens: a caption.

    Args:
        found: what heads write.
        measure: its name.

    Returns:
        Sentences.
    """
    counts = dict.fromkeys(len(axis) for axis in found.axes.values())
    over = f"Mean over {' and '.join(map(str, counts))} tokens."
    if found.predicted is not None and measure == "logit":
        over = f"The logit of {found.token!r} at position {found.position} is {found.logit:.2f}."
    return f"{_capital(MEANINGS[measure])}. {over} {_biases(found, measure)}Layers and heads count from 0."


def _biases(found: Contributions, measure: str) -> str:
    rows = found.table[found.table["head"].isna()]
    values = rows[measure].dropna()
    if values.empty:
        return ""
    low, high = f"{values.min():.2g}", f"{values.max():.2g}"
    return f"W_O's biases, not shown, have {low}{f' to {high}' if low != high else ''}. "


def _capital(text: str) -> str:
    return text[:1].upper() + text[1:]


def _counted(number: int) -> str:
    return f"{number:,} head{'s' * (number != 1)}"


def summary(found: Contributions) -> str:
    """Say what was found in a few lines for a terminal.

    Args:
        found: what heads write.

    Returns:
        Which heads write most, their share of the stream, and who is for and against the token.
    """
    written, shares, effects = (heads_of(found, name) for name in ("written_norm", "stream_share", "logit"))
    lines = [f"Most is written by {_top(found, written)}: mean length over tokens."]
    if any(value == value for value in shares.values()):
        largest = _top(found, shares)
        lines.append(f"Largest shares of the residual stream: {largest}; means over tokens.")
        lines += _layers(found)
    if found.predicted is not None:
        lines.append(
            f"Logit of {found.token!r} at position {found.position}: {found.logit:.2f} (probability "
            f"{found.predicted.probability:.2g})."
        )
        for word, sign in (("For", 1), ("Against", -1)):
            mine = {head: value for head, value in effects.items() if value * sign > 0}
            if mine:
                lines.append(f"{word} it: {_top(found, mine, sign)}.")
    return "\n".join([*lines, *found.notes])


def _layers(found: Contributions) -> list[str]:
    """How much of the stream whole layers of attention are; only where all of their parts are there."""
    table: pd.DataFrame = found.table
    whole = len(table.dropna(subset=["head"])) == sum(site.n_heads for site in found.sites)
    sums = table.groupby(["stack", "layer"])["stream_share"].sum(min_count=1).dropna()
    if not whole or len(sums) < 2:
        return []
    several = table["stack"].nunique() > 1
    names = [f"{f'{stack} ' if several else ''}layer {layer}" for stack, layer in sums.index.to_list()]
    low, high = names[int(sums.to_numpy().argmin())], names[int(sums.to_numpy().argmax())]
    return [
        f"All of a layer's attention is {sums.min():.2g} ({low}) to {sums.max():.2g} ({high}) of the stream."
    ]
