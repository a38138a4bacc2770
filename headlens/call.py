"""One attention call of a model: its arguments, and the ways to compute what it puts out."""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, cast

import torch
from torch import Tensor, nn
from transformers.modeling_utils import ALL_ATTENTION_FUNCTIONS

from headlens.errors import ModelError
from headlens.masks import LazyMask
from headlens.strips import additive

UNIFORM_CELLS = 2**22  # batch x queries x keys of uniform weights at once
KNOWN = ("eager", "sdpa", "flash", "flex", "paged")  # beginnings of backends that compute plain attention


@dataclass(frozen=True, slots=True)
class AttentionCall:
    """One call of the attention function, as the model made it.

    Args:
        module: the attention module that calls.
        query: [batch, head, query, width].
        key: [batch, kv head, key, width].
        value: [batch, kv head, key, width].
        mask: what the model passes as attention mask.
        options: the other keyword arguments (scaling, dropout, position bias, ...).
        backend: name of the model's own attention implementation.
    """

    module: nn.Module
    query: Tensor
    key: Tensor
    value: Tensor
    mask: LazyMask | Tensor | None
    options: dict[str, Any]
    backend: str

    @property
    def rows_per_query(self) -> int:
        """How many rows a query has in a product."""
        return 1

    def plain(self) -> Tensor:
        """Compute the output as the model's own backend does.

        Returns:
            The heads' outputs before W_O, [batch, query, head, width].
        """
        mask = self.mask.dense(self.backend) if isinstance(self.mask, LazyMask) else self.mask
        if isinstance(mask, Tensor):  # layers can be on several devices
            mask = mask.to(self.query.device)
        interface = getattr(_home(self.module), "ALL_ATTENTION_FUNCTIONS", ALL_ATTENTION_FUNCTIONS)
        function = interface.get_interface(self.backend, eager_of(self.module))
        output, _ = function(self.module, self.query, self.key, self.value, mask, **self.options)
        return cast(Tensor, output)

    def block(self, start: int, stop: int) -> tuple[Tensor, Tensor, Tensor]:
        """Compute one block of queries as the module's own eager attention does.

        Args:
            start: first query of the block.
            stop: one past its last query.

        Returns:
            The heads' outputs before W_O [batch, stop - start, head, width]; the pattern
            [batch, head, stop - start, reach], where keys from `reach` on are seen by no query of the
            block; and which keys each query may see, bool [batch, 1, stop - start, reach].
        """
        if not self.backend.startswith(KNOWN):
            raise ModelError(
                f"The attention function {self.backend!r} is not one of transformers' own, so its patterns "
                "cannot be told.",
                "Observe under model.set_attn_implementation('eager').",
            )
        n_keys = self.key.shape[2]
        reach = min(self.mask.reach(start, stop), n_keys) if isinstance(self.mask, LazyMask) else n_keys
        visible, mask = self._mask_of(start, stop, reach)
        output, pattern = self.weigh(
            self.query[:, :, start:stop],
            self.key[:, :, :reach],
            self.value[:, :, :reach],
            mask,
            {name: self._cut(value, start, stop, reach) for name, value in self.options.items()},
        )
        return output, pattern, visible

    def weigh(
        self, query: Tensor, key: Tensor, value: Tensor, mask: Tensor | None, options: dict[str, Any]
    ) -> tuple[Tensor, Tensor]:
        """Hand queries, keys and values to the module's own eager attention.

        Args:
            query: [batch, head, query, width].
            key: [batch, kv head, key, width].
            value: [batch, kv head, key, width].
            mask: what is added to the logits.
            options: the function's other arguments.

        Returns:
            The heads' outputs before W_O [batch, query, head, width], and the pattern
            [batch, head, query, key].
        """
        return eager_of(self.module)(self.module, query, key, value, mask, **options)

    def uniform(self, heads: Sequence[int]) -> Tensor:
        """Compute what heads put out when they give the same weight to every key that a query may see.

        Args:
            heads: numbers of query heads.

        Returns:
            Their outputs before W_O, [batch, query, len(heads), width]. A query that may see nothing (a
            padded one) gives the same weight to all keys.
        """
        n_queries, n_keys = self.query.shape[2], self.key.shape[2]
        group = self.query.shape[1] // self.value.shape[1]  # query heads that share a key-value head
        values = self.value[:, [head // group for head in heads]]  # [batch, head, key, width]
        size = max(1, UNIFORM_CELLS // (len(values) * n_keys))
        outputs = []
        for start in range(0, n_queries, size):
            visible, _ = self._mask_of(start, min(start + size, n_queries), n_keys)
            visible = (visible if visible.shape[1] == 1 else visible[:, heads]).expand(
                len(values), -1, -1, -1
            )
            seen = visible | ~visible.any(dim=-1, keepdim=True)
            weights = seen.to(values.dtype) / seen.sum(dim=-1, keepdim=True)  # [batch, 1, query, key]
            outputs.append(weights @ values)
        return torch.cat(outputs, dim=2).transpose(1, 2)

    def _mask_of(self, start: int, stop: int, reach: int) -> tuple[Tensor, Tensor | None]:
        device = self.query.device
        if isinstance(self.mask, LazyMask):
            return self.mask.block(start, stop, reach, self.query)
        if self.mask is None:
            shape = (self.query.shape[0], 1, stop - start, reach)
            return torch.ones(shape, dtype=torch.bool, device=device), None
        mask = self._cut(self.mask, start, stop, reach).expand(-1, -1, stop - start, -1)
        if mask.dtype == torch.bool:
            return mask, additive(mask, self.query.dtype)
        return mask > torch.finfo(mask.dtype).min / 2, mask

    def _cut(self, value: Any, start: int, stop: int, reach: int) -> Any:
        """Cut an argument that has a query axis (T5's position bias) down to one block."""
        if not isinstance(value, Tensor) or value.ndim != 4 or value.shape[-1] != self.key.shape[2]:
            return value
        return value[:, :, start:stop, :reach] if value.shape[2] != 1 else value[..., :reach]


def _home(module: nn.Module) -> Any:
    """The Python file in which a module's class, or the nearest of its parents, keeps eager attention."""
    for kind in type(module).__mro__:
        home = sys.modules.get(kind.__module__)
        if hasattr(home, "eager_attention_forward"):
            return home
    return sys.modules[type(module).__module__]


def eager_of(module: nn.Module) -> Callable[..., tuple[Tensor, Tensor]]:
    """Find the eager attention function of a module's own Python file.

    Args:
        module: an attention module.

    Returns:
        The function.

    Raises:
        LookupError: the file has none.
    """
    function = getattr(_home(module), "eager_attention_forward", None)
    if function is None:
        raise LookupError(type(module).__name__)
    return cast("Callable[..., tuple[Tensor, Tensor]]", function)
