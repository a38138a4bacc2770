"""The seam for models whose attention goes through `transformers`' attention interface."""

from __future__ import annotations

import threading
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from typing import Any

import torch
from torch import Tensor, nn
from transformers import PreTrainedModel

from headlens.attention import Seam
from headlens.block import Block, Watch, block_size
from headlens.call import AttentionCall
from headlens.heads import Site
from headlens.interface import route
from headlens.plain_call import plain_where_equal


class InterfaceSeam(Seam):
    """The seam of a model whose attention goes through `transformers.AttentionInterface`."""

    def __init__(self, model: PreTrainedModel, sites: Sequence[Site], dense_masks: bool = False) -> None:
        super().__init__(model, sites)
        self._dense_masks = dense_masks
        self._local = threading.local()
        self._turns: dict[int, _Turns] = {}
        for path in dict.fromkeys(site.module for site in sites):
            mine = [site for site in sites if site.module == path]
            self._turns[id(model.get_submodule(path))] = _Turns(mine)

    @contextmanager
    def _install(self) -> Iterator[None]:
        self._restart()
        with ExitStack() as stack:
            for part in self._model.modules():  # whichever part of the model a pass begins with
                if isinstance(part, PreTrainedModel):
                    stack.callback(part.register_forward_pre_hook(self._restart).remove)
            stack.enter_context(route(self._model, self._attend, self._dense_masks))
            yield

    def fits(self) -> bool:
        """Whether the model still has the attention modules that were found in it."""
        model = self._model
        return all(_has(model, site.module, self._turns) for site in self.sites)

    def skip(self, sites: Sequence[Site]) -> None:
        """See `Seam.skip`."""
        for site in sites:
            self._turns[id(self._model.get_submodule(site.module))].next()

    def _restart(self, *_: Any) -> None:
        """Count calls anew: the pass before may have ended in an exception half-way."""
        for turns in self._turns.values():
            turns.reset()

    def _attend(self, call: AttentionCall) -> Tensor:
        turns = self._turns.get(id(call.module))
        if turns is None:  # attention that the dry run did not reach, such as a vision tower's
            return call.plain()
        site = turns.next()
        watches = self._watching(site)
        known = next((x for x in (supply(site) for supply in self._supplies) if x is not None), None)
        if watches or known is None:
            known = self._observed(site, call, watches) if watches else call.plain()
        self._local.call = call
        try:
            return self._edited(site, known)
        finally:
            self._local.call = None

    @property
    def call(self) -> AttentionCall | None:
        """The attention call whose output is being edited."""
        return getattr(self._local, "call", None)

    def _observed(self, site: Site, call: AttentionCall, watches: list[Watch]) -> Tensor:
        batch, n_heads, n_queries, _ = call.query.shape
        n_keys, device = call.key.shape[2], call.query.device
        size = block_size(watches, 4 * batch * n_heads * n_keys, device)  # float32
        if size < n_queries:
            call = plain_where_equal(call)
            size = block_size(watches, 4 * batch * n_heads * n_keys, device, call.rows_per_query)
        outputs = []
        for start in range(0, n_queries, size):
            stop = min(start + size, n_queries)
            output, pattern, visible = call.block(start, stop)
            outputs.append(output)
            values = call.value[:, :, : pattern.shape[-1]]
            for watch in watches:
                watch.observer(site, Block(pattern, visible, start, stop, n_queries, n_keys, values))
        return outputs[0] if len(outputs) == 1 else torch.cat(outputs, dim=1)  # along the queries


def _has(model: nn.Module, path: str, known: Mapping[int, object]) -> bool:
    try:
        return id(model.get_submodule(path)) in known
    except AttributeError:
        return False


class _Turns:
    """The sites of one module in the order of its calls: ALBERT runs one module for all layers."""

    def __init__(self, sites: Sequence[Site]) -> None:
        self._sites = sites
        self._calls = threading.local()

    def reset(self) -> None:
        self._calls.count = 0

    def next(self) -> Site:
        count = getattr(self._calls, "count", 0)
        self._calls.count = count + 1
        return self._sites[count % len(self._sites)]
