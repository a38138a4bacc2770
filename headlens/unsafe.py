"""Refuses checkpoints that name code, pickles or places outside themselves."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path, PurePosixPath
from typing import Any

from transformers.utils import SAFE_WEIGHTS_INDEX_NAME
from transformers.utils.hub import cached_file

from headlens.errors import ModelError
from headlens.sources import Source
from headlens.util.files import load_json

ENDING = ".safetensors"


def check_shards(source: Source) -> None:
    """Refuse an index of weights that names other files than safetensors in its own folder.

    Args:
        source: where the checkpoint is.

    Raises:
        ModelError: it names a pickled file, which could run code, or a file somewhere else.
    """
    options = {
        name: source.options[name] for name in ("revision", "local_files_only") if name in source.options
    }
    try:
        found = cached_file(
            source.place, SAFE_WEIGHTS_INDEX_NAME, **options, _raise_exceptions_for_missing_entries=False,
            _raise_exceptions_for_gated_repo=False, _raise_exceptions_for_connection_errors=False,
        )  # fmt: skip
        files = [] if found is None else load_json(Path(found))["weight_map"].values()
    except (OSError, ValueError, LookupError, TypeError, AttributeError):
        return  # what cannot be read is told when the weights are
    for file in files:
        name = str(file)
        if not name.endswith(ENDING) or PurePosixPath(name).name != name or "\\" in name:
            raise ModelError(
                f"{SAFE_WEIGHTS_INDEX_NAME} of {source.name!r} names {name!r}, where {ENDING} files beside "
                "it were expected.",
                "headlens reads no pickled files and none elsewhere: save the model with save_pretrained.",
            )


def check_kernels(config: Any, name: str) -> None:
    """Refuse a config that has `transformers` fetch code for the attention from the hub.

    Args:
        config: of the model.
        name: of the model, for the message.

    Raises:
        ModelError: it, or the config of a part, names such code.
    """
    for part in _parts(config):
        wanted = getattr(part, "_attn_implementation", None)
        if wanted is not None and "/" in str(wanted):
            raise ModelError(
                f"The config of {name!r} asks for the attention {str(wanted)!r}, which is code on the hub.",
                "Remove attn_implementation from its config.json.",
            )


def _parts(config: Any) -> Iterator[Any]:
    yield config
    for name in getattr(config, "sub_configs", None) or ():
        part = getattr(config, name, None)
        if part is not None:
            yield from _parts(part)
