"""Puts a model under the lens, and refuses one whose weights are missing."""

from __future__ import annotations

from typing import Any

from transformers import PreTrainedModel

from headlens.errors import ModelError
from headlens.lens import Lens
from headlens.loading import find, load_model
from headlens.placing import DeviceMap, check_device_map


def load(
    model: str | PreTrainedModel,
    tokenizer: Any = None,
    *,
    device: str = "auto",
    device_map: DeviceMap | None = None,
    dtype: str = "float32",
    revision: str | None = None,
    trust_remote_code: bool = False,
    allow_random_weights: bool = False,
) -> Lens:
    """Put a model under the lens.

    Args:
        model: ``minilm``, a local directory, a .gguf file or a hub id; or a model of `transformers`.
        tokenizer: for a model that is given as such.
        device: "auto", "cpu", "cuda", "cuda:N" or "mps".
        device_map: for a model that is too large for one device: "auto" (or "balanced", "balanced_low_0",
            "sequential", or devices by the names of modules) spreads it over several, and over memory and
            disk where these do not suffice.
        dtype: "float32" by default, whatever the checkpoint is stored in.
        revision: branch, tag or commit on the hub.
        trust_remote_code: whether code that comes with a checkpoint may run.
        allow_random_weights: accept a checkpoint that lacks weights of the embeddings or blocks.

    Returns:
        The lens.

    Raises:
        ModelError: the model cannot be loaded, or lacks weights.
    """
    if isinstance(model, PreTrainedModel):
        return Lens(model, tokenizer)
    if not isinstance(model, str):
        raise ModelError(
            f"Expected a model of transformers or a name, found {type(model).__name__}.",
            "Give the transformers model itself: of a PEFT model, model.base_model.model.",
        )
    check_device_map(device_map, device)  # before a large model is fetched
    loaded = load_model(find(model, revision, trust_remote_code), dtype, device, device_map, tokenizer)
    lens = Lens(loaded.model, loaded.tokenizer, loaded.source, loaded.missing, loaded.unused)
    lacking = body_weights(lens)
    if lacking and not allow_random_weights:
        raise ModelError(
            f"The checkpoint {model!r} lacks {len(lacking)} weights of the model, such as {lacking[0]}; they "
            "would be random.",
            "Use a complete checkpoint, or --allow-random-weights to measure it all the same.",
        )
    return lens


def body_weights(lens: Lens) -> tuple[str, ...]:
    """List the missing weights that attention depends on: those of the embeddings and blocks.

    Args:
        lens: a loaded model.

    Returns:
        Names; a missing pooler or task head is not among them.
    """
    model = lens.model
    prefix = f"{model.base_model_prefix}." if model.base_model is not model else ""
    return tuple(name for name in lens.missing if name.startswith(prefix) and "pooler" not in name)
