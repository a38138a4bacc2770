"""The record of a run, `run.json`, and the directory that it describes."""

from __future__ import annotations

import json
import math
import platform
import shlex
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass, is_dataclass
from pathlib import Path
from typing import Any

import click
import numpy as np

from headlens.errors import RunError
from headlens.model.lens import Lens
from headlens.util import __version__
from headlens.util.files import FOLDERS, inner_folder, load_json, locked, with_checksums, write_text


@dataclass(slots=True)
class Clock:
    """Measures the wall time of a run from the moment it is made."""

    started: float

    @classmethod
    def start(cls) -> Clock:
        """Begin to measure."""
        return cls(time.perf_counter())

    @property
    def seconds(self) -> float:
        """Seconds since the start."""
        return round(time.perf_counter() - self.started, 3)


@contextmanager
def prepare(out: Path, command: str) -> Iterator[Path]:
    """Have a run directory to oneself, before any work is spent, until the block ends.

    Args:
        out: the directory.
        command: what will be written there.

    Yields:
        The same.

    Raises:
        RunError: it cannot be made or written, is a file, holds what another command wrote, has a link in the
            place of a folder, or another process writes there.
    """
    with locked(out):
        other = _command_of(out / "run.json")
        if other not in (None, command):
            raise RunError(f"{out} holds what headlens {other} wrote.", "Choose another --out.")
        for name in FOLDERS:
            inner_folder(out, name)
        yield out


def _command_of(path: Path) -> str | None:
    """The command that wrote a run.json; None where there is none to keep."""
    try:
        return str(load_json(path)["command"])
    except (OSError, ValueError, KeyError, TypeError):
        return None


def command_line() -> str:
    """Write the command that is running as it would be typed."""
    context = click.get_current_context(silent=True)
    typed = context.meta.get("headlens.typed") if context is not None else None
    return " ".join(map(shlex.quote, ["headlens", *(sys.argv[1:] if typed is None else typed)]))


def record(
    command: str, lens: Lens, options: Mapping[str, Any], facts: Mapping[str, Any], clock: Clock
) -> dict[str, Any]:
    """Put together what `run.json` holds.

    Args:
        command: "classify", "ablate", ...
        lens: the model that was measured.
        options: every option of the run, with its value.
        facts: what else is worth knowing: the corpus and its hash, what was left out and why, ...
        clock: started when the run began.

    Returns:
        Plain data.
    """
    anatomy, source = lens.anatomy, lens.source
    return {
        "headlens": __version__,
        "command": command,
        "arguments": command_line(),
        "model": {
            "name": source.name if source else type(lens.model).__name__,
            "revision": source.options.get("revision") if source else None,
            "weights_sha256": source.sha256() if source else {},
            "missing_weights": list(lens.missing),
            "architecture": anatomy.architecture,
            "parameters": anatomy.n_parameters,
            "heads": len(anatomy.heads),
            "captured_by": "attention interface" if anatomy.by_interface else "forward hooks",
            "dtype": str(lens.model.dtype).removeprefix("torch."),
            "device": str(lens.device),
            **_device_map(lens),
            "tokenizer": type(lens.tokenizer).__name__ if lens.tokenizer else None,
            "remote_code": bool(source and source.options.get("trust_remote_code")),
        },
        "options": plain(options),
        **plain(facts),
        "versions": _versions(),
        "wall_seconds": clock.seconds,
        "peak_memory_mb": _peak_megabytes(),
    }


def _device_map(lens: Lens) -> dict[str, Any]:
    """Where the parts of a model are that is spread over devices."""
    places = getattr(lens.model, "hf_device_map", None)
    return {} if places is None else {"device_map": {name: str(place) for name, place in places.items()}}


def record_without_model(command: str, facts: Mapping[str, Any]) -> dict[str, Any]:
    """Put together what `run.json` holds of work on results alone.

    Args:
        command: "compare" or "run".
        facts: what else is worth knowing: which runs, what a reader must know, ...

    Returns:
        Plain data.
    """
    return {
        "headlens": __version__,
        "command": command,
        "arguments": command_line(),
        **plain(facts),
        "versions": _versions(),
    }


def save(out: Path, run: Mapping[str, Any], tables: Sequence[str] = ()) -> None:
    """Write `run.json` into a run directory, last of all that it is about.

    Args:
        out: the directory.
        run: from `record`.
        tables: names of the tables that were written, whose checksums it keeps.

    Raises:
        RunError: it cannot be written.
    """
    try:
        run = with_checksums(run, out, tables)
    except OSError as error:
        raise RunError(f"{error.filename} is gone: {error.strerror}.", "Make the run again.") from error
    write_text(json.dumps(run, indent=2, ensure_ascii=False, allow_nan=False) + "\n", out / "run.json")


def _versions() -> dict[str, str]:
    import torch
    import transformers

    return {
        "python": platform.python_version(),
        "torch": torch.__version__,
        "transformers": transformers.__version__,
        "numpy": np.__version__,
        "platform": platform.platform(),
    }


def _peak_megabytes() -> float | None:
    try:
        import resource
    except ImportError:  # Windows does not tell
        return None
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return round(peak / (2**20 if sys.platform == "darwin" else 2**10), 1)


def plain(value: Any) -> Any:
    """Turn a value into what JSON can hold: paths become text, what is not finite becomes nothing."""
    if is_dataclass(value) and not isinstance(value, type):
        return plain(asdict(value))
    if isinstance(value, Mapping):
        return {str(key): plain(item) for key, item in value.items()}
    if isinstance(value, set | frozenset):
        return sorted(map(str, value))
    if isinstance(value, list | tuple):
        return [plain(item) for item in value]
    if isinstance(value, np.generic):
        return plain(value.item())
    if isinstance(value, float) and not math.isfinite(value):
        return None  # JSON has no such number
    return value if value is None or isinstance(value, bool | int | float | str) else str(value)
