"""What commands share: what is known of each, their options, and what they say."""

from __future__ import annotations

import logging
import warnings
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import wraps
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, TypeVar

import click

from headlens.util.formatting import on_terminal

if TYPE_CHECKING:
    from headlens.corpus.corpus import Corpus
    from headlens.engine.local import Engine
    from headlens.model.lens import Lens

F = TypeVar("F", bound=Callable[..., Any])


class Command(click.Command):
    """A command, and what the others need to know of it.

    Args:
        settings: as `click.Command` takes them.
        writes: what its --out names. An experiment file can then have the command as a section, and --save-as
            writes such a file. None for a command that is no part of an experiment.
        reported: whether ``headlens report`` makes a page of its runs.
        goes_on: whether it goes on where it stopped, when the same is typed again.
    """

    def __init__(
        self,
        *settings: Any,
        writes: Literal["directory", "file"] | None = None,
        reported: bool = False,
        goes_on: bool = False,
        **more: Any,
    ) -> None:
        super().__init__(*settings, **more)
        self.writes = writes
        self.reported = reported
        self.goes_on = goes_on


def group_of(ctx: click.Context) -> click.Group:
    """Get the group that the running command is in: the table of all commands."""
    group = ctx.find_root().command
    assert isinstance(group, click.Group)
    return group


def run_command(ctx: click.Context, typed: Sequence[str], quiet: bool) -> None:
    """Run another command from inside the running one.

    Args:
        ctx: of the running command.
        typed: the other's command line, without "headlens".
        quiet: whether it shows no progress bars, where it has any.
    """
    group = group_of(ctx)
    command = group.get_command(ctx, typed[0])
    hushed = quiet and command is not None and any(option.name == "quiet" for option in command.params)
    words = [typed[0], *(["--quiet"] if hushed else []), *typed[1:]]
    group.main(words, prog_name="headlens", standalone_mode=False, parent=ctx.parent)


def _set_debug(ctx: click.Context, _: click.Parameter, value: bool) -> None:
    """Note that tracebacks are wanted."""
    if value:
        ctx.meta["headlens.debug"] = True


out_directory = click.option(
    "--out", type=click.Path(path_type=Path), required=True, help="Directory for the results."
)
debug_option = click.option(
    "--debug", is_flag=True, expose_value=False, callback=_set_debug, help="Show the traceback of an error."
)


@dataclass(frozen=True, slots=True)
class ModelOptions:
    """What the user said about how a model is loaded and run."""

    device: str
    device_map: str | None
    dtype: str
    batch_size: int | None
    max_length: int | None
    seed: int
    revision: str | None
    trust_remote_code: bool
    allow_random_weights: bool
    quiet: bool

    def load(self, model: str) -> Lens:
        """Load the model as these options say."""
        from headlens.lens import load

        hush()
        return load(
            model,
            device=self.device,
            device_map=self.device_map,
            dtype=self.dtype,
            revision=self.revision,
            trust_remote_code=self.trust_remote_code,
            allow_random_weights=self.allow_random_weights,
        )


def _known_device(_: click.Context, __: click.Parameter, device: str) -> str:
    """Refuse a device that there is not, before anything is run."""
    if device != "auto":
        from headlens.model.load import pick_device

        pick_device(device)
    return device


_OPTIONS = [
    click.option(
        "--device",
        default="auto",
        show_default=True,
        callback=_known_device,
        metavar="auto|cpu|cuda|cuda:N|mps",
    ),
    click.option(
        "--device-map",
        type=click.Choice(["auto", "balanced", "balanced_low_0", "sequential"]),
        help="Spread a model that is too large for one device over several, over memory and disk.",
    ),
    click.option(
        "--dtype",
        type=click.Choice(["float32", "bfloat16", "float16", "float64"]),
        default="float32",
        show_default=True,
        help="Of the weights; scores add up in float32 or better.",
    ),
    click.option(
        "--batch-size", type=click.IntRange(1), help="Inputs at once.  [default: as suits the length]"
    ),
    click.option(
        "--max-length", type=click.IntRange(4), help="Longest input in tokens.  [default: the model's own]"
    ),
    click.option(
        "--seed",
        type=click.IntRange(0),
        default=0,
        show_default=True,
        help="Of everything that is drawn at random.",
    ),
    click.option("--revision", help="Branch, tag or commit of a hub model."),
    click.option("--trust-remote-code", is_flag=True, help="Run code that comes with a checkpoint."),
    click.option("--allow-random-weights", is_flag=True, help="Accept a checkpoint that lacks weights."),
    click.option("--quiet", is_flag=True, help="No progress bars."),
    debug_option,
]


def model_options(function: F) -> F:
    """Give a command the options above, as one argument `options`."""

    @wraps(function)
    def command(*args: Any, **values: Any) -> Any:
        mine = {name: values.pop(name) for name in ModelOptions.__dataclass_fields__}
        if mine["device_map"] is not None and mine["device"] != "auto":
            raise click.UsageError(
                "--device-map places the model, and so does --device: give one of the two."
            )
        return function(*args, options=ModelOptions(**mine), **values)

    wrapped: Any = command
    for option in reversed(_OPTIONS):
        wrapped = option(wrapped)
    return wrapped  # type: ignore[no-any-return]  # click's decorators keep the function


def names(text: str | None) -> tuple[str, ...]:
    """Take names apart that commas join."""
    return tuple(name.strip() for name in text.split(",") if name.strip()) if text else ()


def said() -> dict[str, Any]:
    """List every option of the command that is running, with its value, as run.json has them."""
    values = click.get_current_context().params
    return {name: value for name, value in values.items() if name not in ("model", "save_as")}


@contextmanager
def spoken_warnings() -> Iterator[None]:
    """Write what headlens warns of as one line each, once, when the block ends."""
    with warnings.catch_warnings(record=True) as noted:
        warnings.simplefilter("always", UserWarning)
        yield
    for message in dict.fromkeys(str(warning.message) for warning in noted):
        say(f"Warning: {message}", err=True)


def hush() -> None:
    """Keep `transformers` from talking over the results: what it notices, headlens says itself."""
    from transformers.utils import logging as transformers_logging

    transformers_logging.set_verbosity_error()  # type: ignore[no-untyped-call]
    transformers_logging.disable_progress_bar()  # type: ignore[no-untyped-call]
    logging.getLogger("huggingface_hub").setLevel(logging.ERROR)
    warnings.filterwarnings("ignore", category=FutureWarning, module="transformers")


# ---- The options of commands whose work can be spread over workers


@dataclass(frozen=True, slots=True)
class EngineOptions:
    """What the user said about where units of work run."""

    engine: str
    ray_address: str | None
    workers: int | None
    gpus_per_worker: float | None

    @contextmanager
    def open(self, device: str) -> Iterator[Engine]:
        """Get the engine, and end its workers when the block ends.

        Args:
            device: what --device says.

        Yields:
            The engine.
        """
        if self.engine == "local":
            from headlens.engine.local import Here

            yield Here()
            return
        from headlens.engine.ray import Ray

        if device.startswith("cuda:"):
            raise click.BadParameter("Ray chooses among GPUs: type --device cuda.", param_hint="--device")
        with Ray(self.ray_address, self.workers, self.gpus_per_worker) as engine:
            yield engine


_ENGINE_OPTIONS = [
    click.option(
        "--engine",
        type=click.Choice(["local", "ray"]),
        default="local",
        show_default=True,
        help="Where the work is done: in this process, or by workers on Ray.",
    ),
    click.option(
        "--ray-address",
        metavar="HOST:PORT",
        help="A Ray cluster that runs, or auto.  [default: start one on this machine]",
    ),
    click.option("--workers", type=click.IntRange(1), help="On Ray.  [default: all that there is room for]"),
    click.option(
        "--gpus-per-worker",
        type=click.FloatRange(0),
        help="On Ray; with 0.5 two share one.  [default: 1 where the model is on a GPU, else 0]",
    ),
]


def engine_options(function: F) -> F:
    """Give a command the options above, as one argument `where`."""

    @wraps(function)
    def command(*args: Any, **values: Any) -> Any:
        mine = {name: values.pop(name) for name in EngineOptions.__dataclass_fields__}
        for name in ("ray_address", "workers", "gpus_per_worker"):
            if mine["engine"] == "local" and mine[name] is not None:
                option = "--" + name.replace("_", "-")
                raise click.UsageError(f"{option} is for --engine ray.")
        return function(*args, where=EngineOptions(**mine), **values)

    wrapped: Any = command
    for option in reversed(_ENGINE_OPTIONS):
        wrapped = option(wrapped)
    return wrapped  # type: ignore[no-any-return]  # click's decorators keep the function


# ---- The options of commands that read one text


def text_options(function: F) -> F:
    """Give a command the argument `text`, and the options `pair`, `target` and `heads`."""
    options = [
        click.argument("text"),
        click.option("--pair", metavar="TEXT", help="A second text, for models that read two."),
        click.option("--target", metavar="TEXT", help="What an encoder-decoder model writes."),
        click.option(
            "--heads",
            metavar="SEL",
            help="Such as 2.8, 3.*, *.5 or cross.0.1, joined by commas.  [default: all]",
        ),
    ]
    for option in reversed(options):
        function = option(function)
    return function


# ---- The options of commands that read a corpus


class ComposedOption(click.Option):
    """An option whose help is put together when it is asked for, of what takes long to import.

    Args:
        help_of: makes the help.
    """

    def __init__(self, *args: Any, help_of: Callable[[], str], **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.help_of = help_of

    def get_help_record(self, ctx: click.Context) -> tuple[str, str] | None:
        """Put the help together."""
        self.help = self.help_of()
        return super().get_help_record(ctx)


class CorpusPath(click.Path):
    """A file or folder, or a dataset, ``hub:...``, which stays as it is typed."""

    def __init__(self) -> None:
        super().__init__(path_type=Path)

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        """Make a path of what is one."""
        from headlens.corpus.hub import is_hub

        return value if is_hub(value) else super().convert(value, param, ctx)


def corpus_options(function: F) -> F:
    """Give a command the options that say how a corpus is read: `columns` and `max_sentences`."""
    columns = click.option(
        "--columns",
        metavar="A,B,C",
        help="Of datasets: the column of text or words; or those of words, parts of speech, heads and "
        "relations (and lemmas).  [default: found by name]",
    )
    most = click.option(
        "--max-sentences",
        type=click.IntRange(1),
        metavar="N",
        help="Read only the first N sentences.  [default: all; of datasets an error beyond 100,000]",
    )
    return columns(most(function))


def say_read(corpus: Corpus) -> None:
    """Say which part of each dataset was read, and how much was left out."""
    from headlens.corpus.hub import is_hub

    for origin, path in zip(corpus.datasets, filter(is_hub, corpus.paths), strict=True):
        of = f" of {origin.of_rows:,}" if origin.of_rows is not None else ""
        say(f"Read {origin.rows:,}{of} rows of {path}: {', '.join(origin.columns)}.", err=True)
        for reason, count in origin.left_out.items():
            say(f"Left out: {count:,} {reason}.", err=True)


def say(text: str, err: bool = False) -> None:
    """Write lines for a person; what comes from files gives a terminal no orders.

    Args:
        text: the lines.
        err: whether they go to stderr, where no result goes.
    """
    click.echo(on_terminal(text), err=err)
