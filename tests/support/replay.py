"""A model with all but its residual stream held at what it was: the direct effect by plain differences.

It shares nothing with `headlens.residual`: branches are replayed from a recording, and norms are written
out from their own weights at the recorded scale.
"""

from __future__ import annotations

from collections import defaultdict
from contextlib import ExitStack, contextmanager

import torch
from torch import nn

PROJECTIONS = (nn.Linear, nn.Embedding)


def is_norm(module):
    return "LayerNorm" in type(module).__name__ or "RMSNorm" in type(module).__name__


def holds_weights(module):
    return any(parameter.ndim > 1 for parameter in module.parameters(recurse=False))


class Held:
    """Record a pass; then run it again with everything held, but for one thing that a test adds."""

    def __init__(self, model, inputs, blocks):
        self.model, self.inputs = model, inputs
        self.branches = [
            (path, module)
            for path, module in model.named_modules()
            if any(path.startswith(block) for block in blocks) and holds_weights(module)
        ]
        self.norms = [(path, module) for path, module in model.named_modules() if is_norm(module)]
        self.outputs, self.scales = defaultdict(list), defaultdict(list)
        with torch.no_grad(), self._hooks(self._record):
            self.logits = model(**inputs).logits

    def run(self, added):
        """Logits with `added` {(path, turn): tensor} on top of what modules put out."""
        self.turns = defaultdict(int)
        self.added = added
        with torch.no_grad(), self._hooks(self._replay):
            return self.model(**self.inputs).logits

    @contextmanager
    def _hooks(self, function):
        with ExitStack() as stack:
            for kind, modules in (("branch", self.branches), ("norm", self.norms)):
                for path, module in modules:
                    stack.callback(module.register_forward_hook(function(kind, path)).remove)
            yield

    def _record(self, kind, path):
        def hook(module, taken, output):
            if kind == "branch":
                self.outputs[path].append(copied(output))
            else:
                self.scales[path].append(scale(module, taken[0]))

        return hook

    def _replay(self, kind, path):
        def hook(module, taken, output):
            turn = self.turns[kind, path]
            self.turns[kind, path] += 1
            if kind == "norm":
                return frozen(module, taken[0], self.scales[path][turn])
            kept = copied(self.outputs[path][turn])  # a model may add to it in place
            return kept + self.added[path, turn] if (path, turn) in self.added else kept

        return hook


def copied(output):
    return tuple(map(copied, output)) if isinstance(output, tuple) else output.clone()


def scale(module, x):
    if "RMSNorm" not in type(module).__name__ and isinstance(module, nn.LayerNorm):
        return (x.var(-1, unbiased=False, keepdim=True) + module.eps).sqrt()
    eps = next(getattr(module, n) for n in ("variance_epsilon", "eps") if hasattr(module, n))
    return (x.square().mean(-1, keepdim=True) + eps).sqrt()


def frozen(module, x, its):
    if isinstance(module, nn.LayerNorm):
        bias = 0 if module.bias is None else module.bias
        return (x - x.mean(-1, keepdim=True)) / its * module.weight + bias
    weight = 1 + module.weight if "Gemma3" in type(module).__name__ else module.weight
    return x / its * weight
