"""Measures what each head writes, how long it is, and what it does to the logits."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor, nn

from headlens.benchmarks.predict import predicts_next
from headlens.errors import InputError, ModelError
from headlens.model.devices import exact
from headlens.model.finite import holds_none, not_numbers
from headlens.model.heads import Site
from headlens.model.lens import Lens
from headlens.model.unembedding import Norm, norm_of
from headlens.residual.stream import (
    Array,
    Joint,
    StreamPlace,
    Sums,
    at_outputs,
    matrix_and_bias,
    noting,
    writers_of,
)
from headlens.util.formatting import readable_tokens

EXACT = 1e-5  # parts must add up to what W_O puts out, relative to their lengths


@dataclass(frozen=True, slots=True, eq=False)
class Parts:
    """What the parts of one attention branch are at one site: its heads, and last its bias if it has one.

    Args:
        values: for each measure in `headlens.residual.stream.BY_TOKEN` an array [part, token]; NaN where it
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
    streams: dict[StreamPlace, Tensor | None] = field(default_factory=dict)  # until their site has run
    parts: dict[Site, Parts] = field(default_factory=dict)

    def keep(self, site: Site, output: Tensor) -> Tensor:
        self.heads[site] = output.detach().reshape(-1, site.n_heads, site.head_width)
        return output

    def note(self, place: StreamPlace, tensor: Tensor) -> None:
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
        module = self.lens.model.get_submodule(_path_of(self.lens, site))
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
                f"{_path_of(self.lens, site)} puts out (they differ by {worst:.2g} of their lengths): "
                "something stands between the heads and W_O, such as a norm (BitNet) or a gate (Qwen3-Next).",
                "headlens view and headlens ablate work without it.",
            )


def measure_writing(
    lens: Lens, inputs: Mapping[str, Any], joints: Mapping[Site, Joint], position: int | None
) -> tuple[dict[Site, Parts], Any]:
    """Run one input and measure what every head writes for every token."""
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


def _path_of(lens: Lens, site: Site) -> str:
    """The path of a site's W_O."""
    return lens.anatomy.parts[site.index].projections.output


def reaches_logits(lens: Lens, site: Site) -> bool:
    """Whether a site writes to the stream of the language head; an encoder before a decoder does not."""
    return site.stack != "encoder" or len(lens.anatomy.stacks) == 1


# ---- How a token's logit changes along the residual stream alone: the direct effect of what is written


ELSEWHERE = 1e-6  # a larger gradient at other positions, relative to that at the position itself, is refused


@dataclass(frozen=True, slots=True, eq=False)
class _Slopes:
    """How a logit changes with what is written at its position.

    Args:
        by_site: the gradient by W_O's output, [model width]; a site without a direct path has none.
        logit: of the token.
        lacking: sites that have none although they write to the stream of the language head.
    """

    by_site: Mapping[Site, Tensor]
    logit: float
    lacking: tuple[Site, ...]


def slopes_of(lens: Lens, inputs: Mapping[str, Any], position: int, token: int) -> _Slopes:
    """Differentiate one logit by what is written to the residual stream, all other branches held fixed.

    Every norm on the way is the linear map that it is at the observed scale (its centring and weight stay,
    its scale does not move), as in logit attribution (Elhage et al. 2021; nostalgebraist 2020). A layer of
    the language head itself (BERT's dense layer with GELU, a cap on logits) is taken by its tangent at the
    observed point. For pre-norm models the effects of all parts then add up to the logit exactly; where
    norms stand on the stream (BERT) or the head has such a layer they are first-order parts of it.

    It misleads where later layers read what a head writes and undo or pass it on: that is no direct effect.
    """
    leaves: dict[Site, Tensor] = {}
    writers = writers_of(lens)

    def begin(site: Site, output: Tensor) -> Tensor | None:
        leaves[site] = output.detach().requires_grad_()
        return leaves[site]

    with ExitStack() as stack:
        stack.enter_context(torch.inference_mode(False))
        stack.enter_context(torch.enable_grad())
        stack.enter_context(lens.edit(lambda site, output: output))  # in eval mode
        stack.enter_context(_weights_at_rest(lens.model))
        stack.enter_context(_held_fixed(lens))
        stack.enter_context(_frozen_norms(lens.model))
        stack.enter_context(at_outputs(lens.model, writers, begin))
        logit = lens.model(**inputs).logits[0, position, token]
        reaching = {site: leaf for site, leaf in leaves.items() if reaches_logits(lens, site)}
        gradients: Any = [None] * len(reaching)
        if logit.requires_grad and all(_block(lens.model, site.module) for site in lens.anatomy.sites):
            gradients = torch.autograd.grad(logit, list(reaching.values()), allow_unused=True)
    found: dict[Site, Tensor] = {}
    for (site, leaf), gradient in zip(reaching.items(), gradients, strict=True):
        mine = None if gradient is None else _confined(gradient.reshape(-1, leaf.shape[-1]), position)
        if mine is not None:
            found[site] = mine
    return _Slopes(found, float(logit.detach()), tuple(site for site in reaching if site not in found))


def _confined(gradient: Tensor, position: int) -> Tensor | None:
    """The gradient [token, width] at one position; None where it is not 0 at the others."""
    others = torch.cat([gradient[:position], gradient[position + 1 :]])
    mine = gradient[position]
    astray = len(others) > 0 and bool(others.abs().max() > ELSEWHERE * mine.abs().max())
    return None if astray else mine.cpu()


@contextmanager
def _weights_at_rest(model: nn.Module) -> Iterator[None]:
    """No gradients by weights while the block lasts: the graph begins at the leaves alone."""
    moving = [one for one in model.parameters() if one.requires_grad and not one.is_meta]
    try:
        for parameter in moving:
            parameter.requires_grad_(False)
        yield
    finally:
        for parameter in moving:
            parameter.requires_grad_()


@contextmanager
def _held_fixed(lens: Lens) -> Iterator[None]:
    """Cut the graph behind everything inside a block that has a matrix of weights."""
    homes = {home for site in lens.anatomy.sites if (home := _block(lens.model, site.module)) is not None}

    def cut(_: nn.Module, __: Any, output: Any) -> Any:
        return _detached(output)

    with ExitStack() as stack:
        for path, module in lens.model.named_modules():
            if any(path.startswith(f"{home}.") for home in homes) and _has_matrix(module):
                stack.callback(module.register_forward_hook(cut).remove)
        yield


def _block(model: nn.Module, path: str) -> str | None:
    """The outermost element of a list of modules that a module is in: a layer of the model."""
    parts = path.split(".")
    for end in range(1, len(parts)):
        if isinstance(model.get_submodule(".".join(parts[:end])), nn.ModuleList):
            # all elements of the list are blocks, also those without attention
            return ".".join(parts[:end])
    return None


def _has_matrix(module: nn.Module) -> bool:
    held: list[Tensor] = list(module.parameters(recurse=False))
    if next(module.children(), None) is None:  # a quantised layer keeps its weights in buffers
        held += module.buffers(recurse=False)
    return any(tensor.ndim >= 2 for tensor in held)


def _detached(output: Any) -> Any:
    if isinstance(output, Tensor):
        return output.detach()
    if type(output) is tuple:
        return tuple(map(_detached, output))
    return output


@contextmanager
def _frozen_norms(model: nn.Module) -> Iterator[None]:
    """Give every norm its value, but the gradient of the linear map that it is at that scale."""
    known: dict[nn.Module, Norm | None] = {}

    def freeze(module: nn.Module, arguments: tuple[Any, ...], output: Any) -> Any:
        taken = arguments[0] if arguments else None
        if not isinstance(taken, Tensor) or not isinstance(output, Tensor) or not taken.requires_grad:
            return None
        taken = taken.to(output.device)
        if module not in known:
            known[module] = norm_of(module, taken.shape[-1], taken.detach())
        norm = known[module]
        if norm is None:
            return None
        kind = exact(taken.device)
        inverse = norm.inverse_scale(taken.detach().to(kind), output.detach().to(kind)).to(taken)
        linear = norm.directed(taken) * inverse
        return output.detach() + (linear - linear.detach())

    with ExitStack() as stack:
        for module in model.modules():
            if next(module.children(), None) is None:
                stack.callback(module.register_forward_hook(freeze).remove)
        yield


# ---- Which token's logit is looked at, and where


@dataclass(frozen=True, slots=True)
class PredictedToken:
    """One token's logit.

    Args:
        token: as people read it.
        id: its id.
        position: where it is predicted, from 0.
        logit: the logit.
        probability: its share after the softmax over the vocabulary, 0..1.
    """

    token: str
    id: int
    position: int
    logit: float
    probability: float


def position_of(
    lens: Lens, inputs: Mapping[str, Tensor], position: int | None
) -> tuple[int | None, str | None]:
    """Choose where a logit is looked at, from 0; None where there is no such place, and then why.

    By default the last token of a model that writes from left to right, the first mask token of others.
    """
    ids = inputs.get("decoder_input_ids", inputs["input_ids"])
    count = ids.shape[1]
    if position is not None and not 0 <= position < count:
        raise InputError(
            f"There is no position {position}: the text has {count} tokens.",
            f"Positions count from 0: give one from 0 to {count - 1}.",
        )
    if lens.model.get_output_embeddings() is None:  # type: ignore[no-untyped-call]
        kind = lens.anatomy.architecture
        return None, f"{kind} has no language head, so heads have no effect on a logit: logit is empty."
    if position is not None:
        return position, None
    if "decoder_input_ids" in inputs or predicts_next(lens):
        return count - 1, None
    mask = getattr(lens.tokenizer, "mask_token_id", None)
    places = [] if mask is None else (ids[0] == mask).nonzero()[:, 0].tolist()
    if places:
        return int(places[0]), None
    example = getattr(lens.tokenizer, "mask_token", None) or "[MASK]"
    return None, (
        f"The text has no mask token, so no token is predicted and logit is empty: write {example} where a "
        "word shall be filled in, or choose --position N."
    )


def token_id(lens: Lens, text: str) -> int:
    """Find the one token that a text is."""
    ids = lens.tokenizer(text, add_special_tokens=False)["input_ids"]
    if len(ids) == 1 and ids[0] != lens.tokenizer.unk_token_id:
        return int(ids[0])
    vocabulary = lens.tokenizer.get_vocab()
    if text in vocabulary:
        return int(vocabulary[text])
    if not ids:
        raise InputError(f"--token {text!r} is no token of the tokenizer.", "Give one that it knows.")
    pieces = readable_tokens(lens.tokenizer, lens.tokenizer.convert_ids_to_tokens(ids))
    if len(ids) == 1:
        raise InputError(f"The tokenizer does not know --token {text!r}.", "Give a token that it knows.")
    raise InputError(
        f"--token must be one token, but {text!r} is {len(ids)}: {' | '.join(pieces)}.",
        "Give one of them, or another word; a blank before a word counts.",
    )


def predicted(lens: Lens, answer: Any, position: int, token: int | None) -> PredictedToken:
    """Read a logit off what a model put out."""
    logits = answer.logits[0, position].float()  # [vocabulary]
    if not bool(torch.isfinite(logits.amax())):
        raise holds_none(f"The logits of position {position}")
    chosen = int(logits.argmax()) if token is None else token
    if chosen >= len(logits):
        raise InputError(
            f"The tokenizer made the token id {chosen}, but the model has logits only below {len(logits)}.",
            "Give the tokenizer that belongs to this model.",
        )
    piece = lens.tokenizer.convert_ids_to_tokens([chosen])[0]  # None for ids that only the model has
    name = f"id {chosen}" if piece is None else readable_tokens(lens.tokenizer, [piece])[0]
    share = float(logits.softmax(-1)[chosen])
    return PredictedToken(name, chosen, position, float(logits[chosen]), share)
