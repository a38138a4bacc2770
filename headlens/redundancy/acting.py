"""Norms as they act: told by what they do to a few vectors, and held as linear maps at the observed scale."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor, nn


@dataclass(frozen=True, slots=True, eq=False)
class Norm:
    """A norm y = offset + weight * (x - mean) / scale, where only the scale depends on the input.

    Args:
        weight: what each direction is multiplied by, [width].
        offset: what is added, [width].
        centred: whether the mean over the width is taken away (LayerNorm) or not (RMSNorm).
    """

    weight: Tensor
    offset: Tensor
    centred: bool

    @property
    def has_offset(self) -> bool:
        """Whether it adds anything, beyond rounding."""
        return bool(self.offset.norm() > 1e-5 * self.weight.norm())

    def directed(self, x: Tensor) -> Tensor:
        """What the norm does before it divides by the scale; [..., width] to the same."""
        x = x - x.mean(-1, keepdim=True) if self.centred else x
        return x * self.weight.to(x)

    def inverse_scale(self, taken: Tensor, put_out: Tensor) -> Tensor:
        """Find 1 / scale of every token from what the norm took and put out, [..., width] to [..., 1].

        It is NaN where there was nothing to scale: then the map is not known.
        """
        direct = self.directed(taken)
        return ((put_out - self.offset.to(put_out)) * direct).sum(-1, keepdim=True) / direct.square().sum(
            -1, keepdim=True
        )


def norm_of(module: nn.Module, width: int, like: Tensor) -> Norm | None:
    """Tell whether a module is a norm, by how it acts.

    Args:
        module: any module.
        width: of its input.
        like: a tensor of the kind and on the device that it takes.

    Returns:
        The norm; None where the module does anything else.
    """
    if not isinstance(module, nn.Module) or next(module.children(), None) is not None:
        return None
    if any(parameter.ndim > 1 for parameter in module.parameters()) or width < 3:
        return None
    generator = torch.Generator().manual_seed(0)
    probe = _signs(width, generator).to(like)
    other = torch.randn(width, generator=generator).to(like)
    with torch.no_grad():
        plus, twice, minus, lifted, answer = (
            _answer(module, x) for x in (probe, 2 * probe, -probe, probe + 3, other)
        )
    if plus is None or twice is None or minus is None or lifted is None or answer is None:
        return None
    near = 1e-3 if torch.finfo(like.dtype).eps < 1e-5 else 0.05
    size = (plus - minus).norm() / 2
    if not size > 0 or (twice - plus).norm() > near * size:
        return None
    centred = bool((lifted - plus).norm() < 0.1 * size)
    found = Norm((plus - minus) / 2 * probe.square().mean().sqrt() / probe, (plus + minus) / 2, centred)
    direct = found.directed(other)
    spread = (other - other.mean()).square().mean().sqrt() if centred else other.square().mean().sqrt()
    fits = (answer - found.offset - direct / spread).norm() <= near * (size + found.offset.norm())
    return found if fits else None


def _signs(width: int, generator: torch.Generator) -> Tensor:
    """Ones and minus ones with mean 0, in any order; of an odd width the last three are 1, 1 and -2."""
    signs = torch.ones(width - 3 * (width % 2))
    signs[::2] = -1
    signs = signs[torch.randperm(len(signs), generator=generator)]
    return torch.cat([signs, torch.tensor([1.0, 1.0, -2.0])]) if width % 2 else signs


def _answer(module: nn.Module, x: Tensor) -> Tensor | None:
    try:
        answer = module.forward(x)  # not a call: hooks are not for probes
    except (TypeError, ValueError, RuntimeError, LookupError, AttributeError):
        return None
    if not isinstance(answer, Tensor) or answer.shape != x.shape or not bool(answer.isfinite().all()):
        return None
    return answer
