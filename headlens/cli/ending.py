"""How a command ends that cannot go on: interrupted, or for want of memory or disk; one line says it."""

from __future__ import annotations

import errno
import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType

import click

from headlens.errors import HeadlensError, RunError
from headlens.model.devices import is_out_of_memory

SIGNALS = ("SIGINT", "SIGTERM", "SIGHUP")
_GO_ON = ("ablate", "run")  # commands that go on where they stopped
_LOWER = {
    "batch_size": "a smaller --batch-size",
    "max_length": "a smaller --max-length",
    "inputs": "--inputs sentences",
    "prefix_memory": "--prefix-memory 0",
    "dtype": "--dtype bfloat16",
}
_REMEDIES = {
    errno.ENOSPC: "Make room there, or choose another place with --out.",
    errno.EDQUOT: "Make room there, or choose another place with --out.",
    errno.EFBIG: "Raise the limit (ulimit -f), or choose another place with --out.",
    errno.EROFS: "Choose another place with --out.",
    errno.EMFILE: "Raise the limit (ulimit -n), and type the same again.",
    errno.ENFILE: "Close other programs, and type the same again.",
}

_received: list[int] = []  # signals: what fails after one fails because of it


class Interrupted(click.ClickException):
    """A command that was interrupted.

    Args:
        number: of the signal.
        goes_on: whether the same command goes on from here.
    """

    def __init__(self, number: int, goes_on: bool) -> None:
        kept = " What was finished is kept: type the same again, and it goes on." if goes_on else ""
        super().__init__(f"Interrupted.{kept}")
        self.exit_code = 128 + number  # type: ignore[misc]  # click's own way to choose it

    def show(self, file: object = None) -> None:
        """Write the line to stderr."""
        click.echo(self.message, err=True)


@contextmanager
def signals() -> Iterator[None]:
    """Have a command end in order when it is told to end, while the block lasts."""
    before = {}
    _received.clear()
    if threading.current_thread() is threading.main_thread():
        for number in [getattr(signal, name) for name in SIGNALS if hasattr(signal, name)]:
            if signal.getsignal(number) in (signal.SIG_DFL, signal.default_int_handler):  # not under nohup
                before[number] = signal.signal(number, _end)
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def _end(number: int, _: FrameType | None) -> None:
    _received.append(number)
    raise KeyboardInterrupt


def interrupted(error: BaseException, ctx: click.Context) -> Interrupted | None:
    """Tell whether a command was interrupted.

    Args:
        error: what came of it. Libraries in C make other errors of an interrupt.
        ctx: of the group that the command is in.

    Returns:
        What to raise; None where it was not.
    """
    if isinstance(error, KeyboardInterrupt) or _received:
        return Interrupted(_received[-1] if _received else signal.SIGINT, _goes_on(ctx))
    return None


def _goes_on(ctx: click.Context) -> bool:
    """Whether the command goes on where it stopped, or another of which it is a part."""
    return any(one is not None and one.invoked_subcommand in _GO_ON for one in (ctx, ctx.parent))


def told(error: BaseException, ctx: click.Context) -> HeadlensError | None:
    """Say what a person can do where memory, disk or another resource ran out.

    Args:
        error: what was raised.
        ctx: of the group that the command is in.

    Returns:
        The error to show; None for any other error.
    """
    if is_out_of_memory(error):
        group, name = ctx.command, ctx.invoked_subcommand
        command = group.get_command(ctx, name) if isinstance(group, click.Group) and name else None
        known = {one.name for one in command.params} if command is not None else set()
        lower = [how for name, how in _LOWER.items() if name in known]
        remedy = f"Type {', '.join(lower[:-1])} or {lower[-1]}." if len(lower) > 1 else "Free some of it."
        kept = " What was finished is kept." if _goes_on(ctx) else ""
        return RunError("Memory does not suffice.", remedy + kept)
    if isinstance(error, OSError) and error.errno is not None:
        what = f"{error.filename} cannot be read or written" if error.filename else "A file failed"
        remedy = "See that it is there and may be read and written, then type the same again."
        return RunError(f"{what}: {error.strerror}.", _REMEDIES.get(error.errno, remedy))
    return None
