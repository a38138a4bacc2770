"""The command line: one small file per command, loaded when it is called."""

from __future__ import annotations

import io
import sys
from contextlib import nullcontext
from importlib import import_module
from typing import Any

import click

from headlens.cli.ending import interrupted, signals, told
from headlens.cli.save_as import with_save_as
from headlens.errors import HeadlensError
from headlens.util.formatting import on_terminal, visible

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
        return with_save_as(command, cmd_name)

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
    if (end := interrupted(error, ctx)) is not None:
        return end
    known = error if isinstance(error, HeadlensError) else told(error, ctx)
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


def say(text: str, err: bool = False) -> None:
    """Write lines for a person; what comes from files gives a terminal no orders.

    Args:
        text: the lines.
        err: whether they go to stderr, where no result goes.
    """
    click.echo(on_terminal(text), err=err)


def set_debug(ctx: click.Context, _: click.Parameter, value: bool) -> None:
    """Note that tracebacks are wanted."""
    if value:
        ctx.meta["headlens.debug"] = True


debug_option = click.option(
    "--debug", is_flag=True, expose_value=False, callback=set_debug, help="Show the traceback of an error."
)


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
