"""Runs only the layers that an ablation can change; what lies before is kept from the clean run."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext, suppress
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor, nn

from headlens.model.heads import Head, Site
from headlens.model.lens import LayerCall, Lens, blocks_of, first_block, replaced_forward
from headlens.model.seam import Given
from headlens.model.trace import run

MEMORY = 2**30  # bytes, unless told otherwise
TOLERANCE = 1e-6  # of what a pass with reuse puts out, against the clean run, relative to its largest value


class _Enough(Exception):  # noqa: N818  # ends a pass of which no more is needed
    pass


class Prefix:
    """What a model comes to before the first changed head, for passes that it has seen.

    Args:
        lens: the model.
        memory: most bytes to keep; passes beyond run in full. 0 turns reuse off.
    """

    def __init__(self, lens: Lens, memory: int = MEMORY) -> None:
        self._lens = lens
        self._memory = memory
        self._blocks = (blocks_of(lens) if memory else None) or ()
        self.level = NOTHING
        if self._blocks:
            self.level = PROJECTIONS if lens.anatomy.by_interface else BLOCKS
        self.passes = self.reused = 0  # since the clean run
        self._passes: dict[bytes, _Pass] = {}
        self._boundary = 0  # the block that is run next
        self._probe: _Pass | None = None  # a few tokens, on which every boundary is tried

    @property
    def tried(self) -> bool:
        """Whether there are passes to be reused, whatever came of them."""
        return bool(self._passes)

    @property
    def works(self) -> bool:
        """Whether anything is left out at all."""
        return self.level > NOTHING and bool(self._passes)

    @contextmanager
    def record(self) -> Iterator[None]:
        """Note the passes of the clean run while the block lasts.

        Yields:
            Nothing.
        """

        def note(site: Site, output: Tensor) -> Tensor:
            given = self._lens.seam.given
            key = _pass_key(given) if given is not None and site.index == 0 else None
            if given is not None and key is not None and key not in self._passes:
                self._passes[key] = _Pass(given.module, dict(given.inputs))
            return output

        with self._lens.edit(note) if self._blocks else nullcontext():
            if self._blocks and self._probe is None:
                with torch.inference_mode():
                    run(self._lens.model)
                self._probe = self._passes.pop(next(iter(self._passes), b""), None)
                if self._probe is None:  # a model called in a way that cannot be compared
                    self.level = NOTHING
            yield

    @contextmanager
    def reuse(self, heads: Sequence[Head], patterns: bool = False) -> Iterator[None]:
        """Leave out what lies before the first of some heads while the block lasts.

        Enter it before the ablation: what is known is found on the way, without any.

        Args:
            heads: the heads that are changed.
            patterns: whether their patterns are changed, so that attention has to be computed.

        Yields:
            Nothing.
        """
        if self.works and heads:
            self._move(first_block(self._blocks, heads))
        if not self.works or not heads:
            yield
            return
        places = {(head.stack, head.layer) for head in heads}
        first = next(site for site in self._lens.anatomy.sites if (site.stack, site.layer) in places)
        level = min(self.level, BLOCKS) if patterns else self.level
        with _Replay(self._lens, self._blocks, self._counted)(self._boundary, first.index, level):
            yield

    def _counted(self, given: Given) -> _Pass | None:
        key = None if torch.is_grad_enabled() else _pass_key(given)
        found = self._passes.get(key) if key is not None else None
        self.passes += 1
        self.reused += found is not None
        return found

    def _move(self, block: int) -> None:
        """Bring every pass to the boundary before a block."""
        if block == self._boundary and any(one.heads for one in self._passes.values()):
            return
        while self.works:
            if block < self._boundary:
                self._forget()
            if self._probe is not None:
                self._advance(self._probe, block)
            self._bring(block)
            if self._probe is not None and self._as_before(self._probe):
                return
            self.level -= 1
            self._forget()

    def _forget(self) -> None:
        self._boundary = 0
        for one in (self._probe, *self._passes.values()):
            if one is not None:
                one.blocks, one.heads = {}, {}

    def _bring(self, block: int) -> None:
        kept = 0
        for key, one in list(self._passes.items()):
            self._advance(one, block)
            if kept + one.size > self._memory:
                del self._passes[key]
            else:
                kept += one.size
        self._boundary = block

    @torch.inference_mode()
    def _advance(self, one: _Pass, block: int) -> None:
        """Run one pass from its boundary up to the heads of a block."""
        wanted = self._blocks[block].sites
        heads: dict[Site, Tensor] = {}
        blocks = dict(one.blocks)

        def keep(site: Site, output: Tensor) -> Tensor:
            if site in wanted:
                heads[site] = output
                if site == wanted[-1]:
                    raise _Enough
            return output

        def note(index: int, output: Any) -> None:
            if index < block:
                blocks[self._blocks[index].container] = output

        known = max((site.index for site in one.heads), default=-1)
        replay = _Replay(self._lens, self._blocks, lambda given: one)
        with self._lens.edit(keep), replay(self._boundary, known, self.level, note), suppress(_Enough):
            one.module(**one.inputs)
        one.blocks, one.heads = blocks, heads

    @torch.inference_mode()
    def _as_before(self, one: _Pass) -> bool:
        """Whether a pass that leaves out what is known puts out what the whole one does."""
        known = max((site.index for site in one.heads), default=-1)
        with self._lens.edit(lambda site, output: output):
            clean = _tensors_in(one.module(**one.inputs))
            with _Replay(self._lens, self._blocks, lambda given: one)(self._boundary, known, self.level):
                again = _tensors_in(one.module(**one.inputs))
        return len(clean) == len(again) and all(map(_close, clean, again))


def _close(left: Tensor, right: Tensor) -> bool:
    if left.shape != right.shape or not left.is_floating_point() or not left.numel():
        return torch.equal(left, right)
    return bool((left - right).abs().max() <= TOLERANCE * max(1.0, float(left.abs().max())))


# ---- Passes through a model that begin at a boundary: what lies before it comes from memory


NOTHING, BLOCKS, HEADS, PROJECTIONS = range(4)
"""How much a pass leaves out: whole blocks; attention in the first block, too; its projections, too."""


@dataclass(slots=True)
class _Pass:
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
        tensors = {id(t): t for kept in (self.blocks, self.heads) for t in _tensors_in(kept)}
        return sum(tensor.numel() * tensor.element_size() for tensor in tensors.values())


class _Replay:
    """Runs a model from a boundary on.

    Args:
        lens: the model.
        blocks: its blocks, in the order in which they run.
        find: the known pass that a pass is a repetition of; None runs it in full.
    """

    def __init__(
        self, lens: Lens, blocks: tuple[LayerCall, ...], find: Callable[[Given], _Pass | None]
    ) -> None:
        self._lens = lens
        self._blocks = blocks
        self._find = find
        self._given: Given | None = None
        self._pass: _Pass | None = None
        self._count = 0  # blocks called in this pass
        self._at_boundary = False

    @contextmanager
    def __call__(
        self, boundary: int, known: int, level: int, note: Callable[[int, Any], None] | None = None
    ) -> Iterator[None]:
        """Leave out what is known while the block lasts."""

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

    def _current(self) -> _Pass | None:
        """The known pass that the running one repeats."""
        given = self._lens.seam.given
        if given is not self._given:
            self._given, self._count = given, 0
            self._pass = None if given is None else self._find(given)
        return self._pass

    def _projections(self, block: LayerCall, known: int) -> list[tuple[nn.Module, Callable[..., Any]]]:
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


def _tensors_in(value: Any) -> list[Tensor]:
    """List the tensors in what a module returns, in order."""
    if isinstance(value, Tensor):
        return [value]
    items = value.values() if isinstance(value, Mapping) else value if isinstance(value, list | tuple) else ()
    return [tensor for item in items for tensor in _tensors_in(item)]


def _pass_key(given: Given) -> bytes | None:
    """Name a pass by what was called with what."""
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
