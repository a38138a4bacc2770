"""The attention function and the masks that `transformers` calls for, a block of queries at a time."""

from __future__ import annotations

import inspect
import sys
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, fields, replace
from typing import Any, cast
from weakref import WeakKeyDictionary

import torch
from torch import Tensor, nn
from transformers import AttentionInterface, AttentionMaskInterface, PreTrainedConfig, PreTrainedModel
from transformers.masking_utils import (
    ALL_MASK_ATTENTION_FUNCTIONS,
    bidirectional_mask_function,
    causal_mask_function,
    eager_mask,
    sdpa_mask,
)
from transformers.modeling_utils import ALL_ATTENTION_FUNCTIONS

from headlens.errors import ModelError

KEPT = 96 * 2**20  # bytes of masks that one forward pass may keep


class LazyMask:
    """What a model receives for its attention mask while headlens listens.

    It keeps the arguments of `transformers`' mask functions (mask function, padding, offsets) and makes
    the mask of one block, or the whole mask of another backend, when it is asked to.

    Args:
        arguments: the keyword arguments that `transformers` passes to a mask function.
    """

    def __init__(self, arguments: dict[str, Any]) -> None:
        self._arguments = arguments
        self._dense: dict[str, Tensor | None] = {}
        self._reach: dict[tuple[int, int], int] = {}
        self._blocks: dict[tuple[int, int, int, torch.dtype, torch.device], tuple[Tensor, Tensor]] = {}
        self._kept = 0
        self._strip = Strip.of(arguments)
        self.n_keys: int = int(arguments["kv_length"])

    def dense(self, backend: str) -> Tensor | None:
        """Make the whole mask that another backend uses; kept, since all layers share it.

        Args:
            backend: a name known to `transformers`' mask interface, such as "sdpa" or "eager".

        Returns:
            What that backend's mask function returns, None where it needs no mask.
        """
        if backend not in self._dense:
            # a backend without a mask function is given no mask, as transformers does it
            make = ALL_MASK_ATTENTION_FUNCTIONS.get(backend, lambda **_: None)
            self._dense[backend] = make(**self._arguments)
        return self._dense[backend]

    def block(self, start: int, stop: int, n_keys: int, query: Tensor) -> tuple[Tensor, Tensor]:
        """Make the mask of one block; small ones are kept, since all layers share them.

        Args:
            start: first query of the block.
            stop: one past its last query.
            n_keys: how many leading keys to look at.
            query: what the mask is for: it is made in the type of the query, on its device.

        Returns:
            Which keys each query may see [batch, 1, stop - start, n_keys]: `visible`, and as `additive`.
        """
        dtype = query.dtype
        name = (start, stop, n_keys, dtype, query.device)
        if name in self._blocks:
            return self._blocks[name]
        if self._strip is not None:
            seen, added = self._strip.block(start, stop, n_keys, dtype)
            made, size = (seen.to(query.device), added.to(query.device)), 0
        else:
            visible = self.visible(start, stop, n_keys).to(query.device)
            made = visible, additive(visible, dtype)
            size = visible.numel() * (1 + dtype.itemsize)
        if self._kept + size <= KEPT:
            self._kept += size
            self._blocks[name] = made
        return made

    def visible(self, start: int, stop: int, n_keys: int | None = None) -> Tensor:
        """Tell which keys the queries of one block may see.

        Args:
            start: first query of the block.
            stop: one past its last query.
            n_keys: how many leading keys to look at; all by default.

        Returns:
            Bool tensor [batch, 1, stop - start, n_keys], True where the query may see the key.
        """
        block = dict(self._arguments)
        block["q_length"] = stop - start
        block["q_offset"] = block.get("q_offset", 0) + start
        block["kv_length"] = self.n_keys if n_keys is None else n_keys
        block["allow_is_causal_skip"] = block["allow_is_bidirectional_skip"] = False
        mask = sdpa_mask(**block)
        assert mask is not None  # neither skip is allowed
        return mask

    def reach(self, start: int, stop: int) -> int:
        """Count the leading keys that a block needs: one past the last key that any of its queries sees.

        A query that sees nothing (left padding) is given uniform weights over all keys by eager
        attention; its block therefore keeps all keys, so that the numbers stay the model's own.

        Args:
            start: first query of the block.
            stop: one past its last query.

        Returns:
            A number of keys, from 1 to all.
        """
        if (
            self._arguments.get("device") is not None
            and torch.device(self._arguments["device"]).type == "meta"
        ):
            return self.n_keys
        if self._strip is not None:
            return self._strip.reach(stop)
        if (start, stop) not in self._reach:
            seen = self.visible(start, stop)
            blind = (~seen.any(-1)).any()
            columns = seen.any(dim=2).any(dim=1).any(dim=0)  # [key] that some query sees
            behind = columns * torch.arange(1, self.n_keys + 1, device=seen.device)
            # one number, since each that is asked for waits for the device
            self._reach[start, stop] = int(torch.where(blind, self.n_keys, behind.amax()))
        return self._reach[start, stop]

    def seen_by(self, query: int, first: int, n_keys: int) -> Tensor:
        """Tell which keys a query would see in an input as long as that takes, by the mask function alone.

        Args:
            query: position of the query, however far out; nothing is run there.
            first: position of the first key in question.
            n_keys: how many keys, from that one on.

        Returns:
            Bool tensor [n_keys], padding aside.
        """
        probe = {**self._arguments, "attention_mask": None, "batch_size": 1}
        probe.update(q_length=1, q_offset=query, kv_length=n_keys, kv_offset=first)
        probe.update(allow_is_causal_skip=False, allow_is_bidirectional_skip=False)
        mask = sdpa_mask(**probe)
        assert mask is not None  # neither skip is allowed
        return mask[0, 0, 0]

    @property
    def causal(self) -> bool:
        """Whether no query may see a key after itself, by the mask function alone (padding aside)."""
        function = self._arguments.get("mask_function")
        probe = {**self._arguments, "attention_mask": None, "batch_size": 1, "device": "cpu"}
        probe.update(q_length=2, kv_length=2, q_offset=0, kv_offset=0)
        probe.update(allow_is_causal_skip=False, allow_is_bidirectional_skip=False)
        mask = sdpa_mask(**probe)
        return function is not None and mask is not None and not bool(mask[0, 0, 0, 1])


def lazy_mask(**arguments: Any) -> LazyMask:
    """Stand in `transformers`' mask interface: keep the arguments, make nothing yet."""
    return LazyMask(arguments)


# ---- Masks that depend only on how far a key is from a query: the mask of every block is a view of one strip


class Strip:
    """The masks of inputs without padding whose queries see every key, or every key up to themselves.

    The queries of a causal block see a triangle of keys and all keys before it. So a strip as high as a block
    holds the masks of all blocks, each a window of it that begins further left for later queries: what is
    stored grows with the length of the input, not with its square.

    Args:
        causal: whether queries see keys up to themselves only.
        batch: number of inputs.
        n_keys: number of keys; where the mask is causal there are as many queries.
        device: where masks are needed.
    """

    def __init__(self, causal: bool, batch: int, n_keys: int, device: Any) -> None:
        self._causal = causal
        self._batch = batch
        self._n_keys = n_keys
        self._device = device
        self._seen = torch.ones(0 if causal else 1, 1, dtype=torch.bool, device=device)
        self._added: dict[torch.dtype, Tensor] = {}

    @classmethod
    def of(cls, arguments: Mapping[str, Any]) -> Strip | None:
        """Make the strip of a mask, if it has one.

        Args:
            arguments: the keyword arguments that `transformers` passes to a mask function.

        Returns:
            The strip; None where there is padding, a cache, or another rule of what may be seen.
        """
        function, n_keys = arguments.get("mask_function"), int(arguments["kv_length"])
        causal = function is causal_mask_function
        if not causal and function is not bidirectional_mask_function:
            return None
        offsets = [arguments.get(name, 0) for name in ("q_offset", "kv_offset")]
        square = arguments["q_length"] == n_keys and all(isinstance(x, int) and x == 0 for x in offsets)
        if (causal and not square) or not _all_real(arguments.get("attention_mask"), n_keys):
            return None
        return cls(causal, arguments["batch_size"], n_keys, arguments.get("device", "cpu"))

    def reach(self, stop: int) -> int:
        """Count the leading keys that the queries before `stop` see."""
        return stop if self._causal else self._n_keys

    def block(self, start: int, stop: int, n_keys: int, dtype: torch.dtype) -> tuple[Tensor, Tensor]:
        """Cut out the mask of one block.

        Args:
            start: first query of the block.
            stop: one past its last query.
            n_keys: how many leading keys to look at.
            dtype: dtype of the logits.

        Returns:
            Which keys each query may see [batch, 1, stop - start, n_keys], and the same as `additive`; views.
        """
        if self._causal and len(self._seen) < stop - start:
            self._draw(stop - start)
        if dtype not in self._added:
            self._added[dtype] = additive(self._seen, dtype)
        seen, added = self._seen, self._added[dtype]
        if self._causal:
            window = slice(stop - start), slice(self._n_keys - start, self._n_keys - start + n_keys)
            seen, added = seen[window], added[window]
        shape = (self._batch, 1, stop - start, n_keys)
        return seen.expand(shape), added.expand(shape)

    def _draw(self, rows: int) -> None:
        """Row i sees columns up to `n_keys + i`: in the window of any block, that is the query itself."""
        columns = torch.arange(2 * self._n_keys, device=self._device)
        self._seen = columns <= self._n_keys + torch.arange(rows, device=self._device)[:, None]
        self._added.clear()


def _all_real(padding: Any, n_keys: int) -> bool:
    """Whether no token is padding, as far as can be told: not on the meta device."""
    if padding is None:
        return True
    known = isinstance(padding, Tensor) and padding.shape[1:] == (n_keys,) and not padding.is_meta
    return known and bool(padding.all())


def additive(visible: Tensor, dtype: torch.dtype) -> Tensor:
    """Turn a mask of booleans into the one that eager attention adds to its logits."""
    zero = torch.zeros((), dtype=dtype, device=visible.device)
    return torch.where(visible, zero, torch.finfo(dtype).min)


# ---- The attention function that `transformers` calls: its arguments, a block of queries at a time


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
        function = interface.get_interface(self.backend, _eager_of(self.module))
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
        return _eager_of(self.module)(self.module, query, key, value, mask, **options)

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


def _eager_of(module: nn.Module) -> Callable[..., tuple[Tensor, Tensor]]:
    """Find the eager attention function of a module's own Python file."""
    function = getattr(_home(module), "eager_attention_forward", None)
    if function is None:
        raise LookupError(type(module).__name__)
    return cast("Callable[..., tuple[Tensor, Tensor]]", function)


# ---- headlens' place in `transformers`' attention interface: the calls of one model, routed to one handler


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
    """Tell whether a model sends its attention through `transformers`' interface."""
    return all(
        part._can_set_attn_implementation() for part in model.modules() if isinstance(part, PreTrainedModel)
    )


# ---- The textbook's attention in the place of a model's own function, where both compute the same


TRIED = 2  # queries at each end on which it is tried before it is relied on
LOUDER = 32.0  # and with logits so many times as large: a soft cap shows on large ones only
ACCURACY = 1e-5  # of the largest output and weight; rounding grows with the logits
UNDERSTOOD = {"scaling", "dropout"}  # in eval mode nothing is dropped


@dataclass(frozen=True, slots=True)
class PlainCall(AttentionCall):
    """A call that computes ``softmax(scaling Q K^T + mask) V``, with little memory.

    Models' own functions make a new tensor at each step and repeat keys and values for every query head that
    shares them, each time they are called: over many blocks that takes longer than the products. Here heads
    that share keys stand below one another as rows of one product, and the logits are changed in place.
    """

    @property
    def rows_per_query(self) -> int:
        """The query heads that share a key-value head."""
        return self.query.shape[1] // self.key.shape[1]

    def weigh(
        self, query: Tensor, key: Tensor, value: Tensor, mask: Tensor | None, options: dict[str, Any]
    ) -> tuple[Tensor, Tensor]:
        """See `AttentionCall.weigh`."""
        batch, n_heads, n_queries, width = query.shape
        n_groups, n_keys = key.shape[1:3]
        shape = (batch, n_groups, n_heads // n_groups, n_queries, n_keys)
        scaling = options.get("scaling")
        scaling = width**-0.5 if scaling is None else scaling
        rows = query.reshape(batch * n_groups, -1, width)  # [batch x kv head, head of it x query, width]
        logits = torch.bmm(rows, key.flatten(0, 1).transpose(1, 2)).view(shape)
        if mask is None:
            logits.mul_(scaling)
        else:
            torch.add(mask[:, :, None], logits, alpha=scaling, out=logits)
        pattern = torch.softmax(logits, dim=-1)
        output = torch.bmm(pattern.view(batch * n_groups, -1, n_keys), value.flatten(0, 1))
        output = output.view(batch, n_heads, n_queries, -1).transpose(1, 2)
        return output, pattern.view(batch, n_heads, n_queries, n_keys)


def plain_where_equal(call: AttentionCall) -> AttentionCall:
    """Take the textbook's attention for a call, where it is what the model's own function computes.

    That is tried out, not assumed: on the first and the last queries of this very call, and on the last once
    more with large logits. Where the function is given anything of which the textbook knows nothing (a soft
    cap, a bias), or rounds on the way because it works in less than float32, it is left in its place.
    """
    named = set(inspect.signature(_eager_of(call.module)).parameters)
    more = [name for name in call.options.keys() & named - UNDERSTOOD if call.options[name] is not None]
    several = isinstance(call.mask, Tensor) and call.mask.ndim == 4 and call.mask.shape[1] != 1
    if more or several or not _in_float32(call.query):
        return call
    plain = PlainCall(**{field.name: getattr(call, field.name) for field in fields(call)})
    n_queries = call.query.shape[2]
    last = max(0, n_queries - TRIED), n_queries
    louder = (replace(call, query=call.query * LOUDER), replace(plain, query=plain.query * LOUDER))
    same = (
        _apart(call, plain, 0, min(TRIED, n_queries)) < ACCURACY
        and _apart(call, plain, *last) < ACCURACY
        and _apart(*louder, *last) < LOUDER * ACCURACY
    )
    return plain if same else call


def _in_float32(query: Tensor) -> bool:
    """Whether all is computed in float32, and no gradient is asked for: changing in place would break it."""
    wanted = query.requires_grad or torch.is_autocast_enabled(query.device.type)
    return query.dtype == torch.float32 and not wanted


def _apart(own: AttentionCall, other: AttentionCall, start: int, stop: int) -> float:
    """How far apart two ways compute the outputs and patterns of some queries, over the largest of them."""
    pairs = zip(own.block(start, stop)[:2], other.block(start, stop)[:2], strict=True)
    return max(float((a - b).abs().max() / a.abs().max()) for a, b in pairs)
