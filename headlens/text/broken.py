"""Text that holds what is no character: half of a surrogate pair, or a byte that could not be decoded."""

from __future__ import annotations

import warnings

REPLACEMENT = "\ufffd"


def with_characters(text: str) -> tuple[str, int]:
    """Replace what is no character by U+FFFD, as terminals show it; no tokenizer takes it as it is.

    Args:
        text: any text; two halves of a pair side by side are the character that they stand for.

    Returns:
        The text, and how often something was replaced.
    """
    made = text.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "replace")
    return made, made.count(REPLACEMENT) - text.count(REPLACEMENT)


def mended(text: str, *others: str | None) -> tuple[str, list[str | None]]:
    """Replace what is no character in texts, with one warning that says how often.

    Args:
        text: a text.
        *others: further texts; None stays None.

    Returns:
        The text and the others without what is no character.
    """
    made, count = with_characters(text)
    rest: list[str | None] = []
    for other in others:
        found, more = (None, 0) if other is None else with_characters(other)
        rest.append(found)
        count += more
    if count:
        what = "1 sign that is no character (a broken byte, say) was"
        if count > 1:
            what = f"{count:,} signs that are no characters (broken bytes, say) were"
        warnings.warn(f"{what} replaced by U+FFFD ({REPLACEMENT}) in the text.", stacklevel=3)
    return made, rest
