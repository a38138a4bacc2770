"""The dry run: a few tokens through a model, noting every attention call and the linear layers around it."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor, nn
from transformers import PreTrainedModel

from headlens.call import AttentionCall
from headlens.dryrun import N_SOURCE, dry, run
from headlens.errors import ModelError
from headlens.interface import route, uses_interface
from headlens.masks import LazyMask


@dataclass(slots=True)
class Call:
    """One attention call of the dry run: paths of modules, and sizes as in `headlens.heads.Site`."""

    module: str
    stack: str
    n_heads: int
    n_kv_heads: int
    key_width: int
    value_width: int
    causal: bool
    n_queries: int
    n_keys: int
    query_layers: tuple[str, ...] = ()
    key_layers: tuple[str, ...] = ()
    value_layers: tuple[str, ...] = ()
    output_layer: str = ""
    batch_first: bool = True


@dataclass(frozen=True, slots=True)
class Trace:
    """What the dry run saw.

    Args:
        calls: the attention calls, in order.
        by_interface: whether they came through the interface.
        dense: whether the model's own code works on the mask, so that whole masks must be made.
    """

    calls: list[Call]
    by_interface: bool
    dense: bool = False


@dataclass(slots=True)
class Linear:
    """One linear layer that ran: its path, its input and its output."""

    path: str
    input: Tensor
    output: Tensor


@dataclass(slots=True)
class Log:
    """The linear layers of one pass, in the order in which they ran."""

    linears: list[Linear] = field(default_factory=list)


def trace(model: PreTrainedModel) -> Trace:
    """Run a few tokens through a model and note its attention calls.

    Args:
        model: any text model of `transformers`; on the `meta` device only shapes are computed.

    Returns:
        The calls, in order.

    Raises:
        ModelError: the model does not run on a few tokens.
    """
    from headlens.hook_trace import trace_by_hooks

    if uses_interface(model):
        try:
            found = Trace(_trace_by_interface(model), by_interface=True)
        except ModelError:  # its own code may do something to the mask that a mask to be cannot take
            found = Trace(_trace_by_interface(model, dense=True), by_interface=True, dense=True)
        if found.calls:
            return found
    return Trace(trace_by_hooks(model), by_interface=False)


def _trace_by_interface(model: PreTrainedModel, dense: bool = False) -> list[Call]:
    paths = {module: path for path, module in model.named_modules()}
    calls: list[Call] = []
    awaiting: list[Call] = []  # calls whose W_O has not run yet
    log = Log()

    def attend(call: AttentionCall) -> Tensor:
        noted = _note(call, paths[call.module], model)
        before = {call.output_layer for call in calls}  # where one module runs all layers, W_O of the last
        inside = [
            linear
            for linear in log.linears
            if linear.path.startswith(noted.module + ".") and linear.path not in before
        ]
        for role, tensor in (("query", call.query), ("key", call.key), ("value", call.value)):
            setattr(noted, f"{role}_layers", makers(tensor, inside))
        log.linears.clear()
        calls.append(noted)
        awaiting.append(noted)
        batch, heads, n_queries, _ = call.query.shape
        return call.value.new_ones(batch, n_queries, heads, call.value.shape[-1])

    def after(linear: Linear) -> None:
        for call in awaiting:  # the first linear layer after the attention function receives the heads
            near = linear.path.startswith(call.module.rpartition(".")[0])
            if near and linear.input.shape[-1] == call.n_heads * call.value_width:
                call.output_layer = linear.path
        awaiting.clear()

    with dry(model), logging(model, log, after), route(model, attend, dense):
        run(model)
    return calls


def _note(call: AttentionCall, path: str, model: PreTrainedModel) -> Call:
    _, n_heads, n_queries, key_width = call.query.shape
    n_keys = call.key.shape[2]
    causal = _is_causal(call) and n_keys == n_queries
    return Call(
        module=path,
        stack=stack_of(model, n_queries, n_keys, causal),
        n_heads=n_heads,
        n_kv_heads=call.key.shape[1],
        key_width=key_width,
        value_width=call.value.shape[-1],
        causal=causal,
        n_queries=n_queries,
        n_keys=n_keys,
    )


def _is_causal(call: AttentionCall) -> bool:
    if isinstance(call.mask, LazyMask):
        return call.mask.causal
    if call.mask is None or call.mask.device.type == "meta" or call.mask.shape[-2] < 2:
        return bool(getattr(call.module, "is_causal", False))
    first = call.mask[0, 0, 0]  # what the first query may see, [key]
    return not bool(first[-1]) if first.dtype == torch.bool else bool(first[-1] < first[0])


def stack_of(model: PreTrainedModel, n_queries: int, n_keys: int, causal: bool) -> str:
    """Name the stack of an attention call of the dry run, by its lengths.

    Args:
        model: the model.
        n_queries: queries of the call.
        n_keys: keys of the call.
        causal: whether a query sees only keys at or before itself.

    Returns:
        "encoder", "decoder" or "cross".
    """
    if n_queries != n_keys:
        return "cross"
    if model.config.is_encoder_decoder:
        return "encoder" if n_queries == N_SOURCE else "decoder"
    return "decoder" if causal else "encoder"


def makers(tensor: Tensor, linears: list[Linear]) -> tuple[str, ...]:
    """Find the linear layers that a tensor was computed from.

    Args:
        tensor: for instance the query that reached the attention function.
        linears: the layers that ran before, with outputs that are part of the same graph.

    Returns:
        Paths of those on whose output the tensor depends, in the order in which they ran.
    """
    if not linears or not tensor.requires_grad:
        return ()
    gradients = torch.autograd.grad(
        tensor.sum(), [linear.output for linear in linears], retain_graph=True, allow_unused=True
    )
    return tuple(
        linear.path for linear, gradient in zip(linears, gradients, strict=True) if gradient is not None
    )


@contextmanager
def logging(model: nn.Module, log: Log, after: Any = None) -> Iterator[None]:
    """Write every linear layer that runs into a log while the block lasts.

    Args:
        model: the model.
        log: where to write.
        after: called with each `Linear` when it has run.
    """

    def hook(path: str) -> Any:
        def note(_: nn.Module, arguments: tuple[Any, ...], output: Any) -> None:
            if arguments and isinstance(arguments[0], Tensor) and isinstance(output, Tensor):
                if not output.requires_grad:  # frozen weights: let the graph begin here
                    output.requires_grad_()
                log.linears.append(Linear(path, arguments[0], output))
                if after is not None:
                    after(log.linears[-1])

        return note

    with ExitStack() as stack:
        for path, module in model.named_modules():
            if is_linear(module):
                handle = module.register_forward_hook(hook(path))
                stack.callback(handle.remove)
        yield


def is_linear(module: nn.Module) -> bool:
    """Tell whether a module has a matrix of weights, as `nn.Linear` and `Conv1D`, and is no embedding."""
    weight = getattr(module, "weight", None)
    return isinstance(weight, Tensor) and weight.ndim == 2 and not isinstance(module, nn.Embedding)
