"""From the residual stream to logits: the last norm, made linear, and the unembedding."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor, nn

from headlens.model.devices import lasting, weight_of
from headlens.model.heads import Site
from headlens.model.lens import Lens
from headlens.model.trace import run


@dataclass(frozen=True, eq=False)
class Writing:
    """The linear way from a head's output to the logits.

    The final norm is folded in as a linear map at a fixed scale: its weights, and the centring where it
    centres. Scale itself does not matter to what is computed here.

    Args:
        unembedding: [vocabulary, model width].
        norm: the final norm.
        outputs: W_O of each site.
    """

    unembedding: Tensor
    norm: Norm
    outputs: Mapping[Site, nn.Module]
    _copies: dict[torch.device, Tensor] = field(default_factory=dict, repr=False)

    @classmethod
    def of(cls, lens: Lens) -> Writing | None:
        """Find it for a model.

        Args:
            lens: the model.

        Returns:
            None where the model has no unembedding that reads the residual stream through one norm (BERT
            has a layer of its own between), where some W_O is unknown, or where what it writes passes a
            norm before it is added (Gemma 3).
        """
        head: Any = lens.model.get_output_embeddings()  # type: ignore[no-untyped-call]
        module = _final_norm(lens, head) if isinstance(head, nn.Module) else None
        weight = weight_of(head) if isinstance(head, nn.Module) else None
        if module is None or weight is None:
            return None
        norm = norm_of(module, weight.shape[-1], weight)
        # an encoder that feeds a decoder writes to no logits
        silent = "encoder" if len(lens.anatomy.stacks) > 1 else None
        writers = [part for part in lens.anatomy.parts if part.site.stack != silent]
        paths = {part.site: part.projections.output for part in writers}
        if norm is None or not all(paths.values()):
            return None
        outputs = {site: lens.model.get_submodule(path) for site, path in paths.items()}
        return cls(weight.float(), norm, outputs)

    def logit_gain(self, site: Site, held: Tensor, token: Tensor) -> Tensor:
        """Measure how much heads raise the logits of tokens by attending to one key alone.

        Args:
            site: where.
            held: what each head reads from that key, [input, head, width].
            token: the token whose logit is looked at, [input].

        Returns:
            Its logit less the mean over the vocabulary, over the largest such difference: -1..1,
            [input, head]. 0 for a head that writes nothing.
        """
        n_inputs, n_heads, width = held.shape
        module, unembedding = self.outputs[site], self._on(held.device)
        nothing = module(held.new_zeros(1, n_heads * width))
        raised = []
        for head in range(n_heads):
            alone = held.new_zeros(n_inputs, n_heads, width)
            alone[:, head] = held[:, head]
            written = (module(alone.flatten(1)) - nothing).float()  # [input, model width]
            logits = self.norm.directed(written) @ unembedding.T  # [input, vocabulary]
            logits = logits - logits.mean(-1, keepdim=True)
            largest = logits.abs().amax(-1).clamp(min=torch.finfo(logits.dtype).tiny)
            raised.append(logits.gather(1, token[:, None])[:, 0] / largest)
        return torch.stack(raised, dim=1)

    def _on(self, device: torch.device) -> Tensor:
        """The unembedding on a device: layers can be on several."""
        if device not in self._copies:
            self._copies[device] = lasting(lambda: self.unembedding.to(device))
        return self._copies[device]


def _final_norm(lens: Lens, head: nn.Module) -> nn.Module | None:
    """The norm whose input is what the last block puts out and whose output the unembedding reads."""
    outputs = [part.projections.output for part in lens.anatomy.parts]
    blocks = {path for path in _ancestors(outputs[-1]) if path}
    seen: dict[str, Any] = {}
    norms: list[tuple[nn.Module, Tensor, Tensor]] = []
    put_out: list[Tensor] = []
    written: list[Tensor] = []

    def watch(path: str) -> Any:
        def hook(module: nn.Module, arguments: tuple[Any, ...], output: Any) -> None:
            if module is head:
                seen["read"] = arguments[0]
            first = output[0] if isinstance(output, tuple) else output
            if path in blocks and isinstance(first, Tensor):
                put_out.append(first)
            if path in outputs and isinstance(first, Tensor):
                written.append(first)
            weight = getattr(module, "weight", None)
            if isinstance(weight, Tensor) and weight.ndim == 1 and isinstance(output, Tensor):
                norms.append((module, arguments[0], output))

        return hook

    handles = [module.register_forward_hook(watch(path)) for path, module in lens.model.named_modules()]
    try:
        with torch.inference_mode(), lens.observe(lambda site, block: None, sites=()):  # in eval mode
            run(lens.model)
    finally:
        for handle in handles:
            handle.remove()
    read = seen.get("read")
    if any(_same(taken, output) for _, taken, _ in norms for output in written):
        return None
    for module, taken, output in norms:
        if read is not None and _same(output, read) and any(_same(taken, x) for x in put_out):
            return module
    return None


def _ancestors(path: str) -> list[str]:
    parts = path.split(".")
    return [".".join(parts[:end]) for end in range(1, len(parts) + 1)]


def _same(one: Tensor, other: Tensor) -> bool:
    return one.shape == other.shape and bool(torch.equal(one, other.to(one.device)))


# ---- Norms as they act: told by what they do to a few vectors, and held as linear maps at the observed scale


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
        """What the norm does before it divides by the scale; [..., width] to the same.

        A matrix [any, width] that writes what the norm reads is folded into one by the same: norm(z W) is
        z directed(W), but for scale and offset.
        """
        return self._centre(x) * self.weight.to(x)

    def into(self, matrix: Tensor) -> Tensor:
        """Fold the norm into a matrix that reads what it puts out: norm(x) W is x times the result.

        Scale and offset are left out. W and the result are [width, any].
        """
        return self._centre((matrix * self.weight.to(matrix)[:, None]).T).T

    def _centre(self, x: Tensor) -> Tensor:
        return x - x.mean(-1, keepdim=True) if self.centred else x

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
    probe, other = probe.to(plus), other.to(plus)  # the module can be elsewhere than what it takes
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


def norms_before(lens: Lens, paths: Sequence[str]) -> dict[str, Norm]:
    """Find the norms whose output layers read as it is."""
    put_out: list[tuple[nn.Module, Tensor]] = []
    found: dict[str, Norm] = {}

    def norm_ran(module: nn.Module, _: Any, output: Any) -> None:
        if isinstance(output, Tensor):
            put_out.append((module, output))

    def layer_runs(path: str) -> Any:
        def hook(_: nn.Module, arguments: tuple[Any, ...]) -> None:
            read = arguments[0]
            module = next((module for module, output in put_out if _same(output, read)), None)
            norm = None if module is None else norm_of(module, read.shape[-1], read)
            if norm is not None:
                found[path] = norm

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


def as_read(lens: Lens, embedding: Tensor) -> Tensor:
    """Pass an embedding table through the norm that stands right behind it, before the first layer."""
    table = lens.model.get_input_embeddings()
    looked_up: list[Tensor] = []
    norms: list[nn.Module] = []

    def norm_runs(module: nn.Module, arguments: tuple[Any, ...]) -> None:
        if looked_up and not norms and arguments and _same(arguments[0], looked_up[0]):
            norms.append(module)

    with ExitStack() as stack, torch.inference_mode():
        stack.enter_context(lens.observe(lambda site, block: None, sites=()))  # in eval mode
        stack.callback(table.register_forward_hook(lambda _, __, output: looked_up.append(output)).remove)
        for path, module in lens.model.named_modules():
            weight = getattr(module, "weight", None)
            inside = any(isinstance(part, nn.ModuleList) for part in _above(lens.model, path))
            if isinstance(weight, Tensor) and weight.ndim == 1 and not inside:
                stack.callback(module.register_forward_pre_hook(norm_runs).remove)
        run(lens.model)
    if not norms:
        return embedding
    with torch.no_grad():
        read: Tensor = norms[0].forward(embedding)
    return read


def _above(model: nn.Module, path: str) -> list[nn.Module]:
    """The modules that a module is in."""
    parts = path.split(".")
    return [model.get_submodule(".".join(parts[:end])) for end in range(1, len(parts))]
