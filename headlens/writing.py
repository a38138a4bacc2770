"""What heads write to a model's logits: their values through W_O, the final norm and the unembedding."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor, nn

from headlens.devices import lasting
from headlens.dryrun import run
from headlens.heads import Site
from headlens.lens import Lens
from headlens.linear_norm import Norm, norm_of
from headlens.offloaded import weight_of


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

    def raises(self, site: Site, held: Tensor, token: Tensor) -> Tensor:
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
