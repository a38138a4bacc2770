"""Places in a model where a tensor can be met: what goes into a module and what comes out."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from typing import Any

from torch import Tensor, nn


@dataclass(frozen=True, slots=True)
class Place:
    """One tensor of one call of a module.

    Args:
        path: dotted path of the module.
        turn: which of its calls in a pass, from 0: ALBERT runs one module for all layers.
        enters: whether the tensor is an argument of the call, or comes out of it.
        key: number or name of the argument or output.
    """

    path: str
    turn: int
    enters: bool
    key: int | str


@contextmanager
def noting(
    model: nn.Module, note: Callable[[Place, Tensor], None], paths: Collection[str] | None = None
) -> Iterator[None]:
    """Show all tensors that go into and come out of modules, in order, while the block lasts.

    Args:
        model: the model; afterwards it is as it was.
        note: called with each place and tensor; the tensor may be changed in place later on.
        paths: of the modules; all but the model itself by default.

    Yields:
        Nothing.
    """
    turns: Counter[str] = Counter()

    def before(path: str) -> Any:
        def hook(_: nn.Module, arguments: tuple[Any, ...], named: dict[str, Any]) -> None:
            turns[path] += 1
            for key, tensor in (*_tensors(arguments), *_tensors(named)):
                note(Place(path, turns[path] - 1, True, key), tensor)

        return hook

    def after(path: str) -> Any:
        def hook(_: nn.Module, __: Any, output: Any) -> None:
            for key, tensor in _tensors(output):
                note(Place(path, turns[path] - 1, False, key), tensor)

        return hook

    with ExitStack() as stack:
        for path, module in model.named_modules():
            if path and (paths is None or path in paths):
                stack.callback(module.register_forward_pre_hook(before(path), with_kwargs=True).remove)
                stack.callback(module.register_forward_hook(after(path)).remove)
        yield


def _tensors(value: Any) -> list[tuple[int | str, Tensor]]:
    if isinstance(value, Tensor):
        return [(0, value)]
    pairs = value.items() if isinstance(value, Mapping) else enumerate(value if _many(value) else ())
    return [(key, one) for key, one in pairs if isinstance(one, Tensor)]


def _many(value: Any) -> bool:
    return isinstance(value, (tuple, list))
