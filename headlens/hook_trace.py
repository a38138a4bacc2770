"""Finding the attention of a model that returns its patterns but does not use the attention interface."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn
from transformers import PreTrainedModel

from headlens.dryrun import dry, run
from headlens.errors import ModelError
from headlens.probe import Call, Linear, Log, logging, makers, stack_of


def trace_by_hooks(model: PreTrainedModel) -> list[Call]:
    """Find the attention of a model that returns its patterns but does not use the interface.

    Args:
        model: any text model of `transformers`.

    Returns:
        Its attention calls in order; empty where the model returns no patterns.
    """
    with _traced(model) as (patterns, log):
        return [_note(model, made.path, made.pattern, log.linears[: made.n_before + 1]) for made in patterns]


@contextmanager
def patterns_of_a_run(model: PreTrainedModel) -> Iterator[tuple[list[Tensor], Log]]:
    """Run a few tokens through a model that returns its patterns, and keep the graph while the block lasts.

    Args:
        model: the model; afterwards it is as it was.

    Yields:
        The patterns [1, head, query, key] in the order of `trace_by_hooks`, and the linear layers that ran.
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


def _note(model: PreTrainedModel, path: str, pattern: Tensor, linears: list[Linear]) -> Call:
    _, n_heads, n_queries, n_keys = pattern.shape
    output = next((linear for linear in linears if _depends(linear.input, pattern)), None)
    if output is None:
        raise _unseen(model, path)
    leading = tuple(output.input.shape[:-1])
    if leading not in ((1, n_queries), (n_queries, 1)):
        raise _unseen(model, path)
    inside = [x for x in linears[: linears.index(output)] if x.path.startswith(path + ".")]
    inside = [x for x in inside if not x.path.rpartition(".")[2].startswith("pos_")]  # DeBERTa's positions
    of_pattern = makers(pattern, inside)
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
        stack=stack_of(model, n_queries, n_keys, causal),
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
    """Have the model compute its patterns eagerly and return them while the block lasts.

    Args:
        model: the model; its config says it for it, and is given back as it was.

    Yields:
        Nothing.
    """
    config = model.config
    implementation, flag = config._attn_implementation_internal, config._output_attentions
    config._attn_implementation_internal, config._output_attentions = "eager", True
    try:
        yield
    finally:
        config._attn_implementation_internal, config._output_attentions = implementation, flag
