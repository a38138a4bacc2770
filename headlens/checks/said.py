"""What a config says of each layer: how many heads it has, and how far it sees."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from transformers import PreTrainedConfig

from headlens.model.heads import Site
from headlens.model.lens import Lens


@dataclass(frozen=True, slots=True)
class Reach:
    """How far a layer sees.

    Args:
        kind: "full", "sliding" or "chunked".
        size: of the window, or of a chunk; 0 for "full".
    """

    kind: str
    size: int = 0


def config_of(lens: Lens, site: Site) -> Any:
    """Find the config that a layer goes by.

    Args:
        lens: the model.
        site: the layer.

    Returns:
        The config of its stack.
    """
    config: Any = lens.model.config
    if not config.is_encoder_decoder:
        return config.get_text_config()
    side = "encoder" if site.stack == "encoder" else "decoder"
    own = getattr(config, side, None)
    return own if isinstance(own, PreTrainedConfig) else config.get_text_config(**{side: True})


def counts(config: Any, site: Site, name: str) -> list[int]:
    """List how many heads a layer may have by its config.

    Args:
        config: of its stack.
        site: the layer.
        name: "num_attention_heads" or "num_key_value_heads".

    Returns:
        What the config says by this name, for this layer where it tells layers apart; and what it says by
        longer names of this kind (for sliding layers, say). Empty where it says nothing.
    """
    if getattr(config, "is_heterogeneous", False):
        config = config.per_layer_config[site.layer]
    said = [getattr(config, name, None)]
    said += [
        value
        for key, value in config.to_dict().items()
        if name.removeprefix("num_") in key and not key.startswith(("encoder_", "decoder_"))
    ]
    numbers = [_of_layer(value, site.layer) for value in said]
    return [] if numbers[0] is None else [number for number in numbers if number is not None]


def reach_of(config: Any, site: Site) -> Reach | None:
    """Tell how far a layer sees by its config.

    Args:
        config: of its stack.
        site: the layer.

    Returns:
        None where the config does not say it in words that are known here.
    """
    window, chunk = getattr(config, "sliding_window", None), getattr(config, "attention_chunk_size", None)
    kinds = getattr(config, "layer_types", None)
    if site.stack == "cross":
        return Reach("full")
    if kinds is not None:
        kind = kinds[site.layer] if site.layer < len(kinds) else ""
    else:  # then all layers are alike, as transformers makes their masks
        kind = "sliding_attention" if window else "chunked_attention" if chunk else "full_attention"
    sizes = {"full_attention": 0, "sliding_attention": window, "chunked_attention": chunk}
    size = sizes.get(kind)
    return None if size is None else Reach(kind.removesuffix("_attention"), size)


def _of_layer(value: Any, layer: int) -> int | None:
    if isinstance(value, list | tuple):
        value = value[layer] if layer < len(value) else None
    return value if isinstance(value, int) and not isinstance(value, bool) else None
