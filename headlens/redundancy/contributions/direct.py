"""How a token's logit changes along the residual stream alone: the direct effect of what is written.

One pass with gradients in which the graph begins at what every W_O puts out and in which nothing but the
stream carries it on: whatever has a matrix of weights inside a block (attention, MLP) is held fixed, and
norms are linear maps at the scale that they had.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from headlens.model.devices import exact
from headlens.model.heads import Site
from headlens.model.lens import Lens
from headlens.model.unembedding import Norm, norm_of
from headlens.redundancy.contributions.measuring import reaches_logits
from headlens.redundancy.contributions.writers import at_outputs, writers_of

ELSEWHERE = 1e-6  # a larger gradient at other positions, relative to that at the position itself, is refused


@dataclass(frozen=True, slots=True, eq=False)
class Slopes:
    """How a logit changes with what is written at its position.

    Args:
        by_site: the gradient by W_O's output, [model width]; a site without a direct path has none.
        logit: of the token.
        lacking: sites that have none although they write to the stream of the language head.
    """

    by_site: Mapping[Site, Tensor]
    logit: float
    lacking: tuple[Site, ...]


def slopes_of(lens: Lens, inputs: Mapping[str, Any], position: int, token: int) -> Slopes:
    """Differentiate one logit by what is written to the residual stream, all other branches held fixed.

    Every norm on the way is the linear map that it is at the observed scale (its centring and weight stay,
    its scale does not move), as in logit attribution (Elhage et al. 2021; nostalgebraist 2020). A layer of
    the language head itself (BERT's dense layer with GELU, a cap on logits) is taken by its tangent at the
    observed point. For pre-norm models the effects of all parts then add up to the logit exactly; where
    norms stand on the stream (BERT) or the head has such a layer they are first-order parts of it.

    It misleads where later layers read what a head writes and undo or pass it on: that is no direct effect.

    Args:
        lens: the model, with a language head.
        inputs: of the model, without padding, [1, token].
        position: of the logit.
        token: its id.

    Returns:
        The slopes. A gradient that is not confined to the position is refused: then the stream mixes tokens.
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
    return Slopes(found, float(logit.detach()), tuple(site for site in reaching if site not in found))


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
