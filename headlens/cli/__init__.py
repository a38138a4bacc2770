"""The command line: one small file per command, loaded when it is called."""

from __future__ import annotations

import errno
import io
import signal
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from importlib import import_module
from pathlib import Path
from types import FrameType
from typing import Any

import click

from headlens.cli.options import Command, debug_option
from headlens.errors import HeadlensError, RunError, is_out_of_memory
from headlens.util.formatting import visible

LONGEST = 2000  # characters of a message: what a file holds may be of any length

COMMANDS = {
    "describe": "headlens.cli.describe",
    "check": "headlens.cli.check",
    "view": "headlens.cli.view",
    "classify": "headlens.cli.classify",
    "compare": "headlens.cli.compare",
    "ablate": "headlens.cli.ablate",
    "similar": "headlens.cli.similar",
    "contributions": "headlens.cli.contributions",
    "prune": "headlens.cli.prune",
    "report": "headlens.cli.report",
    "run": "headlens.cli.run",
    "demo": "headlens.cli.demo",
}


class Commands(click.Group):
    """The group of all commands; every error becomes one line."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        """Name the commands in the order in which they are used."""
        return list(COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        """Load one command."""
        if cmd_name not in COMMANDS:
            return None
        command: click.Command = import_module(COMMANDS[cmd_name]).command
        command.name = cmd_name
        return _with_save_as(command) if isinstance(command, Command) and command.writes else command

    def make_context(
        self, info_name: str | None, args: list[str], parent: click.Context | None = None, **extra: Any
    ) -> click.Context:
        """Note what was typed: a run's record says it."""
        typed = list(args)
        ctx = super().make_context(info_name, args, parent, **extra)
        ctx.meta["headlens.typed"] = typed
        return ctx

    def invoke(self, ctx: click.Context) -> Any:
        """Run a command; without --debug no error shows a traceback."""
        if isinstance(sys.stdout, io.TextIOWrapper):
            sys.stdout.reconfigure(errors="backslashreplace")  # a path need not be text
        try:
            return super().invoke(ctx)
        except (click.ClickException, click.exceptions.Exit, click.Abort, BrokenPipeError):
            raise
        except (Exception, KeyboardInterrupt) as error:
            if ctx.meta.get("headlens.debug"):
                raise
            raise _shown(error, ctx) from error

    def main(self, *args: Any, **extra: Any) -> Any:
        """Run a command line; a signal ends it in order."""
        with signals() if extra.get("standalone_mode", True) else nullcontext():
            return super().main(*args, **extra)


def _shown(error: BaseException, ctx: click.Context) -> click.ClickException:
    """What a user sees of an error."""
    if (end := _interrupted(error, ctx)) is not None:
        return end
    known = error if isinstance(error, HeadlensError) else _what_ran_out(error, ctx)
    if known is not None:
        return click.ClickException(_one_line(str(known)))
    cause = _one_line(f"{type(error).__name__}: {error}")
    return click.ClickException(
        f"headlens failed where it should not ({cause}). "
        "Type the same with --debug to see where, and please report it."
    )


def _one_line(text: str) -> str:
    line = visible(" ".join(text.split()))
    if len(line) <= LONGEST:
        return line
    return f"{line[: LONGEST // 2]} [...] {line[-LONGEST // 2 :]}"


@click.group(
    cls=Commands,
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100},
    epilog="Layers and heads count from 0: 4.11 is head 11 of layer 4. Begin with: headlens demo",
)
@click.version_option(package_name="headlens")
@debug_option
def main() -> None:
    """Tell what every attention head of a transformer looks at, and whether it matters.

    MODEL is `minilm` (a small real BERT that comes with the `demo` extra), a local model directory, a
    .gguf file, or a hub id.
    """


# ---- How a command ends that cannot go on: interrupted, or for want of memory or disk; one line says it


SIGNALS = ("SIGINT", "SIGTERM", "SIGHUP")
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


def _interrupted(error: BaseException, ctx: click.Context) -> Interrupted | None:
    """What to raise where a command was interrupted: libraries in C make other errors of an interrupt."""
    if isinstance(error, KeyboardInterrupt) or _received:
        return Interrupted(_received[-1] if _received else signal.SIGINT, _goes_on(ctx))
    return None


def _called(ctx: click.Context | None) -> click.Command | None:
    """The command that a group calls."""
    if ctx is None or not isinstance(ctx.command, click.Group) or ctx.invoked_subcommand is None:
        return None
    return ctx.command.get_command(ctx, ctx.invoked_subcommand)


def _goes_on(ctx: click.Context) -> bool:
    """Whether the command goes on where it stopped, or another of which it is a part."""
    called = (_called(ctx), _called(ctx.parent))
    return any(isinstance(command, Command) and command.goes_on for command in called)


def _what_ran_out(error: BaseException, ctx: click.Context) -> HeadlensError | None:
    """What a person can do where memory, disk or another resource ran out; None for any other error."""
    if is_out_of_memory(error):
        command = _called(ctx)
        known = {option.name for option in command.params} if command is not None else set()
        lower = [how for name, how in _LOWER.items() if name in known]
        remedy = f"Type {', '.join(lower[:-1])} or {lower[-1]}." if len(lower) > 1 else "Free some of it."
        kept = " What was finished is kept." if _goes_on(ctx) else ""
        return RunError("Memory does not suffice.", remedy + kept)
    if isinstance(error, OSError) and error.errno is not None:
        what = f"{error.filename} cannot be read or written" if error.filename else "A file failed"
        remedy = "See that it is there and may be read and written, then type the same again."
        return RunError(f"{what}: {error.strerror}.", _REMEDIES.get(error.errno, remedy))
    return None


# ---- ``--save-as FILE.toml`` of every command that an experiment can hold: write the command as such a file


def _with_save_as(command: Command) -> Command:
    """Give a command the option, once."""
    if any(parameter.name == "save_as" for parameter in command.params):
        return command
    does = command.callback
    assert does is not None

    def callback(*arguments: Any, save_as: Path | None, **values: Any) -> Any:
        if save_as is not None:
            from headlens.cli.experiment_file import write_experiment

            write_experiment(click.get_current_context(), save_as)
        return does(*arguments, **values)

    command.callback = callback
    command.params.append(
        click.Option(
            ["--save-as"],
            type=click.Path(path_type=Path, dir_okay=False),
            metavar="FILE.toml",
            help="Write this command as an experiment file, too: headlens run FILE.toml does it again.",
        )
    )
    return command
