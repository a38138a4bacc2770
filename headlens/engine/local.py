"""Where units of work run: here, or on Ray (`headlens.engine.ray`)."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import Any, Protocol, TypeVar

from headlens.model.lens import Lens

U_contra = TypeVar("U_contra", contravariant=True)
R_co = TypeVar("R_co", covariant=True)
U = TypeVar("U")
R = TypeVar("R")


class Work(Protocol[U_contra, R_co]):
    """What is done with every unit. It can be sent to another machine, and holds nothing of a model."""

    def begin(self, lens: Lens) -> Callable[[U_contra], R_co]:
        """Make ready on one model.

        Args:
            lens: the model, this process' own copy.

        Returns:
            What does a unit. Units do not depend on each other: each comes out the same wherever and in
            whatever order they are done.
        """


class Engine(Protocol):
    """Does units of work, each once."""

    def run(self, lens: Lens, work: Work[U, R], units: Iterable[U]) -> Iterator[tuple[int, R]]:
        """Do every unit.

        Args:
            lens: the model.
            work: what is done. Given again, it goes on with all that it has made ready.
            units: in any number; they are taken as they are needed.

        Yields:
            The number of a unit, from 0, and what came of it, as soon as it is done: in any order.
        """

    def device(self, lens: Lens) -> str:
        """Tell what kind of device computes: "cpu", "cuda", "mps"."""

    @property
    def facts(self) -> dict[str, Any]:
        """What `run.json` says about it."""


class Here:
    """Does units in this process, one after another."""

    def __init__(self) -> None:
        self._work: Any = None
        self._lens: Lens | None = None
        self._do: Callable[[Any], Any] | None = None

    def run(self, lens: Lens, work: Work[U, R], units: Iterable[U]) -> Iterator[tuple[int, R]]:
        """See `Engine.run`; results come in the order of the units."""
        if self._do is None or self._work is not work or self._lens is not lens:
            self._do, self._work, self._lens = work.begin(lens), work, lens
        for number, unit in enumerate(units):
            yield number, self._do(unit)

    def device(self, lens: Lens) -> str:
        """See `Engine.device`."""
        return lens.device.type

    @property
    def facts(self) -> dict[str, Any]:
        """See `Engine.facts`."""
        return {"name": "local"}


def in_order(
    results: Iterable[tuple[int, R]], arrived: Callable[[R], object] = lambda result: None
) -> Iterator[R]:
    """Put results into the order of their units, so that sums are added up the same way every time.

    Args:
        results: from `Engine.run`.
        arrived: told of every result when it arrives.

    Yields:
        What came of unit 0, 1, 2, ...
    """
    waiting: dict[int, R] = {}
    following = 0
    for number, result in results:
        arrived(result)
        waiting[number] = result
        while following in waiting:
            yield waiting.pop(following)
            following += 1
