"""Prefix reuse: what lies before the first changed head is as in the clean run, so it is not computed again.

Blocks before the one that holds it return what they returned in the clean run; in that block the heads'
outputs are known, too, and neither patterns nor projections are computed. What is kept is the output of one
block and the heads' outputs in the next, for as many passes as fit into the memory that is allowed; it moves
up the model with the conditions, which therefore run in the order of the blocks of their first heads.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager, nullcontext, suppress
from typing import Any

import torch
from torch import Tensor

from headlens.ablation.replay import BLOCKS, NOTHING, PROJECTIONS, Pass, Replay, pass_key, tensors_in
from headlens.model.blocks import blocks_of, first_block
from headlens.model.heads import Head, Site
from headlens.model.lens import Lens
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
        self._passes: dict[bytes, Pass] = {}
        self._boundary = 0  # the block that is run next
        self._probe: Pass | None = None  # a few tokens, on which every boundary is tried

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
            key = pass_key(given) if given is not None and site.index == 0 else None
            if given is not None and key is not None and key not in self._passes:
                self._passes[key] = Pass(given.module, dict(given.inputs))
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
        with Replay(self._lens, self._blocks, self._counted)(self._boundary, first.index, level):
            yield

    def _counted(self, given: Given) -> Pass | None:
        key = None if torch.is_grad_enabled() else pass_key(given)
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
    def _advance(self, one: Pass, block: int) -> None:
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
        replay = Replay(self._lens, self._blocks, lambda given: one)
        with self._lens.edit(keep), replay(self._boundary, known, self.level, note), suppress(_Enough):
            one.module(**one.inputs)
        one.blocks, one.heads = blocks, heads

    @torch.inference_mode()
    def _as_before(self, one: Pass) -> bool:
        """Whether a pass that leaves out what is known puts out what the whole one does."""
        known = max((site.index for site in one.heads), default=-1)
        with self._lens.edit(lambda site, output: output):
            clean = tensors_in(one.module(**one.inputs))
            with Replay(self._lens, self._blocks, lambda given: one)(self._boundary, known, self.level):
                again = tensors_in(one.module(**one.inputs))
        return len(clean) == len(again) and all(map(_close, clean, again))


def _close(left: Tensor, right: Tensor) -> bool:
    if left.shape != right.shape or not left.is_floating_point() or not left.numel():
        return torch.equal(left, right)
    return bool((left - right).abs().max() <= TOLERANCE * max(1.0, float(left.abs().max())))
