"""The options of commands whose work can be spread over workers."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import wraps
from typing import TYPE_CHECKING, Any, TypeVar

import click

if TYPE_CHECKING:
    from headlens.engine.local import Engine

F = TypeVar("F", bound=Callable[..., Any])


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


_OPTIONS = [
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
    for option in reversed(_OPTIONS):
        wrapped = option(wrapped)
    return wrapped  # type: ignore[no-any-return]  # click's decorators keep the function
