"""Norms as linear maps: what a layer norm or an RMS norm does, but for its scale."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from headlens.dryrun import run
from headlens.lens import Lens


@dataclass(frozen=True, eq=False)
class LinearNorm:
    """What a norm does but for its scale, which differs from token to token.

    Args:
        weight: what each direction is multiplied by, [model width].
        centred: whether the mean over all directions is taken away first.
    """

    weight: Tensor
    centred: bool

    def __call__(self, states: Tensor) -> Tensor:
        """Pass states through it, [..., model width]."""
        return self._centre(states) * self.weight.to(states)

    def into(self, matrix: Tensor) -> Tensor:
        """Fold it into a matrix that reads what it puts out: norm(x) @ matrix = x @ the result.

        Args:
            matrix: [model width, any].

        Returns:
            The same shape.
        """
        return self._centre((matrix * self.weight.to(matrix)[:, None]).T).T

    def out_of(self, matrix: Tensor) -> Tensor:
        """Fold it into a matrix that writes what it reads: norm(x @ matrix) = x @ the result.

        Args:
            matrix: [any, model width].

        Returns:
            The same shape.
        """
        return self(matrix)

    def _centre(self, states: Tensor) -> Tensor:
        return states - states.mean(-1, keepdim=True) if self.centred else states


def linear_part(norm: nn.Module) -> LinearNorm:
    """Find out what a norm does but for its scale, from how it acts.

    Args:
        norm: a layer norm or an RMS norm, with one weight for each direction.

    Returns:
        Its linear part, in float32.
    """
    parameter = next(norm.parameters())
    generator = torch.Generator().manual_seed(0)
    probe = torch.randn(parameter.shape[-1], generator=generator)
    probe = (probe - probe.mean()).to(parameter)
    with torch.inference_mode():
        plus, minus, lifted = norm(probe), norm(-probe), norm(probe + 3)
    centred = bool((lifted - plus).norm() < 0.1 * (plus - minus).norm())  # also in half precision
    weight = (plus - minus) / 2 / (probe / probe.square().mean().sqrt())
    return LinearNorm(weight.float(), centred)


def norms_before(lens: Lens, paths: Sequence[str]) -> dict[str, LinearNorm]:
    """Find the norms whose output layers read as it is.

    Args:
        lens: the model.
        paths: of the layers.

    Returns:
        The norm before each layer that has one.
    """
    put_out: list[tuple[nn.Module, Tensor]] = []
    found: dict[str, LinearNorm] = {}

    def norm_ran(module: nn.Module, _: Any, output: Any) -> None:
        if isinstance(output, Tensor):
            put_out.append((module, output))

    def layer_runs(path: str) -> Any:
        def hook(_: nn.Module, arguments: tuple[Any, ...]) -> None:
            norm = next((norm for norm, output in put_out if _same(output, arguments[0])), None)
            if norm is not None:
                found[path] = linear_part(norm)

        return hook

    with ExitStack() as stack, torch.inference_mode():
        stack.enter_context(lens.observe(lambda site, block: None, sites=()))  # in eval mode
        for module in lens.model.modules():
            weight = getattr(module, "weight", None)
            if isinstance(weight, Tensor) and weight.ndim == 1:
                stack.callback(module.register_forward_hook(norm_ran).remove)
        for path in set(paths):
            stack.callback(lens.model.get_submodule(path).register_forward_pre_hook(layer_runs(path)).remove)
        run(lens.model)
    return found


def _same(one: Tensor, other: Tensor) -> bool:
    return one.shape == other.shape and bool(torch.equal(one, other))
