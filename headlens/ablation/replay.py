"""Passes through a model that begin at a boundary: what lies before it comes from memory."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor, nn

from headlens.model.blocks import Block, replaced_forward
from headlens.model.heads import Site
from headlens.model.lens import Lens
from headlens.model.seam import Given

NOTHING, BLOCKS, HEADS, PROJECTIONS = range(4)
"""How much a pass leaves out: whole blocks; attention in the first block, too; its projections, too."""


@dataclass(slots=True)
class Pass:
    """One pass through the model: how it was called, and what it came to at a boundary between blocks.

    Args:
        module: what was called.
        inputs: its arguments.
        blocks: by container, the output of its last block before the boundary.
        heads: the heads' outputs at the sites of the block after it.
    """

    module: nn.Module
    inputs: dict[str, Any]
    blocks: dict[str, Any] = field(default_factory=dict)
    heads: dict[Site, Tensor] = field(default_factory=dict)

    @property
    def size(self) -> int:
        """Bytes kept."""
        tensors = {id(t): t for kept in (self.blocks, self.heads) for t in tensors_in(kept)}
        return sum(tensor.numel() * tensor.element_size() for tensor in tensors.values())


class Replay:
    """Runs a model from a boundary on.

    Args:
        lens: the model.
        blocks: its blocks, in the order in which they run.
        find: the known pass that a pass is a repetition of; None runs it in full.
    """

    def __init__(self, lens: Lens, blocks: tuple[Block, ...], find: Callable[[Given], Pass | None]) -> None:
        self._lens = lens
        self._blocks = blocks
        self._find = find
        self._given: Given | None = None
        self._pass: Pass | None = None
        self._count = 0  # blocks called in this pass
        self._at_boundary = False

    @contextmanager
    def __call__(
        self, boundary: int, known: int, level: int, note: Callable[[int, Any], None] | None = None
    ) -> Iterator[None]:
        """Leave out what is known while the block lasts.

        Args:
            boundary: the first block that is run.
            known: index of the last site whose heads' outputs may come from memory; -1 for none.
            level: how much to leave out.
            note: told the number and output of every block that is run.

        Yields:
            Nothing.
        """

        def block(forward: Callable[..., Any], *arguments: Any, **named: Any) -> Any:
            one, index = self._current(), self._count
            self._count += 1
            if one is not None and index < boundary and level >= BLOCKS:
                self._lens.seam.skip(self._blocks[index].sites)
                return one.blocks[self._blocks[index].container]
            self._at_boundary = index == boundary
            output = forward(*arguments, **named)
            self._at_boundary = False
            if note is not None:
                note(index, output)
            return output

        def heads(site: Site) -> Tensor | None:
            one = self._current()
            return one.heads.get(site) if one is not None and site.index <= known else None

        modules = [(self._module(path), block) for path in dict.fromkeys(b.path for b in self._blocks)]
        if level >= PROJECTIONS:
            modules += self._projections(self._blocks[boundary], known)
        supplied = heads if level >= HEADS else lambda site: None
        with replaced_forward(modules), self._lens.seam.supply(supplied):
            yield

    def _current(self) -> Pass | None:
        """The known pass that the running one repeats."""
        given = self._lens.seam.given
        if given is not self._given:
            self._given, self._count = given, 0
            self._pass = None if given is None else self._find(given)
        return self._pass

    def _projections(self, block: Block, known: int) -> list[tuple[nn.Module, Callable[..., Any]]]:
        """The layers of a block that only make what attention at its known sites would read."""
        parts = [part for part in self._lens.anatomy.parts if part.site in block.sites]
        paths = [
            path
            for part in parts
            if part.site.index <= known
            for path in (*part.projections.query, *part.projections.key, *part.projections.value)
        ]
        found = []
        for path in dict.fromkeys(paths):
            module = self._module(path)
            width = getattr(module, "out_features", getattr(module, "nf", None))
            if isinstance(width, int):
                found.append((module, self._zeros(width, block.sites)))
        return found

    def _zeros(self, width: int, sites: tuple[Site, ...]) -> Callable[..., Any]:
        def projection(forward: Callable[..., Any], taken: Tensor, *rest: Any, **named: Any) -> Any:
            one = self._current()
            if one is None or not self._at_boundary or not set(sites) & one.heads.keys():
                return forward(taken, *rest, **named)
            return taken.new_zeros(*taken.shape[:-1], width)

        return projection

    def _module(self, path: str) -> nn.Module:
        return self._lens.model.get_submodule(path)


def tensors_in(value: Any) -> list[Tensor]:
    """List the tensors in what a module returns, in order.

    Args:
        value: a tensor, or tuples, lists and mappings of such.

    Returns:
        The tensors.
    """
    if isinstance(value, Tensor):
        return [value]
    items = value.values() if isinstance(value, Mapping) else value if isinstance(value, list | tuple) else ()
    return [tensor for item in items for tensor in tensors_in(item)]


def pass_key(given: Given) -> bytes | None:
    """Name a pass by what was called with what.

    Args:
        given: the pass.

    Returns:
        A digest; None for a step of generation, or where some argument cannot be compared.
    """
    digest = hashlib.blake2b(f"{id(given.module)}".encode())
    for name, value in sorted(given.inputs.items()):
        if isinstance(value, Tensor):
            digest.update(f"|{name} {value.dtype} {tuple(value.shape)}".encode())
            digest.update(value.detach().cpu().contiguous().reshape(-1).view(torch.uint8).numpy().tobytes())
        elif isinstance(value, bool | int | float | str):
            digest.update(f"|{name} {value!r}".encode())
        else:
            return None
    return digest.digest()
