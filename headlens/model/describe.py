"""A model's heads in words and numbers, from its config alone."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, cast

import torch
from torch import nn
from torch.nn.modules.module import register_module_parameter_registration_hook
from transformers import AutoModel, AutoModelForCausalLM, PreTrainedConfig, PreTrainedModel

from headlens.errors import ModelError, first_line
from headlens.model.anatomy import Anatomy, Part, examine
from headlens.model.heads import number_ranges
from headlens.model.load import Source, model_class, read_config
from headlens.model.source import Compact, read_compact

_COLUMNS = {
    "stack": "stack",
    "heads": "heads",
    "kv_heads": "kv heads",
    "head_width": "width",
    "causal": "causal",
    "weights_qkvo": "W_Q W_K W_V W_O",
    "weights_and_biases_qkvo": "with biases",
    "multiply_adds": "multiply-adds",
}


def sketch(source: Source) -> Anatomy:
    """Find the anatomy of a model from its config, without weights.

    Args:
        source: where the config is.

    Returns:
        The anatomy, found on the `meta` device where the family's code runs there.

    Raises:
        ModelError: the config cannot be read, or the model does not run.
    """
    config = read_config(source)
    if "gguf_file" in source.options and not config.architectures:
        kind = cast("type[PreTrainedModel]", AutoModelForCausalLM._model_mapping[type(config)])
        config.architectures = [kind.__name__]
    try:
        return examine_config(config, read_compact(source.place))
    except Exception as error:  # a family may refuse a config in any way
        problem = f"No model can be made from the config of {source.name!r}: {first_line(error)}"
        raise ModelError(problem, "Correct the config.") from error


def examine_config(config: PreTrainedConfig, compact: Compact | None = None) -> Anatomy:
    """Find the anatomy of the model that a config makes, without weights.

    Args:
        config: the config; its `architectures` name the class.
        compact: how a compact checkpoint differs from it.

    Returns:
        The anatomy.

    Raises:
        Exception: whatever the family's code raises for this config.
    """
    try:
        with torch.device("meta"):
            model = _without_weights(config)
            if compact is not None:
                compact.shrink(model)
        return examine(model)
    except Exception:  # a family's code may fail on meta tensors in any way: choosing experts, say
        return examine(_hollow(config, compact))


def _without_weights(config: PreTrainedConfig) -> PreTrainedModel:
    kind = model_class(config)
    if kind is AutoModel:
        return AutoModel.from_config(config)  # type: ignore[no-any-return, no-untyped-call]
    return kind._from_config(config)  # type: ignore[no-any-return]


def _hollow(config: PreTrainedConfig, compact: Compact | None) -> PreTrainedModel:
    """Build a model that runs on the CPU and takes no memory: every weight is one 0, seen many times."""
    with _parameters_on_meta():
        model = _without_weights(config)
        if compact is not None:
            compact.shrink(model)
    if model._can_set_experts_implementation():
        model.set_experts_implementation("eager")  # grouped products refuse weights without memory
    zero = torch.zeros(1, dtype=torch.float32)
    hollow = {p: nn.Parameter(zero.expand(p.shape), requires_grad=False) for p in model.parameters()}
    for module in model.modules():
        for name, parameter in module._parameters.items():
            if parameter is not None:
                module._parameters[name] = hollow[parameter]
    return model


@contextmanager
def _parameters_on_meta() -> Iterator[None]:
    """Have new modules keep parameters without memory, and buffers (masks, frequencies) as they are."""

    def to_meta(_: nn.Module, __: str, parameter: nn.Parameter | None) -> nn.Parameter | None:
        if parameter is None or parameter.is_meta:  # the latter is tied to one that is there already
            return parameter
        return nn.Parameter(parameter.to("meta"), parameter.requires_grad)

    handle = register_module_parameter_registration_hook(to_meta)  # type: ignore[arg-type]  # may return one
    try:
        yield
    finally:
        handle.remove()


def describe(anatomy: Anatomy, seq_len: int = 128) -> dict[str, Any]:
    """Put an anatomy into plain data.

    Args:
        anatomy: of the model.
        seq_len: length in tokens for the multiply-adds (of query and key alike).

    Returns:
        What `headlens describe --json` prints.
    """
    return {
        "architecture": anatomy.architecture,
        "model_type": anatomy.model_type,
        "parameters": anatomy.n_parameters,
        "heads": len(anatomy.heads),
        "captured_by": "attention interface" if anatomy.by_interface else "forward hooks",
        "sequence_length": seq_len,
        "attention_multiply_adds": sum(part.multiply_adds(seq_len, seq_len) for part in anatomy.parts),
        "layers": [_layer(part, seq_len) for part in anatomy.parts],
    }


def _layer(part: Part, seq_len: int) -> dict[str, Any]:
    site = part.site
    return {
        "stack": site.stack,
        "layer": site.layer,
        "module": site.module,
        "heads": site.n_heads,
        "kv_heads": site.n_kv_heads,
        "head_width": site.head_width,
        "causal": site.causal,
        "weights_qkvo": part.n_weights,
        "weights_and_biases_qkvo": part.n_weights + part.n_biases,
        "multiply_adds": part.multiply_adds(seq_len, seq_len),
    }


def table(anatomy: Anatomy, seq_len: int = 128) -> str:
    """Write an anatomy for a terminal: like layers share a line.

    Args:
        anatomy: of the model.
        seq_len: length in tokens for the multiply-adds.

    Returns:
        Lines of text.
    """
    facts = describe(anatomy, seq_len)
    groups: dict[tuple[Any, ...], list[int]] = {}
    for layer in sorted(facts["layers"], key=lambda layer: anatomy.stacks.index(layer["stack"])):
        groups.setdefault(tuple(layer[name] for name in _COLUMNS), []).append(layer["layer"])
    rows = [("stack", "layers", *list(_COLUMNS.values())[1:])]
    rows += [
        (same[0], number_ranges(sorted(layers)), *map(_cell, same[1:])) for same, layers in groups.items()
    ]
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    lines = [
        f"{facts['architecture']} ({facts['model_type']}): {facts['parameters']:,} parameters, "
        f"{facts['heads']} heads, captured by {facts['captured_by']}",
        "",
    ]
    for row in rows:
        words = [cell.ljust(width) for cell, width in zip(row[:2], widths[:2], strict=True)]
        numbers = [cell.rjust(width) for cell, width in zip(row[2:], widths[2:], strict=True)]
        lines.append("  ".join(words + numbers))
    lines += [
        "",
        f"Counts are per layer, multiply-adds for {seq_len} tokens; all layers together: "
        f"{facts['attention_multiply_adds']:,}. Layers and heads count from 0.",
    ]
    return "\n".join(lines)


def _cell(value: bool | int) -> str:
    return {True: "yes", False: "no"}[value] if isinstance(value, bool) else f"{value:,}"
