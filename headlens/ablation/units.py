"""Finished work on disk, so that an interrupted sweep goes on where it stopped."""

from __future__ import annotations

import hashlib
import io
import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import nn

from headlens.benchmarks.metrics import Array
from headlens.errors import RunError
from headlens.model.devices import named_weights
from headlens.util.files import (
    file_name,
    inner_folder,
    load_json,
    open_regular,
    parse_json,
    remove,
    seal,
    unseal,
    write_bytes,
    write_text,
)


class Units:
    """The per-example values of finished conditions in a run directory: ``units/<condition>.npy``.

    Estimates of importance stand beside them as JSON. A line with a checksum ends each file: one that was
    changed, or is of another condition or key, is as none.

    Args:
        out: the run directory.
        key: what the values depend on; kept in ``units/key.json``.
        overwrite: throw away what was measured under another key.

    Raises:
        RunError: the directory holds conditions of another run.
    """

    def __init__(self, out: Path, key: Mapping[str, Any], overwrite: bool = False) -> None:
        self._folder = inner_folder(out, "units")
        path = self._folder / "key.json"
        text = json.dumps(key, indent=2, sort_keys=True, ensure_ascii=False) + "\n"
        self._about = hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()
        old = _read(path)
        if old is not None and old != json.loads(text):
            if not overwrite:
                why = _difference(old, json.loads(text)) if old else f"{path} cannot be read"
                raise RunError(
                    f"{out} holds another run: {why}.",
                    "Choose another --out, or type --overwrite to replace it.",
                )
            old = None
        if old is None:
            self._clear(path)
            write_text(text, path)

    def _clear(self, key: Path) -> None:
        remove([key])  # first: values without a key are never used
        remove([*self._folder.glob("*.npy"), *self._folder.glob("*.json")])

    def _path(self, name: str, ending: str) -> Path:
        return self._folder / f"{file_name(name)}{ending}"

    def load(self, name: str, n_examples: int) -> Array | None:
        """Get the values of a condition.

        Args:
            name: the condition.
            n_examples: how many examples it must have.

        Returns:
            [example, column]; None where it is not finished, or its file is damaged.
        """
        try:
            content = io.BytesIO(self._load(name, ".npy"))
            values: Array = np.lib.format.read_array(content, allow_pickle=False)
        except (OSError, ValueError):
            return None
        fits = values.ndim == 2 and len(values) == n_examples and values.dtype == np.float64
        return values if fits else None

    def save(self, name: str, values: Array) -> None:
        """Keep the values of a finished condition; the file appears whole or not at all.

        Args:
            name: the condition.
            values: [example, column].

        Raises:
            RunError: it cannot be written.
        """
        buffer = io.BytesIO()
        np.save(buffer, values, allow_pickle=False)
        self._save(buffer.getvalue(), name, ".npy")

    def load_facts(self, name: str) -> Any:
        """Get what was kept by `save_facts`.

        Args:
            name: of the unit.

        Returns:
            Plain data; None where it is not finished, or its file is damaged.
        """
        try:
            return parse_json(self._load(name, ".json").decode())
        except (OSError, ValueError):
            return None

    def save_facts(self, name: str, facts: Any) -> None:
        """Keep plain data; numbers come back to the last bit.

        Args:
            name: of the unit.
            facts: dictionaries, lists, numbers and texts.

        Raises:
            RunError: it cannot be written.
        """
        self._save(json.dumps(facts).encode(), name, ".json")

    def _load(self, name: str, ending: str) -> bytes:
        with open_regular(self._path(name, ending)) as file:
            return unseal(file.read(), f"{self._about} {name}{ending}")

    def _save(self, content: bytes, name: str, ending: str) -> None:
        write_bytes(seal(content, f"{self._about} {name}{ending}"), self._path(name, ending))


def fingerprint(model: nn.Module, unread: Sequence[str] = ()) -> str:
    """Hash a model's weights as they are in memory.

    Args:
        model: the model.
        unread: names of weights that are left out, such as a random pooler that nobody reads.

    Returns:
        Hex digest over names, types, shapes and bytes of its parameters and buffers.
    """
    digest = hashlib.sha256()
    for name, tensor in named_weights(model):
        if name in unread:
            continue
        digest.update(f"{name} {tensor.dtype} {tuple(tensor.shape)}".encode())
        flat = tensor.detach().cpu().contiguous().reshape(-1)
        digest.update(flat.view(torch.uint8).numpy().data)
    return digest.hexdigest()


def _read(path: Path) -> dict[str, Any] | None:
    try:
        found = load_json(path)
    except FileNotFoundError:
        return None
    except (OSError, ValueError):
        return {}
    return found if isinstance(found, dict) else {}


def _difference(old: Mapping[str, Any], new: Mapping[str, Any]) -> str:
    """Tell the first thing in which two keys differ."""
    names = [name for name in {**new, **old} if old.get(name) != new.get(name)]
    name = names[0]
    return f"its {name.replace('_', ' ')} is {_short(old.get(name))}, and now it is {_short(new.get(name))}"


def _short(value: Any) -> str:
    if value is None:
        return "not given"
    plain = isinstance(value, list) and all(isinstance(item, str) for item in value)
    text = (", ".join(value) or "not given") if plain else json.dumps(value, ensure_ascii=False)
    return text if len(text) <= 40 else f"{text[:37]}..."
