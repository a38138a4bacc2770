"""``--save-as FILE.toml`` of every command that an experiment can hold: write the command as such a file."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import click

COMMANDS = ("classify", "ablate", "similar", "prune", "view", "contributions")
NOT_LOADING = ("batch_size", "max_length", "seed", "quiet")  # of the options that come with a model


def with_save_as(command: click.Command, name: str) -> click.Command:
    """Give a command the option.

    Args:
        command: one that takes a MODEL.
        name: of the command.

    Returns:
        The same.
    """
    if name not in COMMANDS or any(parameter.name == "save_as" for parameter in command.params):
        return command
    does = command.callback
    assert does is not None

    def callback(*arguments: Any, save_as: Path | None, **values: Any) -> Any:
        if save_as is not None:
            _write(click.get_current_context(), name, save_as)
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


def _write(ctx: click.Context, name: str, path: Path) -> None:
    import tomli_w

    from headlens.cli.options import ModelOptions
    from headlens.experiment.places import beside
    from headlens.util.files import write_text

    loading = [one for one in ModelOptions.__dataclass_fields__ if one not in NOT_LOADING]
    model: dict[str, Any] = {"name": beside(path.parent, ctx.params["model"])}
    section: dict[str, Any] = {}
    top: dict[str, Any] = {"title": f"headlens {name} of {ctx.params['model']}", "model": model}
    kinds = {one.name: one for one in ctx.command.params}
    for parameter, key in _said(ctx).items():
        value = _seen(path.parent, kinds[parameter], _plain(ctx.params[parameter]))
        if parameter == "seed":
            top = {"title": top["title"], "seeds": [value], "model": model}
        elif parameter == "out":
            section |= (
                {"out": Path(str(value)).name} if "text" in ctx.params else {"name": Path(str(value)).name}
            )
        else:
            (model if parameter in loading else section)[key] = value
    text = {"text": ctx.params["text"]} if "text" in ctx.params else {}
    write_text(tomli_w.dumps({**top, name: text | section}), path)


def _said(ctx: click.Context) -> Mapping[str, str]:
    """The options that were typed, by their names in Python, as a file writes them."""
    return {
        str(parameter.name): max(parameter.opts, key=len).removeprefix("--")
        for parameter in ctx.command.params
        if isinstance(parameter, click.Option)
        and parameter.name not in ("quiet", "save_as")
        and ctx.get_parameter_source(str(parameter.name)) is click.core.ParameterSource.COMMANDLINE
    }


def _seen(folder: Path, option: click.Parameter, value: Any) -> Any:
    """A value as a file in a folder says it: places are seen from there."""
    from headlens.experiment.places import as_seen, beside

    if option.name == "out":
        return value
    if isinstance(value, list):
        return [_seen(folder, option, one) for one in value]
    return as_seen(option, value, lambda place: beside(folder, place))


def _plain(value: Any) -> Any:
    if isinstance(value, tuple | list):
        return [_plain(one) for one in value]
    return value if isinstance(value, bool | int | float) else str(value)
