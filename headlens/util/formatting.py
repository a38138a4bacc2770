"""Numbers, lists and names as people read them, and text from files made safe to show."""

from __future__ import annotations

import math
import re
import unicodedata
import warnings
from collections.abc import Sequence
from functools import cache
from typing import Any

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


# ---- Numbers as people write them in data files


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


# ---- Tokens as people read them: a tokenizer's own pieces turned back into the text that they stand for


_BLANK, _NAMED = "\u2423", {"\n": "\u23ce", "\t": "\u21e5"}
_JOINERS = "\u200c\u200d\ufe0e\ufe0f"  # shape their neighbours; invisible only where they stand alone
_FALLBACK = re.compile(r"<0x([0-9A-F]{2})>")  # SentencePiece's way to write a byte that no piece covers


def readable_tokens(tokenizer: Any, tokens: Sequence[str]) -> tuple[str, ...]:
    """Turn a tokenizer's pieces into the text that they stand for, one by one.

    WordPiece `##ing` stays as it is; the mark of a blank before a word (byte-level `\u0120dog`,
    SentencePiece `\u2581dog`) is left out; bytes that are only part of a character are shown as such,
    `<E8 92>`; blanks that stand alone and control characters become visible signs (see `visible`).

    Args:
        tokenizer: the tokenizer of `transformers` that made them.
        tokens: its pieces, special ones included.

    Returns:
        One text for each piece.
    """
    added = set(tokenizer.get_added_vocab()) | set(tokenizer.all_special_tokens)
    scheme = _scheme(tokenizer)
    return tuple(visible(token) if token in added else _SCHEMES[scheme](token) for token in tokens)


def visible(text: str) -> str:
    """Replace what cannot be seen by signs.

    Args:
        text: any text, also with lone surrogates.

    Returns:
        The text, with a line break as U+23CE, a tab as U+21E5, other control and invisible characters by
        their number (`<00>`, `<U+202E>`), and, where nothing but blanks would be left, each as U+2423.
    """
    if text and not text.strip(" "):
        return _BLANK * len(text)
    alone = not text.strip(_JOINERS)
    return "".join(_sign(char, alone) for char in text)


def on_terminal(text: str) -> str:
    """Make what comes from files harmless for a terminal, which takes control characters for orders.

    Args:
        text: lines of text.

    Returns:
        The same lines, as `visible` shows each.
    """
    return "\n".join(visible(line) if line.strip(" ") else line for line in text.split("\n"))


def _sign(char: str, alone: bool) -> str:
    if char in _NAMED:
        return _NAMED[char]
    kind = unicodedata.category(char)
    hidden = kind in ("Cc", "Cf", "Cs", "Zl", "Zp") and char not in _JOINERS
    if hidden or (alone and char in _JOINERS) or ord(char) & 0xFFFE == 0xFFFE:
        return f"<{ord(char):02X}>" if ord(char) < 0x80 else f"<U+{ord(char):04X}>"
    return char


def _scheme(tokenizer: Any) -> str:
    """How this tokenizer writes its pieces, as its decoder (or what splits the text) states."""
    backend = getattr(tokenizer, "backend_tokenizer", None)
    if backend is None:
        return "bytes" if hasattr(tokenizer, "byte_decoder") else "blanks"
    parts = [part for part in (backend.decoder, backend.pre_tokenizer) if part is not None]
    stated = " ".join(repr(part) for part in parts)
    if "ByteLevel(" in stated:
        return "bytes"
    return "pieces" if "WordPiece(" in stated else "blanks"


def _from_bytes(token: str) -> str:
    token = token.removesuffix("</w>") or token
    table = _byte_of_sign()
    if not all(char in table for char in token):
        return visible(token)
    content = bytes(table[char] for char in token)
    written = content[1:] if content[:1] == b" " and content.strip(b" ") else content
    # an undecodable byte b becomes the lone surrogate U+DC00 + b
    parts = re.split("([\udc80-\udcff]+)", written.decode("utf-8", errors="surrogateescape"))
    return "".join(_broken(part) if index % 2 else visible(part) for index, part in enumerate(parts))


def _broken(part: str) -> str:
    return f"<{' '.join(f'{ord(char) - 0xDC00:02X}' for char in part)}>"


def _from_blanks(token: str) -> str:
    byte = _FALLBACK.fullmatch(token)
    if byte:
        code = int(byte[1], 16)
        return visible(chr(code)) if code < 0x80 else f"<{byte[1]}>"
    text = (token.removesuffix("</w>") or token).replace("\u2581", " ")
    return visible(text.removeprefix(" ") if text.strip(" ") else text)


_SCHEMES = {"bytes": _from_bytes, "blanks": _from_blanks, "pieces": visible}


@cache
def _byte_of_sign() -> dict[str, int]:
    """The alphabet of byte-level tokenizers: printable bytes stand for themselves, others for U+0100 on."""
    plain = [*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)]
    others = [byte for byte in range(256) if byte not in plain]
    return {chr(byte): byte for byte in plain} | {chr(0x100 + i): byte for i, byte in enumerate(others)}


# ---- Text that holds what is no character: half of a surrogate pair, or a byte that could not be decoded


REPLACEMENT = "\ufffd"


def _with_characters(text: str) -> tuple[str, int]:
    """Replace what is no character by U+FFFD, as terminals show it; no tokenizer takes it as it is."""
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
    made, count = _with_characters(text)
    rest: list[str | None] = []
    for other in others:
        found, more = (None, 0) if other is None else _with_characters(other)
        rest.append(found)
        count += more
    if count:
        what = "1 sign that is no character (a broken byte, say) was"
        if count > 1:
            what = f"{count:,} signs that are no characters (broken bytes, say) were"
        warnings.warn(f"{what} replaced by U+FFFD ({REPLACEMENT}) in the text.", stacklevel=3)
    return made, rest


def listing(parts: Sequence[str]) -> str:
    """Join parts of a sentence: ``a, b and c``."""
    return " and ".join(filter(None, [", ".join(parts[:-1]), *parts[-1:]]))
