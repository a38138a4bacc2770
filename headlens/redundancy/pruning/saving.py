"""Writes a pruned model as a checkpoint, with everything that went along with the model."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from safetensors import SafetensorError

from headlens.errors import RunError
from headlens.model.lens import Lens
from headlens.model.load import Source
from headlens.redundancy.pruning.card import card
from headlens.redundancy.pruning.forms import Pruned
from headlens.redundancy.pruning.stored import stored_dtype
from headlens.util.files import HOLDER, LOCK, inner_folder, is_there, load_json, write_text

SMALL = 2**20  # bytes: files that go along as they are; larger ones are weights in another format
CONFIG = "config.json"
STAGE = ".headlens-stage"  # folder of a checkpoint that is not whole yet
WEIGHTS = (".bin", ".safetensors", ".gguf", ".pt", ".pth", ".onnx", ".h5", ".msgpack", ".ot", ".ckpt")


def check_place(out: Path, lens: Lens | None = None) -> None:
    """Refuse a directory that holds something else than an earlier result of pruning, or the model itself.

    Args:
        out: the directory.
        lens: the model that is pruned, where it is known yet.

    Raises:
        RunError: it holds other files, or the model's own.
    """
    try:
        there = {path.name for path in out.iterdir()}
    except FileNotFoundError:
        there = set()
    except OSError as error:  # a file, a loop of links, a name that is too long
        raise _unwritable(out, error) from error
    ours = is_there(out / "run.json") or there & {STAGE, HOLDER}  # or a prune that was killed
    if there - {LOCK} and not ours:
        raise RunError(f"{out} is not empty, and no pruned model of headlens.", "Choose another --out.")
    if lens is not None and lens.source is not None and Path(lens.source.place).resolve() == out.resolve():
        raise RunError(f"{out} is the model that is pruned.", "Choose another --out.")


@contextmanager
def staged(out: Path) -> Iterator[Path]:
    """Write a checkpoint into a folder of its place, and move it up when it is whole and right.

    Args:
        out: where it shall be; nobody else writes there.

    Yields:
        A new directory; on an exception it goes, and `out` is as it was.

    Raises:
        RunError: it cannot be written, or a folder in it is a link.
    """
    place = out / STAGE
    try:
        _remove(place)  # what a killed process left
        place.mkdir(0o700, parents=True)
    except OSError as error:
        raise _unwritable(out, error) from error
    try:
        yield place
        try:
            _move(place, out)
        except OSError as error:
            raise _unwritable(out, error) from error
    finally:
        with suppress(OSError):
            _remove(place)


def _remove(place: Path) -> None:
    if place.is_symlink():
        place.unlink()
    elif place.exists():
        shutil.rmtree(place)


def _move(place: Path, out: Path) -> None:
    """Move a checkpoint up; without its config, which comes last, nothing can be loaded."""
    for folder in [path for path in place.rglob("*") if path.is_dir()]:
        inner_folder(out, str(folder.relative_to(place)))
    for old in [out / CONFIG, *out.glob("*.safetensors"), *out.glob("*.safetensors.index.json")]:
        old.unlink(missing_ok=True)  # of an earlier result, which may have had other files
    files = [path for path in place.rglob("*") if path.is_file()]
    for path in sorted(files, key=lambda path: (path == place / CONFIG, path)):
        target = out / path.relative_to(place)
        target.parent.mkdir(parents=True, exist_ok=True)
        path.replace(target)


def _unwritable(out: Path, error: OSError | UnicodeError | SafetensorError) -> RunError:
    why = error.strerror if isinstance(error, OSError) else "its name is no text"
    if isinstance(error, SafetensorError):  # an OSError, in words
        why = str(error).rpartition("I/O error: ")[2]
    place = out.parent if out.name == STAGE else out
    return RunError(f"{place} cannot be written: {why}.", "Choose another --out, or make room.")


def save(lens: Lens, pruned: Pruned, out: Path) -> None:
    """Write the checkpoint: safetensors, config, generation config, tokenizer, a model card, and small files.

    Weights are stored in the widest type in which the checkpoint that was pruned stores them; what it lacked,
    and is random here, is lacking again.

    Args:
        lens: the model before.
        pruned: the model after; its weights take the type in which they are stored.
        out: directory, which exists.

    Raises:
        RunError: it cannot be written.
    """
    model = pruned.model
    model.to(stored_dtype(lens))  # type: ignore[arg-type]  # to() is wrapped
    try:
        _copy_files(lens.source, out)
        if pruned.compact is None:
            state = model.state_dict()
            model.save_pretrained(out, state_dict={k: v for k, v in state.items() if k not in lens.missing})
        else:
            pruned.compact.save(model, out)
            if model.can_generate() and model.generation_config is not None:
                model.generation_config.save_pretrained(out)
        if lens.tokenizer is not None:
            lens.tokenizer.save_pretrained(out)
    except (OSError, UnicodeError, SafetensorError) as error:  # safetensors takes no name that is not UTF-8
        raise _unwritable(out, error) from error
    write_text(card(lens, pruned, _old_card(lens.source)), out / "README.md")


def _copy_files(source: Source | None, out: Path) -> None:
    """What stands beside the weights: vocabularies, a licence, further modules of sentence encoders."""
    place = Path(source.place) if source is not None and "gguf_file" not in source.options else None
    if place is None or not place.is_dir():
        return
    modules = _modules(place)
    for path in sorted([*place.glob("*"), *place.rglob("*/*")]):
        inside = path.relative_to(place)
        if not path.is_file() or any(part.startswith(".") for part in inside.parts):
            continue
        if len(inside.parts) > 1 and inside.parts[0] not in modules:
            continue  # the same model for other programs
        if len(inside.parts) == 1 and (path.stat().st_size > SMALL or _is_written(path)):
            continue
        target = out / inside
        target.parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(path, target)


def _modules(place: Path) -> set[str]:
    """Directories of the modules that sentence-transformers runs after the model."""
    try:
        told = load_json(place / "modules.json")
        return {Path(one["path"]).parts[0] for one in told if one["path"]}
    except (OSError, ValueError, LookupError, TypeError):
        return set()


def _is_written(path: Path) -> bool:
    """Whether a file is written anew, or holds weights."""
    anew = path.suffix in WEIGHTS or path.name.endswith(".index.json")
    return anew or path.name in ("README.md", "run.json")


def _old_card(source: Source | None) -> str:
    path = Path(source.place) / "README.md" if source is not None else None
    try:
        return path.read_text("utf-8") if path is not None else ""
    except (OSError, UnicodeDecodeError):
        return ""
