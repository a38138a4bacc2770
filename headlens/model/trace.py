"""What a run of a few tokens tells: which attention calls there are, in which order, of which shapes."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor, nn
from transformers import PreTrainedModel

from headlens.errors import ModelError
from headlens.model.attention_call import AttentionCall, LazyMask, route, uses_interface
from headlens.model.devices import input_device

N_TOKENS = 4
REMEDIES = {
    "Inference tensors": "Make the model outside torch.inference_mode().",
    "meta tensor": "Its code reads weights that --device-map keeps on disk: give it a --device.",
}
"""What to do, by what a model says when it does not run."""
N_SOURCE = 5  # tokens of an encoder that feeds a decoder: other than N_TOKENS, so that cross-attention shows


@contextmanager
def dry(model: nn.Module) -> Iterator[None]:
    """Eval mode and a fresh graph for a dry run; afterwards the model is as it was."""
    training = [module for module in model.modules() if module.training]
    model.eval()
    try:
        with torch.inference_mode(False), torch.enable_grad():
            yield
    finally:
        for module in training:
            module.training = True


def run(
    model: PreTrainedModel,
    lengths: tuple[int, int] = (N_TOKENS, N_SOURCE),
    drawn: torch.Generator | None = None,
    **options: Any,
) -> Any:
    """Run a few tokens through a model.

    Args:
        model: the model.
        lengths: tokens of a plain model or of a decoder, and of an encoder that feeds a decoder.
        drawn: draws the tokens at random; by default they are the first of the vocabulary.
        **options: further arguments of its forward, whose outputs are returned.

    Raises:
        ModelError: it does not run on token ids.
    """
    config = model.config.get_text_config()
    device = input_device(model)
    n_tokens, n_source = lengths
    try:
        inputs = {
            "input_ids": token_ids(
                config, n_source if model.config.is_encoder_decoder else n_tokens, device, drawn
            )
        }
        if model.config.is_encoder_decoder:
            inputs["decoder_input_ids"] = token_ids(config, n_tokens, device, drawn)
        elif getattr(config, "add_cross_attention", False):  # a decoder that looks at another model's states
            states = torch.zeros(1, n_source, config.hidden_size, device=device, dtype=model.dtype)
            inputs["encoder_hidden_states"] = states
        return model(**inputs, **options)
    except (TypeError, ValueError, RuntimeError, LookupError, AttributeError) as error:
        known = next((why for why in REMEDIES if why in str(error)), "")
        raise ModelError(
            f"{type(model).__name__} does not run on a few token ids ({type(error).__name__}: {error}).",
            REMEDIES.get(known, "headlens serves text models of transformers."),
        ) from error


def token_ids(config: Any, length: int, device: torch.device, drawn: torch.Generator | None) -> Tensor:
    """Token ids that any model takes: small ones that are no padding, and the end-of-sequence id last."""
    end = getattr(config, "eos_token_id", None)
    end = end[0] if isinstance(end, list) else end
    free = [i for i in range(config.vocab_size) if i not in (getattr(config, "pad_token_id", None), end)]
    ids = (free * length)[: length - 1]
    if drawn is not None:
        ids = [free[i] for i in torch.randint(len(free), (length - 1,), generator=drawn).tolist()]
    return torch.tensor([[*ids, free[0] if end is None or end >= config.vocab_size else end]], device=device)


# ---- The dry run: a few tokens through a model, noting every attention call and the linear layers around it


@dataclass(slots=True)
class Call:
    """One attention call of the dry run: paths of modules, and sizes as in `headlens.model.heads.Site`."""

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
class _LinearCall:
    """One linear layer that ran: its path, its input and its output."""

    path: str
    input: Tensor
    output: Tensor


@dataclass(slots=True)
class Log:
    """The linear layers of one pass, in the order in which they ran."""

    linears: list[_LinearCall] = field(default_factory=list)


def trace(model: PreTrainedModel) -> Trace:
    """Run a few tokens through a model and note its attention calls."""

    if uses_interface(model):
        try:
            found = Trace(_trace_by_interface(model), by_interface=True)
        except ModelError:  # its own code may do something to the mask that a mask to be cannot take
            found = Trace(_trace_by_interface(model, dense=True), by_interface=True, dense=True)
        if found.calls:
            return found
    return Trace(_trace_by_hooks(model), by_interface=False)


def _trace_by_interface(model: PreTrainedModel, dense: bool = False) -> list[Call]:
    paths = {module: path for path, module in model.named_modules()}
    calls: list[Call] = []
    awaiting: list[Call] = []  # calls whose W_O has not run yet
    log = Log()

    def attend(call: AttentionCall) -> Tensor:
        noted = _note_call(call, paths[call.module], model)
        before = {call.output_layer for call in calls}  # where one module runs all layers, W_O of the last
        inside = [
            linear
            for linear in log.linears
            if linear.path.startswith(noted.module + ".") and linear.path not in before
        ]
        for role, tensor in (("query", call.query), ("key", call.key), ("value", call.value)):
            setattr(noted, f"{role}_layers", _makers(tensor, inside))
        log.linears.clear()
        calls.append(noted)
        awaiting.append(noted)
        batch, heads, n_queries, _ = call.query.shape
        return call.value.new_ones(batch, n_queries, heads, call.value.shape[-1])

    def after(linear: _LinearCall) -> None:
        for call in awaiting:  # the first linear layer after the attention function receives the heads
            near = linear.path.startswith(call.module.rpartition(".")[0])
            if near and linear.input.shape[-1] == call.n_heads * call.value_width:
                call.output_layer = linear.path
        awaiting.clear()

    with dry(model), logging(model, log, after), route(model, attend, dense):
        run(model)
    return calls


def _note_call(call: AttentionCall, path: str, model: PreTrainedModel) -> Call:
    _, n_heads, n_queries, key_width = call.query.shape
    n_keys = call.key.shape[2]
    causal = _is_causal(call) and n_keys == n_queries
    return Call(
        module=path,
        stack=_stack_of(model, n_queries, n_keys, causal),
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


def _stack_of(model: PreTrainedModel, n_queries: int, n_keys: int, causal: bool) -> str:
    """Name the stack of an attention call of the dry run, by its lengths."""
    if n_queries != n_keys:
        return "cross"
    if model.config.is_encoder_decoder:
        return "encoder" if n_queries == N_SOURCE else "decoder"
    return "decoder" if causal else "encoder"


def _makers(tensor: Tensor, linears: list[_LinearCall]) -> tuple[str, ...]:
    """Find the linear layers that a tensor was computed from."""
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
    """Write every linear layer that runs into a log while the block lasts."""

    def hook(path: str) -> Any:
        def note(_: nn.Module, arguments: tuple[Any, ...], output: Any) -> None:
            if arguments and isinstance(arguments[0], Tensor) and isinstance(output, Tensor):
                if not output.requires_grad:  # frozen weights: let the graph begin here
                    output.requires_grad_()
                log.linears.append(_LinearCall(path, arguments[0], output))
                if after is not None:
                    after(log.linears[-1])

        return note

    with ExitStack() as stack:
        for path, module in model.named_modules():
            if _is_linear(module):
                handle = module.register_forward_hook(hook(path))
                stack.callback(handle.remove)
        yield


def _is_linear(module: nn.Module) -> bool:
    """Tell whether a module has a matrix of weights, as `nn.Linear` and `Conv1D`, and is no embedding."""
    weight = getattr(module, "weight", None)
    return isinstance(weight, Tensor) and weight.ndim == 2 and not isinstance(module, nn.Embedding)


# ---- Finding the attention of a model that returns its patterns but does not use the attention interface


def _trace_by_hooks(model: PreTrainedModel) -> list[Call]:
    """Find the attention of a model that returns its patterns but does not use the interface."""
    with _traced(model) as (patterns, log):
        return [
            _note_hook(model, made.path, made.pattern, log.linears[: made.n_before + 1]) for made in patterns
        ]


@contextmanager
def patterns_of_a_run(model: PreTrainedModel) -> Iterator[tuple[list[Tensor], Log]]:
    """Run a few tokens through a model that returns patterns, and keep the graph while the block lasts.

    Yields the patterns [1, head, query, key], in the order of `trace`, and the layers that ran.
    """
    with _traced(model) as (patterns, log):
        yield [made.pattern for made in patterns], log


@dataclass(frozen=True, slots=True)
class _Made:
    """A tensor that may be a pattern, the innermost module that puts it out, and how many layers had run."""

    pattern: Tensor
    path: str
    n_before: int


@contextmanager
def _traced(model: PreTrainedModel) -> Iterator[tuple[list[_Made], Log]]:
    """The patterns that a run returns, as they were where they were made."""
    made: list[_Made] = []
    log = Log()

    def hook(path: str) -> Any:
        def note(_: nn.Module, __: Any, output: Any) -> None:
            for tensor in output if isinstance(output, tuple) else ():
                known = any(tensor is one.pattern for one in made)
                if isinstance(tensor, Tensor) and tensor.ndim == 4 and not known:
                    made.append(_Made(tensor, path, len(log.linears)))

        return note

    with ExitStack() as stack:
        stack.enter_context(dry(model))
        stack.enter_context(returning_patterns(model))
        stack.enter_context(logging(model, log))
        for path, module in model.named_modules():
            stack.callback(module.register_forward_hook(hook(path)).remove)
        outputs = run(model)
        found: list[_Made] = []
        for pattern in _patterns(outputs):
            origin = _origin(pattern, [one for one in made if not any(one is other for other in found)])
            if origin is not None:
                found.append(origin)
        yield found, log


def _origin(pattern: Tensor, made: list[_Made]) -> _Made | None:
    """Find a pattern where it was made: a model that is spread over devices returns copies of some."""
    same = next((one for one in made if one.pattern is pattern), None)
    if same is not None or pattern.device.type == "meta":
        return same
    alike = (one for one in made if one.pattern.shape == pattern.shape)
    return next((one for one in alike if torch.equal(one.pattern.to(pattern.device), pattern)), None)


def _patterns(outputs: Any) -> list[Tensor]:
    names = ("encoder_attentions", "decoder_attentions", "cross_attentions", "attentions")
    return [
        pattern
        for name in names
        for pattern in getattr(outputs, name, None) or ()
        if isinstance(pattern, Tensor) and pattern.ndim == 4
    ]


def _note_hook(model: PreTrainedModel, path: str, pattern: Tensor, linears: list[_LinearCall]) -> Call:
    _, n_heads, n_queries, n_keys = pattern.shape
    output = next((linear for linear in linears if _depends(linear.input, pattern)), None)
    if output is None:
        raise _unseen(model, path)
    leading = tuple(output.input.shape[:-1])
    if leading not in ((1, n_queries), (n_queries, 1)):
        raise _unseen(model, path)
    inside = [x for x in linears[: linears.index(output)] if x.path.startswith(path + ".")]
    inside = [x for x in inside if not x.path.rpartition(".")[2].startswith("pos_")]  # DeBERTa's positions
    of_pattern = _makers(pattern, inside)
    of_output = tuple(x.path for x in inside)
    fused = len(of_output) == 1
    width = output.input.shape[-1] // n_heads
    value = of_output if fused else tuple(x for x in of_output if x not in of_pattern)
    module_width = next((x.output.shape[-1] for x in inside if x.path in value), 0)
    query_width = next((x.output.shape[-1] for x in inside if x.path in of_pattern), 0)
    if (not fused and query_width != n_heads * width) or module_width < width:
        raise _unseen(model, path)
    if pattern.device.type == "meta":
        causal = bool(getattr(model.get_submodule(path), "is_causal", _is_generator(model)))
    else:
        causal = n_queries == n_keys and bool((pattern.triu(1) == 0).all())
    return Call(
        module=path,
        stack=_stack_of(model, n_queries, n_keys, causal),
        n_heads=n_heads,
        # a fused layer makes n_heads queries and as many keys as values; a plain one makes values alone
        n_kv_heads=(module_width // width - n_heads) // 2 if fused else module_width // width,
        key_width=width,
        value_width=width,
        causal=causal,
        n_queries=n_queries,
        n_keys=n_keys,
        query_layers=of_pattern[:1],
        key_layers=of_pattern[-1:],
        value_layers=value,
        output_layer=output.path,
        batch_first=leading == (1, n_queries),
    )


def _unseen(model: PreTrainedModel, path: str) -> ModelError:
    return ModelError(
        f"{type(model).__name__} shows its patterns, but how {path} joins its heads cannot be seen.",
        "headlens serves models whose heads stand side by side before one output layer.",
    )


def _depends(tensor: Tensor, source: Tensor) -> bool:
    if not tensor.requires_grad:
        return False
    return torch.autograd.grad(tensor.sum(), source, retain_graph=True, allow_unused=True)[0] is not None


def _is_generator(model: PreTrainedModel) -> bool:
    """Whether the family writes from left to right: its kin with a language head predicts the next token."""
    from transformers import MODEL_FOR_CAUSAL_LM_MAPPING, MODEL_FOR_MASKED_LM_MAPPING

    kind = type(model.config)
    return kind in MODEL_FOR_CAUSAL_LM_MAPPING and kind not in MODEL_FOR_MASKED_LM_MAPPING


@contextmanager
def returning_patterns(model: PreTrainedModel) -> Iterator[None]:
    """Have the model compute its patterns eagerly and return them while the block lasts."""
    config = model.config
    implementation, flag = config._attn_implementation_internal, config._output_attentions
    config._attn_implementation_internal, config._output_attentions = "eager", True
    try:
        yield
    finally:
        config._attn_implementation_internal, config._output_attentions = implementation, flag
