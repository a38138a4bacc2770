"""From a source to a model, its tokenizer and what its checkpoint lacks."""

from __future__ import annotations

import importlib.util
import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, cast

import torch
import transformers
from transformers import (
    AutoConfig,
    AutoModel,
    AutoModelForCausalLM,
    GenerationConfig,
    PreTrainedConfig,
    PreTrainedModel,
)

from headlens.compact import Compact, read_compact
from headlens.errors import ModelError, first_line
from headlens.fitting import check_pickled, check_shapes
from headlens.placing import DeviceMap, check_device_map, pick_device
from headlens.shortage import is_out_of_memory
from headlens.sources import Source as Source
from headlens.sources import find as find
from headlens.sources import pinned
from headlens.tokenizing import load_tokenizer
from headlens.unsafe import check_kernels, check_shards

DTYPES: Mapping[str, torch.dtype] = {
    name: getattr(torch, name) for name in ("float32", "bfloat16", "float16", "float64")
}


def read_config(source: Source) -> PreTrainedConfig:
    """Read a model's config, without its weights.

    Args:
        source: where from.

    Returns:
        The config.

    Raises:
        ModelError: it cannot be read, or its family is unknown to the installed `transformers`.
    """
    compact = read_compact(source.place)
    try:
        if compact is not None:
            config = compact.own_config()
        else:
            config = cast(PreTrainedConfig, AutoConfig.from_pretrained(source.place, **source.options))
    except Exception as error:  # transformers raises OSError, ValueError, KeyError, ... for a bad config
        raise ModelError(
            f"The config of {source.name!r} cannot be read: {first_line(error)}",
            "Read that code, and type --trust-remote-code to run it." if "custom code" in str(error) else "",
        ) from error
    check_kernels(config, source.name)
    return config


def model_class(config: PreTrainedConfig) -> type[Any]:
    """Find the class that a checkpoint names in its `architectures`.

    Args:
        config: the checkpoint's config.

    Returns:
        That class; `AutoModel`'s choice where the config names none that is known.
    """
    for name in config.architectures or ():
        kind = getattr(transformers, name, None)
        if isinstance(kind, type) and issubclass(kind, PreTrainedModel):
            return kind
    return AutoModel


@dataclass(frozen=True, slots=True)
class Loaded:
    """A model as loaded.

    Args:
        model: in eval mode, on its device.
        tokenizer: its tokenizer, None where the checkpoint brings none.
        source: where it came from.
        missing: names of weights that the checkpoint lacks and that were made up at random.
        unused: names of weights that the checkpoint holds and the model has no place for.
    """

    model: PreTrainedModel
    tokenizer: Any
    source: Source
    missing: tuple[str, ...] = ()
    unused: tuple[str, ...] = ()


def load_model(
    source: Source,
    dtype: str = "float32",
    device: str = "auto",
    device_map: DeviceMap | None = None,
    tokenizer: Any = None,
) -> Loaded:
    """Load a model with its tokenizer.

    Args:
        source: where from.
        dtype: "float32" (default, also for checkpoints stored in half precision), "bfloat16", ...
        device: "auto", "cpu", "cuda", "cuda:N" or "mps".
        device_map: spreads the model over devices instead, see `check_device_map`.
        tokenizer: to be taken instead of the checkpoint's own, which is then not read.

    Returns:
        The model in eval mode, its tokenizer, and which of its weights the checkpoint lacks.

    Raises:
        ModelError: it cannot be loaded; the message says why.
    """
    check_device_map(device_map, device)
    chosen = pick_device(device) if device_map is None else None
    options = {**source.options, "dtype": DTYPES[dtype], "output_loading_info": True}
    options["ignore_mismatched_sizes"] = True  # they are refused below, by name
    if device_map is not None:
        options["device_map"] = device_map
    kind: Any
    if source.place.endswith(".json"):
        raise ModelError(
            f"{source.name!r} is a config, which holds no weights.", "Give the model's directory."
        )
    if "gguf_file" in options:
        _need_gguf()
        kind = AutoModelForCausalLM  # a .gguf names no class; it holds a language model
    else:
        kind = model_class(read_config(source))
        options["use_safetensors"] = True  # a pickled checkpoint could run code
        check_shards(source)
        check_pickled(source, kind.__name__)
    compact = read_compact(source.place)
    if compact is not None and device_map is not None:
        raise ModelError(f"{source.name!r} is compact, and goes to one device.", "Leave --device-map out.")
    model, info = _from_files(kind, source, options, compact)
    if "gguf_file" in options:
        _forget_quantisation(model)
    check_shapes(info.get("mismatched_keys", ()), source.name)
    missing, unused = (tuple(sorted(info.get(f"{name}_keys", ()))) for name in ("missing", "unexpected"))
    model.eval()
    if chosen is not None:
        model.to(chosen)
    tokenizer = load_tokenizer(source) if tokenizer is None else tokenizer
    return Loaded(model, tokenizer, pinned(source), missing, unused)


def _from_files(
    kind: Any, source: Source, options: dict[str, Any], compact: Compact | None
) -> tuple[Any, dict[str, Any]]:
    """The model, and what `transformers` says of its weights."""
    try:
        if compact is not None:
            return _load_compact(compact, kind, source, options["dtype"]), {}
        model, info = kind.from_pretrained(source.place, **options)
    except Exception as error:  # transformers raises OSError, ValueError, RuntimeError, ... here
        if is_out_of_memory(error):
            raise ModelError(
                f"Memory does not suffice for {source.name!r}.", "Type --dtype bfloat16 or --device-map auto."
            ) from error
        raise ModelError(
            f"The weights of {source.name!r} cannot be loaded: {first_line(error)}",
            "headlens reads safetensors and GGUF, no pickled .bin files.",
        ) from error
    return model, info


def _forget_quantisation(model: Any) -> None:
    """What was read from a .gguf holds plain weights, but transformers would refuse to save it."""
    model.hf_quantizer = None
    for owner, name in (
        (model, "is_quantized"),
        (model, "quantization_method"),
        (model.config, "quantization_config"),
    ):
        if name in vars(owner):
            delattr(owner, name)


def _load_compact(compact: Compact, kind: Any, source: Source, dtype: torch.dtype) -> Any:
    config = compact.own_config()
    model = kind.from_config(config) if issubclass(kind, AutoModel) else kind._from_config(config)
    compact.load(model, Path(source.place))
    with_generation = Path(source.place) / "generation_config.json"
    if with_generation.is_file() and model.can_generate():
        model.generation_config = GenerationConfig.from_pretrained(source.place)
    return model.to(dtype)


def _need_gguf() -> None:
    absent = [name for name in ("gguf", "accelerate") if importlib.util.find_spec(name) is None]
    if absent:
        raise ModelError(
            f"Reading a .gguf file needs the package{'s' * (len(absent) > 1)} {' and '.join(absent)}.",
            "Type: pip install 'headlens[gguf]'",
        )


os.environ.setdefault("TOKENIZERS_PARALLELISM", "false")
