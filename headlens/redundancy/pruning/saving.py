"""Writes a pruned model as a checkpoint, with everything that went along with the model."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import torch

from headlens.errors import HeadlensError, RunError
from headlens.lens import Lens
from headlens.loading import Source, read_config
from headlens.redundancy.pruning.card import card
from headlens.redundancy.pruning.forms import Pruned
from headlens.tables import write_text

SMALL = 2**20  # bytes: files that go along as they are; larger ones are weights in another format
WEIGHTS = (".bin", ".safetensors", ".gguf", ".pt", ".pth", ".onnx", ".h5", ".msgpack", ".ot", ".ckpt")


def check_place(out: Path, lens: Lens | None = None) -> None:
    """Refuse a directory that holds something else than an earlier result of pruning, or the model itself.

    Args:
        out: the directory.
        lens: the model that is pruned, where it is known yet.

    Raises:
        RunError: it holds other files, or the model's own.
    """
    if out.is_dir() and any(out.iterdir()) and not (out / "run.json").is_file():
        raise RunError(f"{out} is not empty, and no pruned model of headlens.", "Choose another --out.")
    if lens is not None and lens.source is not None and Path(lens.source.place).resolve() == out.resolve():
        raise RunError(f"{out} is the model that is pruned.", "Choose another --out.")


def remove_weights(out: Path) -> None:
    """Remove the weights of a checkpoint.

    Args:
        out: its directory.
    """
    for pattern in ("*.safetensors", "*.safetensors.index.json"):
        for path in out.glob(pattern):
            path.unlink()


def save(lens: Lens, pruned: Pruned, out: Path) -> None:
    """Write the checkpoint: safetensors, config, generation config, tokenizer, a model card, and small files.

    Weights are stored in the type of the checkpoint that was pruned.

    Args:
        lens: the model before.
        pruned: the model after; its weights take the type in which they are stored.
        out: directory, which exists.

    Raises:
        RunError: it cannot be written.
    """
    model = pruned.model
    model.to(_stored_dtype(lens))  # type: ignore[arg-type]  # to() is wrapped
    try:
        remove_weights(out)  # an earlier result may have had other files
        _copy_small_files(lens.source, out)
        if pruned.compact is None:
            model.save_pretrained(out)
        else:
            pruned.compact.save(model, out)
            if model.can_generate() and model.generation_config is not None:
                model.generation_config.save_pretrained(out)
        if lens.tokenizer is not None:
            lens.tokenizer.save_pretrained(out)
    except OSError as error:
        raise RunError(f"{out} cannot be written: {error.strerror}.", "Choose another --out.") from error
    write_text(card(lens, pruned, _old_card(lens.source)), out / "README.md")


def _stored_dtype(lens: Lens) -> torch.dtype:
    """The type of the checkpoint's own weights; of a model without one, that of the model."""
    if lens.source is None or "gguf_file" in lens.source.options:
        return lens.model.dtype
    try:
        stored: Any = read_config(lens.source).dtype
    except HeadlensError:
        stored = None
    return stored if isinstance(stored, torch.dtype) else lens.model.dtype


def _copy_small_files(source: Source | None, out: Path) -> None:
    """What stands beside the weights: pooling settings of sentence encoders, vocabularies, a licence."""
    place = Path(source.place) if source is not None and "gguf_file" not in source.options else None
    if place is None or not place.is_dir():
        return
    for path in sorted([*place.glob("*"), *place.glob("*/*")]):
        if not path.is_file() or path.name.startswith(".") or path.stat().st_size > SMALL:
            continue
        if (
            path.suffix in WEIGHTS
            or path.name.endswith(".index.json")
            or path.name in ("README.md", "run.json")
        ):
            continue
        target = out / path.relative_to(place)
        target.parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(path, target)


def _old_card(source: Source | None) -> str:
    path = Path(source.place) / "README.md" if source is not None else None
    try:
        return path.read_text("utf-8") if path is not None else ""
    except (OSError, UnicodeDecodeError):
        return ""
