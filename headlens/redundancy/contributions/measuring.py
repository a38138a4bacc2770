"""One pass through a model that measures what each head writes, token by token; vectors are not kept."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import ExitStack
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor

from headlens.errors import ModelError
from headlens.model.devices import exact
from headlens.model.finite import holds_none, not_numbers
from headlens.model.heads import Site
from headlens.model.lens import Lens
from headlens.model.unembedding import Norm, norm_of
from headlens.redundancy.contributions.places import Place, noting
from headlens.redundancy.contributions.stream import Joint
from headlens.redundancy.contributions.sums import Array, Sums
from headlens.redundancy.contributions.writers import at_outputs, matrix_and_bias, writers_of

EXACT = 1e-5  # parts must add up to what W_O puts out, relative to their lengths


@dataclass(frozen=True, slots=True, eq=False)
class Parts:
    """What the parts of one attention branch are at one site: its heads, and last its bias if it has one.

    Args:
        values: for each measure in `sums.BY_TOKEN` an array [part, token]; NaN where it
            is not defined.
        has_bias: whether the last part is the bias.
        written: what each part writes at one position, before a norm behind W_O, [part, model width].
    """

    values: Mapping[str, Array]
    has_bias: bool
    written: Tensor


@dataclass(frozen=True, slots=True, eq=False)
class _Passing:
    """What happens to the branch before it is added, as a linear map in this pass.

    Args:
        put_out: what is added, [token, model width].
        factor: a number that it is multiplied by, or 1 / scale of a norm, [token, 1].
        norm: the norm; None where there is none.
    """

    put_out: Tensor
    factor: Tensor | float
    norm: Norm | None = None

    def through(self, part: Tensor) -> Tensor:
        return (part if self.norm is None else self.norm.directed(part)) * self.factor

    @property
    def offset(self) -> Tensor | None:
        """What a norm adds of its own; it belongs to no head."""
        return self.norm.offset if self.norm is not None and self.norm.has_offset else None


@dataclass(slots=True)
class _Pass:
    lens: Lens
    joints: Mapping[Site, Joint]
    position: int | None
    heads: dict[Site, Tensor] = field(default_factory=dict)  # before W_O, [token, head, width]
    streams: dict[Place, Tensor | None] = field(default_factory=dict)  # until their site has run
    parts: dict[Site, Parts] = field(default_factory=dict)

    def keep(self, site: Site, output: Tensor) -> Tensor:
        self.heads[site] = output.detach().reshape(-1, site.n_heads, site.head_width)
        return output

    def note(self, place: Place, tensor: Tensor) -> None:
        if place in self.streams:
            self.streams[place] = tensor.detach().clone()  # it may be added to in place

    def measure(self, site: Site, output: Tensor) -> None:
        put_out = output.detach().reshape(-1, output.shape[-1])
        kind = exact(put_out.device)
        branch = put_out.to(kind)  # [token, model width]
        heads = self.heads.pop(site)  # [token, head, width]
        passing = self._passing(self.joints.get(site), put_out, branch)
        stream = self._stream(site)
        whole = None if stream is None else stream.reshape(branch.shape).to(branch) + passing.put_out
        sums = Sums(branch, whole, self.position if reaches_logits(self.lens, site) else None)
        matrix, bias = self._writer(site, heads)
        slices = matrix.view(site.n_heads, site.head_width, -1)  # rows of one head together
        for number in range(site.n_heads):
            own = heads[:, number].to(kind)
            written = own @ slices[number].to(kind)
            if not bool(torch.isfinite(written).all()):
                raise not_numbers(site.heads[number], "output")
            sums.add(written, passing.through(written), own.norm(dim=-1))
        if not bool(torch.isfinite(branch if whole is None else whole).all()):
            raise holds_none(f"The residual stream behind {site}")
        offset = passing.offset
        has_bias = bias is not None or offset is not None
        if has_bias:
            part = torch.zeros_like(branch) if bias is None else bias.to(kind).expand_as(branch)
            added = passing.through(part) + (0 if offset is None else offset.to(kind))
            sums.add(part, added, branch.new_full(branch.shape[:1], torch.nan))
        self._check(site, sums)
        self.parts[site] = Parts(sums.arrays(), has_bias, sums.at_position())

    def _writer(self, site: Site, heads: Tensor) -> tuple[Tensor, Tensor | None]:
        module = self.lens.model.get_submodule(path_of(self.lens, site))
        return matrix_and_bias(module, site.n_heads * site.head_width, heads)

    def _stream(self, site: Site) -> Tensor | None:
        joint = self.joints.get(site)
        if joint is None:
            return None
        shared = sum(other.stream == joint.stream for other in self.joints.values()) > 1
        return self.streams[joint.stream] if shared else self.streams.pop(joint.stream)

    def _passing(self, joint: Joint | None, put_out: Tensor, branch: Tensor) -> _Passing:
        """What happens to W_O's output before it is added; branch is the same in higher precision."""
        if joint is None or not joint.norm:
            factor = 1.0 if joint is None else joint.factor
            return _Passing(branch * factor, factor)
        module: Any = self.lens.model.get_submodule(joint.norm)
        found = norm_of(module, put_out.shape[-1], put_out)
        assert found is not None  # the dry run knew it as one
        passed = module.forward(put_out).to(branch)
        return _Passing(passed, found.inverse_scale(branch, passed), found)

    def _check(self, site: Site, sums: Sums) -> None:
        """The parts are what W_O puts out, or they are not what is asked for."""
        eps = torch.finfo(self.lens.model.dtype).eps
        error = (sums.total - sums.branch).norm(dim=-1)
        if not bool((error <= max(EXACT, 4 * eps if eps > EXACT else 0) * sums.lengths).all()):
            worst = float((error / sums.lengths).max())
            raise ModelError(
                f"What the heads of {self.lens.anatomy.architecture} write does not add up to what "
                f"{path_of(self.lens, site)} puts out (they differ by {worst:.2g} of their lengths): "
                "something stands between the heads and W_O, such as a norm (BitNet) or a gate (Qwen3-Next).",
                "headlens view and headlens ablate work without it.",
            )


def measure_writing(
    lens: Lens, inputs: Mapping[str, Any], joints: Mapping[Site, Joint], position: int | None
) -> tuple[dict[Site, Parts], Any]:
    """Run one input and measure what every head writes for every token.

    Args:
        lens: the model.
        inputs: of the model, without padding, [1, token].
        joints: from `joints_of`.
        position: where what is written shall be kept as vectors, at sites that reach the logits; nowhere
            where it is None.

    Returns:
        The parts of every site, and what the model put out.

    Raises:
        ModelError: the heads do not add up to what W_O puts out, or are no numbers.
    """
    work = _Pass(lens, joints, position)
    work.streams = {joint.stream: None for joint in joints.values()}
    paths = {joint.stream.path for joint in joints.values()}
    with ExitStack() as stack:
        stack.enter_context(torch.no_grad())
        stack.enter_context(lens.edit(work.keep))
        stack.enter_context(noting(lens.model, work.note, paths))
        stack.enter_context(at_outputs(lens.model, writers_of(lens), work.measure))
        answer = lens.model(**inputs)
    return work.parts, answer


def path_of(lens: Lens, site: Site) -> str:
    """The path of a site's W_O."""
    return lens.anatomy.parts[site.index].projections.output


def reaches_logits(lens: Lens, site: Site) -> bool:
    """Whether a site writes to the stream of the language head; an encoder before a decoder does not."""
    return site.stack != "encoder" or len(lens.anatomy.stacks) == 1
