"""headlens' place in `transformers`' attention interface: the calls of one model, routed to one handler.

Every current model sends query, key and value through `transformers.AttentionInterface`. Here one function
is registered there under the name "headlens"; `route` switches a model over to it for a while and hands
each of its attention calls to a handler. Models that are not routed are never touched, and a model that
merely shares its config with a routed one computes what it always did.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any
from weakref import WeakKeyDictionary

from torch import Tensor, nn
from transformers import AttentionInterface, AttentionMaskInterface, PreTrainedConfig, PreTrainedModel
from transformers.masking_utils import eager_mask

from headlens.call import AttentionCall
from headlens.masks import lazy_mask

NAME = "headlens"
DENSE = "headlens_dense"  # the same, for models whose own code works on the mask


Handler = Callable[[AttentionCall], Tensor]


@dataclass(slots=True)
class _Routed:
    """A config whose models are routed: its own attention implementation, and how many routes are open."""

    config: PreTrainedConfig
    backend: str
    routes: int = 0


_lock = threading.RLock()
_handlers: WeakKeyDictionary[nn.Module, tuple[Handler, str]] = WeakKeyDictionary()
_routed: dict[int, _Routed] = {}  # by id of the config


def _attend(
    module: nn.Module, query: Tensor, key: Tensor, value: Tensor, attention_mask: Any, **options: Any
) -> tuple[Tensor, None]:
    found = _handlers.get(module)
    if found is None:  # a model that shares its config with a routed one
        entry = _routed.get(id(getattr(module, "config", None)))
        backend = entry.backend if entry else "eager"
        return AttentionCall(module, query, key, value, attention_mask, options, backend).plain(), None
    handler, backend = found
    return handler(AttentionCall(module, query, key, value, attention_mask, options, backend)), None


for _name, _mask in ((NAME, lazy_mask), (DENSE, eager_mask)):
    AttentionInterface.register(_name, _attend)
    AttentionMaskInterface.register(_name, _mask)


@contextmanager
def route(model: PreTrainedModel, handler: Handler, dense: bool = False) -> Iterator[None]:
    """Hand all attention calls of one model to a handler while the block lasts.

    Args:
        model: the model; afterwards it is as it was, also after an exception.
        handler: receives each call and returns the heads' outputs before W_O [batch, query, head, width].
        dense: make whole masks, for a model whose own code works on its mask.

    Yields:
        Nothing.
    """
    configs = configs_of(model)
    modules = list(model.modules())
    with _lock:
        for config in configs:
            entry = _routed.setdefault(id(config), _Routed(config, config._attn_implementation or "eager"))
            entry.routes += 1
            config._attn_implementation_internal = DENSE if dense else NAME
        own = _routed[id(model.config)]
        for module in modules:
            backend = _routed.get(id(getattr(module, "config", None)), own).backend
            _handlers[module] = (handler, backend)
    try:
        yield
    finally:
        with _lock:
            for module in modules:
                _handlers.pop(module, None)
            for config in configs:
                entry = _routed[id(config)]
                entry.routes -= 1
                if entry.routes == 0:
                    config._attn_implementation_internal = entry.backend
                    del _routed[id(config)]


def configs_of(model: PreTrainedModel) -> list[PreTrainedConfig]:
    """List all configs that the model's parts read their attention implementation from, each once."""
    found: dict[int, PreTrainedConfig] = {}
    parts = (getattr(part, "config", None) for part in model.modules())
    waiting = [config for config in parts if isinstance(config, PreTrainedConfig)]
    while waiting:
        config = waiting.pop()
        if id(config) not in found:
            found[id(config)] = config
            waiting += [
                sub for name in config.sub_configs if (sub := getattr(config, name, None)) is not None
            ]
    return list(found.values())


def uses_interface(model: PreTrainedModel) -> bool:
    """Tell whether a model sends its attention through `transformers`' interface.

    Args:
        model: any model of `transformers`.

    Returns:
        True where `route` can serve it.
    """
    return all(
        part._can_set_attn_implementation() for part in model.modules() if isinstance(part, PreTrainedModel)
    )
