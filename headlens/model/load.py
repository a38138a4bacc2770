"""Loads checkpoints: the class that they name, the devices they go to, every weight where it belongs."""

from __future__ import annotations

import importlib.util
import os
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

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

from headlens.errors import ModelError, first_line, is_out_of_memory
from headlens.model.source import Compact, check_kernels, check_shards, load_tokenizer, pinned, read_compact
from headlens.model.source import Source as Source
from headlens.model.source import find as find
from headlens.util.formatting import counted

if TYPE_CHECKING:
    pass


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


# ---- Where a model goes: one device, or several that `accelerate` spreads it over


DEVICE_MAPS = ("auto", "balanced", "balanced_low_0", "sequential")
DeviceMap = str | Mapping[str, int | str]


def pick_device(device: str) -> torch.device:
    """Choose where to run.

    Args:
        device: "auto" (a GPU where there is one), "cpu", "cuda", "cuda:N" or "mps".

    Returns:
        The device.

    Raises:
        ModelError: this machine has no such device.
    """
    if device == "auto":
        there = {"cuda": torch.cuda.is_available(), "mps": torch.backends.mps.is_available(), "cpu": True}
        device = next(name for name in there if there[name])
    try:
        chosen = torch.device(device)
        torch.empty(1, device=chosen)
    except (RuntimeError, AssertionError) as error:
        remedy = "Type --device cpu, or leave it out."
        raise ModelError(f"This machine has no device {device!r}.", remedy) from error
    return chosen


def check_device_map(device_map: DeviceMap | None, device: str = "auto") -> None:
    """Refuse a map that nobody can follow.

    Args:
        device_map: "auto", "balanced", "balanced_low_0" or "sequential", which `accelerate` follows: GPUs
            first, then the CPU, then disk; or devices by the names of modules; None for one device.
        device: what else was said about the device.

    Raises:
        ModelError: there is no such map, `accelerate` is not installed, or a device is chosen as well.
    """
    if device_map is None:
        return
    if device != "auto":
        raise ModelError("A device map places the model, and so does a device.", "Give one of the two.")
    if isinstance(device_map, str) and device_map not in DEVICE_MAPS:
        known = ", ".join(DEVICE_MAPS)
        raise ModelError(f"There is no device map {device_map!r}.", f"Choose one of: {known}.")
    if importlib.util.find_spec("accelerate") is None:
        raise ModelError(
            "Spreading a model over devices needs the package accelerate, which is not installed.",
            "Type: pip install 'headlens[accelerate]'",
        )


# ---- Whether the weights in a checkpoint's files are those that its config asks for


NUMBER = re.compile(r"(?<=\.)\d+(?=\.)")
PICKLED = "pytorch_model*.bin"  # what transformers can convert
ENTRIES: Mapping[str, str] = {
    r"\.(k|v|key|value)(_proj|_lin)?\.": "num_key_value_heads (or head_dim)",
    r"position": "max_position_embeddings",
    r"embed_tokens|word_embeddings|wte|shared|embed_in|embed_out|lm_head|predictions": "vocab_size",
    r"mlp|intermediate|ffn|feed_forward|fc[12]\b|\d\.output\.dense": "intermediate_size",
    r"attn|attention": "num_attention_heads, num_key_value_heads or head_dim",
}
"""What the names of all weights of a wrong shape have in common, and the entry of the config behind it."""

Misfit = tuple[str, Iterable[int], Iterable[int]]


def check_shapes(misfits: Iterable[Misfit], name: str) -> None:
    """Refuse weights of another shape than the config asks for.

    Args:
        misfits: of each such weight its name, its shape in the files, and its shape by the config.
        name: of the model, for the message.

    Raises:
        ModelError: there is one.
    """
    known = {weight: (list(there), list(wanted)) for weight, there, wanted in misfits}
    if not known:
        return
    first = in_order(known)[0]
    there, wanted = known[first]
    more = len(known) - 1
    entry = next((entry for pattern, entry in ENTRIES.items() if _all_have(pattern, known)), "the sizes")
    rest = f"; so it is with {counted(more, 'more weight')}" if more else ""
    raise ModelError(
        f"Weights and config of {name!r} do not fit: {first} is {there} in the files, and {wanted} by the "
        f"config{rest}.",
        f"Correct {entry} in its config.json, or take the checkpoint that belongs to it.",
    )


def check_pickled(source: Source, class_name: str) -> None:
    """Refuse a directory that holds pickled weights alone.

    Args:
        source: where the checkpoint is.
        class_name: of the model in `transformers`.

    Raises:
        ModelError: that is all there is; the message says how to convert them.
    """
    place = Path(source.place)
    if source.files or not place.is_dir():
        return
    pickled = sorted(path.name for path in place.glob(PICKLED))
    if pickled:
        raise ModelError(
            f"The weights of {source.name!r} are pickled ({pickled[0]}), and pickles can run code, so "
            "headlens loads none.",
            "Convert them where that may happen: "
            f"transformers.{class_name}.from_pretrained({source.place!r}).save_pretrained(NEW), and copy the "
            "tokenizer's files to NEW.",
        )


def surplus_weights(model: PreTrainedModel, unused: Sequence[str]) -> tuple[str, ...]:
    """List the unused weights that belong to numbered layers beyond those that the model has.

    Args:
        model: a loaded model.
        unused: names of weights that its checkpoint holds and it has no place for.

    Returns:
        Names, in order; those of other parts, a pooler or another task's head, are not among them.
    """
    prefix = f"{model.base_model_prefix}."
    used = {name.removeprefix(prefix) for name in model.state_dict()}
    kinds = {NUMBER.sub("#", name) for name in used}
    places = {name[: found.end()] for name in used for found in NUMBER.finditer(name)}
    config = model.config.get_text_config()
    last = getattr(config, "num_hidden_layers", 0) or 0
    ahead = getattr(config, "num_nextn_predict_layers", 0) or 0  # layers that guess further tokens at once

    def is_surplus(name: str) -> bool:
        new = [found for found in NUMBER.finditer(name) if name[: found.end()] not in places]
        if not new or NUMBER.sub("#", name) not in kinds:
            return False
        return not last <= int(new[0].group()) < last + ahead

    return tuple(name for name in in_order(unused) if is_surplus(name.removeprefix(prefix)))


def in_order(names: Iterable[str]) -> list[str]:
    """Sort names with numbers by their numbers: layer 2 before layer 10."""
    return sorted(names, key=_numbered)


def _numbered(name: str) -> list[Any]:
    return [(int(part), "") if part.isdigit() else (-1, part) for part in re.split(r"(\d+)", name)]


def _all_have(pattern: str, names: Iterable[str]) -> bool:
    return all(re.search(pattern, name) for name in names)
