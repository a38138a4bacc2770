"""The options that every command with a model has."""

from __future__ import annotations

import logging
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import wraps
from typing import TYPE_CHECKING, Any, TypeVar

import click

from headlens.cli import debug_option, say

if TYPE_CHECKING:
    from headlens.model.lens import Lens

F = TypeVar("F", bound=Callable[..., Any])


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
        import headlens

        hush()
        return headlens.load(
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
