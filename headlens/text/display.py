"""Tokens as people read them: a tokenizer's own pieces turned back into the text that they stand for."""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Sequence
from functools import cache
from typing import Any

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
