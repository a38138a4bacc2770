"""What files and names can be: strategies for hypothesis, a folder of broken files, and a limit of time."""

from __future__ import annotations

import os
import random
import re
import signal
import socket
from contextlib import contextmanager
from pathlib import Path

from hypothesis import settings
from hypothesis import strategies as st

from headlens.errors import HeadlensError

HOSTILE = (
    *("<script>alert(1)</script>", "</script>", "<!--", "-->", "]]>", "<img src=x onerror=alert(1)>", "<b>"),
    *("&", "&lt;", '"', "'", "`", " onload=alert(1) ", "javascript:alert(1)", "{{7*7}}", "${7*7}"),
    *("{0}", "%s", "=1+1", "+1", "-1", "@SUM(A1)", ";=1+1", "$x^2$", "\\frac{", "#head=0.0", "?", "*", "|"),
    *("../../x", "/etc/passwd", "..", ".", "~", "a/b", "\\", "C:\\x", "con", "$(id)", "; ls"),
    *("-rf", "--help", "\x1b[31m", "\x07", "\x7f", "\x85", "\u2028", "\u202e", "\u200b", "\ufeff", "\ufffe"),
    *("\U0001f600", "e\u0301", "\u0130", "x" * 120),
)  # fmt: skip
PIECES = (
    *(b"\0", b"\r", b"\n", b"\r\n", b"\t", b" ", b"  ", b"\xc2\x85", b"\xe2\x80\x8b", b"\xe2\x80\xa8"),
    *(b"\xff", b"\xc3", b"\xed\xa0\x80", b"\xef\xbb\xbf", b"\x1b[2J"),
    *(b"_", b"0", b"1", b"-1", b"1.1", b"1-2", b"9" * 25, b"9" * 5000, b"nan", b"inf", b"1e999"),
    *(b"(", b")", b"|", b"#", b'"', b",", b";", b"{", b"}", b"[" * 2000, b"=", b"\\", b"Entity=(e1"),
)  # fmt: skip
NO_FILES = ("pipe", "socket", "zero", "random", "device", "nothing", "loop", "absent", "a" * 260)


def examples(count: int) -> settings:
    """Run so many examples, or HEADLENS_FUZZ times as many."""
    return settings(max_examples=count * int(os.environ.get("HEADLENS_FUZZ", "1")))


def words(without: str = "", most: int = 4):
    """Texts that mean something to some program, without line ends, tabs and other characters."""
    plain = st.characters(blacklist_categories=("Cs",), blacklist_characters=f"\0\t\r\n{without}")
    hostile = [text for text in HOSTILE if not set(text) & set(without)]
    parts = st.one_of(st.sampled_from(hostile), st.text(plain, max_size=4))
    return st.lists(parts, min_size=1, max_size=most).map("".join).filter(str.strip)


@st.composite
def damaged(draw, good: bytes):
    """A file with bytes put in, lines taken out, doubled or cut off; or other bytes altogether."""
    if draw(st.integers(0, 9)) == 0:
        return draw(st.binary(max_size=200))
    chance = random.Random(draw(st.integers(0, 2**32)))
    lines = good.splitlines(keepends=True)
    for _ in range(draw(st.integers(0, 3))):
        place = chance.randrange(len(lines))
        line = lines[place]
        lines[place : place + 1] = chance.choice(([], [line, line], [line[: chance.randrange(60)]]))
        lines = lines or [b""]
    raw = bytearray(b"".join(lines))
    for _ in range(draw(st.integers(0, 4))):
        piece = draw(st.sampled_from(PIECES))
        place = chance.randrange(len(raw) + 1)
        raw[place : place + chance.choice((0, 1, len(piece)))] = piece
    return bytes(raw[: chance.randrange(len(raw) + 1)] if draw(st.integers(0, 4)) == 0 else raw)


def broken_texts(good: str) -> dict[str, bytes]:
    """What a text file can be instead of text, by what is wrong with it; `good` holds the word w5."""
    raw = good.encode()
    return {
        "latin": raw.replace(b"w5", b"\xe9"),
        "surrogate": raw.replace(b"w5", b"\xed\xa0\x80"),
        "NUL": raw.replace(b"w5", b"\0"),
        "utf-16": good.encode("utf-16"),
        "utf-16-le": good.encode("utf-16-le"),
        "bytes": bytes(range(256)),
        "name\n\x1b[2J": raw + b"\xff",
    }


def odd_texts(good: str) -> dict[str, bytes]:
    """Text that is not what it should be, or that is written in an odd way, by what is odd."""
    raw = good.encode()
    lines = raw.split(b"\n")
    return {
        "empty": b"",
        "blank": b"\n \n\n",
        "cut": raw[: len(raw) // 2],
        "deep": raw + b"[" * 20_000,
        "digits": raw.replace(b"1", b"1" * 5000),
        "long": raw.replace(b"w5", b"w" * 1_000_000),
        "crlf": b"\r\n".join(lines),
        "cr": b"\r".join(lines),
        "mixed": re.sub(rb"\n(?!\n)", lambda found: (b"\n", b"\r\n", b"\r")[found.start() % 3], raw),
        "bom": b"\xef\xbb\xbf" + raw,
    }


def no_files(folder: Path, name: str) -> list[Path]:
    """Pipes, sockets, devices, links to nothing and nothing at all, whose names end in `name`."""
    os.mkfifo(folder / f"pipe-{name}")
    with socket.socket(socket.AF_UNIX) as one:
        one.bind(str(folder / f"socket-{name}"))
    for kind, target in (("zero", "/dev/zero"), ("random", "/dev/random"), ("device", "/dev/null")):
        (folder / f"{kind}-{name}").symlink_to(target)
    (folder / f"nothing-{name}").symlink_to("none")
    (folder / f"loop-{name}").symlink_to(f"loop-{name}")
    return [folder / f"{kind}-{name}" for kind in NO_FILES]


def result_or_refusal(call, *arguments):
    """What a call returns, or its refusal; nothing else may come of it, and in short time."""
    try:
        with within(20):
            return call(*arguments)
    except HeadlensError as refusal:
        return refusal


@contextmanager
def within(seconds: int):
    """Fail what takes longer."""

    def stop(*_):
        raise AssertionError(f"it took more than {seconds} seconds")

    before = signal.signal(signal.SIGALRM, stop)
    signal.alarm(seconds)
    try:
        yield
    finally:
        signal.alarm(0)
        signal.signal(signal.SIGALRM, before)
