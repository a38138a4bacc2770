"""The blocks of a model (its layers), in the order in which they run, and the sites inside each."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from typing import Any

import torch
from torch import nn

from headlens.model.heads import Head, Site
from headlens.model.lens import Lens
from headlens.model.trace import run


@dataclass(frozen=True, slots=True)
class LayerCall:
    """One call of a block in a pass through the model.

    Args:
        path: dotted path of the block's module; ALBERT calls one module several times.
        container: path of the list of modules that it stands in: blocks of one list hand their output on.
        sites: where attention is computed in this call, in order.
    """

    path: str
    container: str
    sites: tuple[Site, ...]


def blocks_of(lens: Lens) -> tuple[LayerCall, ...] | None:
    """Find a model's blocks by a dry run: the elements of the outermost lists of modules that hold its sites.

    Args:
        lens: the model.

    Returns:
        The calls of blocks, in order; None where some site is in no block, or in a nested call.
    """
    homes = {site: _home(lens.model, site.module) for site in lens.anatomy.sites}
    if not all(homes.values()):
        return None
    calls: list[tuple[str, list[Site]]] = []
    inside: list[str] = []
    stray: list[Site] = []

    def enter(path: str) -> Callable[..., None]:
        def hook(*_: Any) -> None:
            calls.append((path, []))
            inside.append(path)

        return hook

    def note(site: Site, output: Any) -> Any:
        if len(inside) == 1:
            calls[-1][1].append(site)
        else:
            stray.append(site)
        return output

    with ExitStack() as stack:
        stack.enter_context(torch.no_grad())
        stack.enter_context(lens.edit(note))
        for path in dict.fromkeys(path for path in homes.values() if path):
            module = lens.model.get_submodule(path)
            stack.callback(module.register_forward_pre_hook(enter(path)).remove)
            stack.callback(module.register_forward_hook(lambda *_: inside.clear()).remove)
        run(lens.model)
    found = tuple(LayerCall(path, path.rpartition(".")[0], tuple(sites)) for path, sites in calls)
    seen = [site for block in found for site in block.sites]
    return found if not stray and seen == list(lens.anatomy.sites) else None


def first_block(blocks: Sequence[LayerCall], heads: Sequence[Head]) -> int:
    """Tell in which block the first of some heads is.

    Args:
        blocks: from `blocks_of`.
        heads: some heads.

    Returns:
        Its number in the order in which blocks run; 0 for none.
    """
    places = {(head.stack, head.layer) for head in heads}
    found = (
        index
        for index, block in enumerate(blocks)
        if any((site.stack, site.layer) in places for site in block.sites)
    )
    return next(found, 0)


def _home(model: nn.Module, path: str) -> str | None:
    """The outermost element of a list of modules that a module is in."""
    parts = path.split(".")
    for end in range(1, len(parts)):
        if isinstance(model.get_submodule(".".join(parts[:end])), nn.ModuleList):
            return ".".join(parts[: end + 1])
    return None


@contextmanager
def replaced_forward(modules: Sequence[tuple[nn.Module, Callable[..., Any]]]) -> Iterator[None]:
    """Give modules another `forward` while the block lasts.

    Args:
        modules: each with the function that is called with its own forward and the arguments.

    Yields:
        Nothing.
    """
    with ExitStack() as stack:
        for module, function in modules:
            own = vars(module).get("forward")
            module.forward = _bound(function, module.forward)
            stack.callback(_restore, module, own)
        yield


def _bound(function: Callable[..., Any], forward: Callable[..., Any]) -> Callable[..., Any]:
    return lambda *arguments, **named: function(forward, *arguments, **named)


def _restore(module: nn.Module, own: Any) -> None:
    del module.forward
    if own is not None:
        module.forward = own
