"""A model's heads in words and numbers, from its config alone."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch import nn
from torch.nn.modules.module import register_module_parameter_registration_hook
from transformers import AutoModel, AutoModelForCausalLM, PreTrainedConfig, PreTrainedModel

from headlens.anatomy import Anatomy, Part, examine
from headlens.loading import Source, model_class, read_config


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
        config.architectures = [AutoModelForCausalLM._model_mapping[type(config)].__name__]
    try:
        with torch.device("meta"):
            model = _without_weights(config)
        return examine(model)
    except Exception:  # a family's code may fail on meta tensors in any way: choosing experts, say
        return examine(_hollow(config))


def _without_weights(config: PreTrainedConfig) -> PreTrainedModel:
    kind = model_class(config)
    if kind is AutoModel:
        return AutoModel.from_config(config)  # type: ignore[no-any-return]  # untyped in transformers
    return kind._from_config(config)  # type: ignore[no-any-return]


def _hollow(config: PreTrainedConfig) -> PreTrainedModel:
    """Build a model that runs on the CPU and takes no memory: every weight is one 0, seen many times."""
    with _parameters_on_meta():
        model = _without_weights(config)
    if model._can_set_experts_implementation():
        model.set_experts_implementation("eager")  # grouped products refuse weights without memory
    zero = torch.zeros(1, dtype=torch.float32)
    for module in model.modules():
        for name, parameter in list(module._parameters.items()):
            if parameter is not None:
                hollow = zero.expand(parameter.shape)
                module._parameters[name] = nn.Parameter(hollow, requires_grad=False)
    return model


@contextmanager
def _parameters_on_meta() -> Iterator[None]:
    """Have new modules keep parameters without memory, and buffers (masks, frequencies) as they are."""

    def to_meta(_: nn.Module, __: str, parameter: nn.Parameter | None) -> nn.Parameter | None:
        return None if parameter is None else nn.Parameter(parameter.to("meta"), parameter.requires_grad)

    handle = register_module_parameter_registration_hook(to_meta)
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
    groups: list[tuple[list[int], dict[str, Any]]] = []
    for layer in facts["layers"]:
        same = {name: layer[name] for name in layer if name not in ("layer", "module")}
        if groups and groups[-1][1] == same:
            groups[-1][0].append(layer["layer"])
        else:
            groups.append(([layer["layer"]], same))
    head = f"{'stack':<8} {'layers':<8} {'heads':>5} {'kv heads':>8} {'width':>5} {'causal':>6} "
    head += f"{'W_Q W_K W_V W_O':>16} {'with biases':>12} {'multiply-adds':>15}"
    lines = [
        f"{facts['architecture']} ({facts['model_type']}): {facts['parameters']:,} parameters, "
        f"{facts['heads']} heads, captured by {facts['captured_by']}",
        "",
        head,
    ]
    for layers, x in groups:
        span = f"{layers[0]}-{layers[-1]}" if len(layers) > 1 else str(layers[0])
        lines.append(
            f"{x['stack']:<8} {span:<8} {x['heads']:>5} {x['kv_heads']:>8} {x['head_width']:>5} "
            f"{'yes' if x['causal'] else 'no':>6} {x['weights_qkvo']:>16,} "
            f"{x['weights_and_biases_qkvo']:>12,} {x['multiply_adds']:>15,}"
        )
    lines += [
        "",
        f"Counts are per layer, multiply-adds for {seq_len} tokens; all layers together: "
        f"{facts['attention_multiply_adds']:,}. Layers and heads count from 0.",
    ]
    return "\n".join(lines)
