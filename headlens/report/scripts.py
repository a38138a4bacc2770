"""Scripts of the world: which fonts and which drawing their characters need."""

from __future__ import annotations

import unicodedata
from collections.abc import Iterable

from matplotlib import ft2font

CJK, EMOJI, OTHERS, ANY = "fonts-noto-cjk", "fonts-symbola", "fonts-noto-core", "fonts-noto"
_CJK = ("CJK", "HIRAGANA", "KATAKANA", "HANGUL", "BOPOMOFO", "IDEOGRAPHIC", "HALFWIDTH", "FULLWIDTH")
_SHAPED = {
    "Hebrew": (0x0590, 0x05FF),
    "Arabic": (0x0600, 0x08FF),
    "Indic": (0x0900, 0x0DFF),
    "Thai": (0x0E00, 0x0EFF),
    "Tibetan": (0x0F00, 0x0FFF),
    "Burmese": (0x1000, 0x109F),
    "Khmer": (0x1780, 0x17FF),
    "Mongolian": (0x1800, 0x18AF),
}


def packages_for(chars: Iterable[str]) -> tuple[str, ...]:
    """Name the packages of Debian and Ubuntu whose fonts have some characters, as far as can be told.

    Args:
        chars: characters.

    Returns:
        Names of packages, each once. For emoji it is a font in black and white: matplotlib cannot draw those
        in colour.
    """
    return tuple(sorted({_package(char) for char in chars}))


def han_variant(text: str) -> str:
    """Tell how a text wants its Chinese characters drawn: as in Japan, Korea or mainland China.

    Args:
        text: all that will be drawn.

    Returns:
        The end of the name of a Noto font: ``JP`` where there is kana, ``KR`` where there is hangul, else
        ``SC``.
    """
    names = {unicodedata.name(char, "").partition(" ")[0] for char in text}
    if names & {"HIRAGANA", "KATAKANA"}:
        return "JP"
    return "KR" if "HANGUL" in names else "SC"


def not_shaped(texts: Iterable[str]) -> tuple[str, ...]:
    """Name the scripts that this matplotlib would draw letter by letter, unjoined and from left to right.

    Args:
        texts: what will be drawn.

    Returns:
        Their names; none where matplotlib was built with libraqm, as it is since 3.11.
    """
    if hasattr(ft2font, "__libraqm_version__"):
        return ()
    codes = {ord(char) for text in texts for char in text}
    return tuple(
        name for name, (first, last) in _SHAPED.items() if any(first <= code <= last for code in codes)
    )


def _package(char: str) -> str:
    name, code = unicodedata.name(char, ""), ord(char)
    if name.startswith(_CJK):
        return CJK
    if 0x2000 <= code <= 0x2BFF or 0x1F000 <= code <= 0x1FAFF:
        return EMOJI
    return OTHERS if name else ANY
