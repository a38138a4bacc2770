"""The anatomy of a model: its stacks, layers and heads, and what a config alone says of them."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, cast

import torch
from torch import nn
from torch.nn.modules.module import register_module_parameter_registration_hook
from transformers import AutoModel, AutoModelForCausalLM, PreTrainedConfig, PreTrainedModel

from headlens.errors import ModelError, first_line
from headlens.model.heads import Head, Site, head_name, number_ranges, select
from headlens.model.load import Source, model_class, read_config
from headlens.model.source import Compact, read_compact
from headlens.model.trace import N_SOURCE, N_TOKENS, Call, Trace, trace


@dataclass(frozen=True, slots=True)
class _Projections:
    """Where the weights of one site live.

    Args:
        query: paths of the linear layers that query is made by (a fused layer stands in all three).
        key: the same for key.
        value: the same for value.
        output: path of W_O, the layer that receives the concatenated heads; empty where there is none.
    """

    query: tuple[str, ...]
    key: tuple[str, ...]
    value: tuple[str, ...]
    output: str

    @property
    def paths(self) -> tuple[str, ...]:
        """Every layer once."""
        return tuple(dict.fromkeys((*self.query, *self.key, *self.value, *filter(None, [self.output]))))


@dataclass(frozen=True, slots=True)
class Part:
    """One site with its weights.

    Args:
        site: where.
        projections: the linear layers of W_Q, W_K, W_V and W_O.
        key_width: width of one head's query and key (`site.head_width` is that of its value).
        n_weights: entries of W_Q, W_K, W_V and W_O together.
        n_biases: entries of their biases.
        batch_first: whether W_O reads [batch, query, ..]; else [query, batch, ..].
    """

    site: Site
    projections: _Projections
    key_width: int
    n_weights: int
    n_biases: int
    batch_first: bool = True

    def multiply_adds(self, n_queries: int, n_keys: int) -> int:
        """Count the multiply-adds of this site's attention for one input.

        Args:
            n_queries: number of query positions.
            n_keys: number of key positions; a causal mask saves nothing in this count.

        Returns:
            Those of the four projections, of the query-key products and of the weighted sums of values.
        """
        per_pair = self.site.n_heads * (self.key_width + self.site.head_width)
        return self.n_weights * n_queries + per_pair * n_queries * n_keys


@dataclass(frozen=True, slots=True)
class Anatomy:
    """The attention sites of a model, in the order in which they run.

    Args:
        architecture: the model's class.
        model_type: the family, as its config names it.
        parts: the sites with their weights.
        n_parameters: parameters of the whole model.
        by_interface: whether attention goes through `transformers`' interface (else: forward hooks).
        dense_masks: whether the model's own code works on its mask, so that whole masks must be made.
    """

    architecture: str
    model_type: str
    parts: tuple[Part, ...]
    n_parameters: int
    by_interface: bool
    dense_masks: bool = False

    @property
    def sites(self) -> tuple[Site, ...]:
        """The sites, in the order in which they run."""
        return tuple(part.site for part in self.parts)

    @property
    def heads(self) -> tuple[Head, ...]:
        """All heads, in model order."""
        return tuple(head for site in self.sites for head in site.heads)

    @property
    def stacks(self) -> tuple[str, ...]:
        """The stacks that the model has, in the order in which they run."""
        return tuple(dict.fromkeys(site.stack for site in self.sites))

    def select(self, selector: str | Head | Sequence[Head]) -> tuple[Head, ...]:
        """Find the heads that a selector such as ``2.8,3.*`` names; see `headlens.model.heads.select`."""
        return select(selector, self.sites)

    def name(self, head: Head) -> str:
        """Write a head as users do: ``4.11``, or ``cross.4.11`` where the model has several stacks."""
        return head_name(head, self.sites)


def examine(model: PreTrainedModel) -> Anatomy:
    """Find a model's attention sites and their weights by a dry run of a few tokens.

    Args:
        model: any text model of `transformers`, on any device, `meta` included.

    Returns:
        Its anatomy.

    Raises:
        ModelError: neither way of capture can serve the model.
    """
    found = trace(model)
    _check(model, found.calls)
    stacks = [call.stack for call in found.calls]
    layers = _layers([call.module for call in found.calls], stacks)
    parts = [_part(model, found, index, layers[index]) for index in range(len(found.calls))]
    return Anatomy(
        architecture=type(model).__name__,
        model_type=str(model.config.model_type),
        parts=tuple(parts),
        n_parameters=sum(parameter.numel() for parameter in model.parameters()),
        by_interface=found.by_interface,
        dense_masks=found.dense,
    )


def _part(model: PreTrainedModel, found: Trace, index: int, layer: int) -> Part:
    call = found.calls[index]
    site = Site(
        index=index,
        stack=call.stack,
        layer=layer,
        module=call.module,
        n_heads=call.n_heads,
        n_kv_heads=call.n_kv_heads,
        head_width=call.value_width,
        causal=call.causal,
    )
    projections = _Projections(call.query_layers, call.key_layers, call.value_layers, call.output_layer)
    modules = [model.get_submodule(path) for path in projections.paths]
    return Part(
        site=site,
        projections=projections,
        key_width=call.key_width,
        n_weights=sum(_numel(module, "weight") for module in modules),
        n_biases=sum(_numel(module, "bias") for module in modules),
        batch_first=call.batch_first,
    )


def _numel(module: nn.Module, name: str) -> int:
    tensor = getattr(module, name, None)
    return int(tensor.numel()) if isinstance(tensor, torch.Tensor) else 0


def _layers(modules: Sequence[str], stacks: Sequence[str]) -> list[int]:
    """The model's own layer numbers: the first number in each module's path.

    A stack whose sites do not all have numbers of their own (ALBERT runs one module for all layers) is
    numbered in the order in which it runs.
    """
    numbers = [re.search(r"(?:^|\.)(\d+)(?:\.|$)", path) for path in modules]
    result = [-1] * len(modules)
    for stack in dict.fromkeys(stacks):
        mine = [index for index, name in enumerate(stacks) if name == stack]
        own = [int(found[1]) for index in mine if (found := numbers[index]) is not None]
        if len(set(own)) != len(mine):
            own = list(range(len(mine)))
        for index, layer in zip(mine, own, strict=True):
            result[index] = layer
    return result


# ---- What a dry run must have seen to be believed: a model that would be half measured is refused by name


SERVED = "headlens serves models in which every layer attends once, over all tokens, by heads side by side."


def _check(model: PreTrainedModel, calls: Sequence[Call]) -> None:
    """Refuse a model whose attention is not what headlens can measure."""
    kind = type(model).__name__
    if not calls:
        raise ModelError(
            f"{kind} ran, but none of its layers could be seen to compute attention.",
            "headlens serves models whose attention passes through transformers' AttentionInterface or that "
            "return their patterns with output_attentions=True.",
        )
    _check_lengths(model, kind, calls)
    if model.config.is_encoder_decoder:
        missing = {"encoder", "decoder", "cross"} - {call.stack for call in calls}
        if missing:
            raise ModelError(
                f"The attention of {kind}'s {' and '.join(sorted(missing))} cannot be seen.", SERVED
            )
    _check_layers(model, kind, calls)


def _check_lengths(model: PreTrainedModel, kind: str, calls: Sequence[Call]) -> None:
    lengths = {(N_TOKENS, N_TOKENS)}
    if model.config.is_encoder_decoder:
        lengths |= {(N_SOURCE, N_SOURCE), (N_TOKENS, N_SOURCE)}
    elif getattr(model.config.get_text_config(), "add_cross_attention", False):
        lengths |= {(N_TOKENS, N_SOURCE)}
    for call in calls:
        if (call.n_queries, call.n_keys) not in lengths:
            raise ModelError(
                f"{kind} attends in {call.module} with {call.n_queries} queries over {call.n_keys} keys, "
                f"given {N_TOKENS} tokens.",
                SERVED,
            )


def _check_layers(model: PreTrainedModel, kind: str, calls: Sequence[Call]) -> None:
    """A module that is called again must be the next layer of a model with shared layers (ALBERT)."""
    n_layers = getattr(model.config.get_text_config(), "num_hidden_layers", None)
    for stack in {call.stack for call in calls}:
        mine = Counter(call.module for call in calls if call.stack == stack)
        if max(mine.values()) > 1 and mine.total() != n_layers:
            raise ModelError(
                f"{kind} attends {mine.total()} times in {n_layers} layers, more than once in some.", SERVED
            )


# ---- A model's heads in words and numbers, from its config alone


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
