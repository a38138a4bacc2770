"""Prunes a model and saves it, with a card that says what it costs."""

from __future__ import annotations

import re
import shutil
import statistics
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

import torch
from safetensors import SafetensorError
from transformers import PreTrainedModel

from headlens.errors import InputError, ModelError, RunError
from headlens.model.anatomy import Anatomy, examine
from headlens.model.devices import is_spread
from headlens.model.heads import Head, number_ranges
from headlens.model.lens import Lens, longest_input
from headlens.model.load import Source, find
from headlens.model.trace import run
from headlens.pruning.forms import FORMS, Pruned
from headlens.pruning.plan import check_nothing_is_rounded, stored_dtype
from headlens.util import __version__
from headlens.util.files import HOLDER, LOCK, inner_folder, is_there, load_json, locked, write_text

NOT_KEPT = "Something of the model is not kept by its family's own way of saving it; nothing was written."


@dataclass(frozen=True)
class Result:
    """A checkpoint without some heads.

    Args:
        lens: the pruned model under the lens, as loaded from what was written.
        pruned: its form, and what became of its heads.
        before: what the model cost.
        after: what it costs now.
        difference: of the loaded model's outputs from those of the ablated model, at most.
        bytes_on_disk: of the weight files before and after; 0 where there were none.
    """

    lens: Lens
    pruned: Pruned
    before: Cost
    after: Cost
    difference: float
    bytes_on_disk: tuple[int, int]


def prune(
    lens: Lens | str, heads: str | Head | Sequence[Head], out: str | Path, form: str = "auto"
) -> Result:
    """Write a checkpoint without some heads.

    Its outputs are held against those of the model with the same heads ablated (mode zero), before it is
    written and after it was loaded again. It was not trained since: what the heads did is missing.

    Args:
        lens: a model under the lens, which is left alone, or what `headlens.load` takes.
        heads: a selector such as ``2.8,3.*``, or heads.
        out: directory to write.
        form: "cut": smaller matrices where the family's config can say it, loaded by plain `transformers`;
            "masked": rows of W_O set to 0, loaded by whatever loads the original, as large and as slow;
            "compact": smaller matrices layer by layer, loaded by `headlens.load`, and by plain `transformers`
            where the config can say it; "auto": "cut" where it takes all of the heads, else "masked".

    Returns:
        The pruned model, with what it costs and what it cost.

    Raises:
        SelectorError: a head does not exist.
        InputError: there is no such form, all heads would go, or layers share weights.
        ModelError: the family or the form cannot do it.
        RunError: the directory holds something else, or cannot be written.
    """
    _check_form(form)
    out = Path(out)
    lens = Lens.load(lens) if isinstance(lens, str) else lens
    check_place(out, lens)
    if is_spread(lens.model):
        raise ModelError(
            "A model that is spread over devices is not pruned: its weights are not all in one place.",
            "Leave --device-map out; --device cpu takes the machine's memory.",
        )
    check_nothing_is_rounded(lens)
    chosen = lens.anatomy.select(heads)
    if len(chosen) == len(lens.anatomy.heads):
        raise InputError("All heads of the model would go.", "Name fewer.")
    pruned = FORMS[form](lens, chosen)
    if pruned.compact is not None and (lacking := [name for name in lens.missing if "pooler" not in name]):
        raise ModelError(
            f"The checkpoint lacks {len(lacking)} weights, such as {lacking[0]}: they are random here, and a "
            "compact checkpoint would pass them for trained ones.",
            "Choose the form cut or masked, which leave them out, or a complete checkpoint.",
        )
    before, after = costs(lens, pruned.model, len(chosen))
    with locked(out), staged(out) as place:
        save(lens, pruned, place)
        again = _load_again(lens, pruned, place)
        difference = pruned.probe.check(again.model, "as loaded again", NOT_KEPT)
    again.source = find(str(out))
    return Result(again, pruned, before, after, difference, (_on_disk(lens), _on_disk(again)))


def _load_again(lens: Lens, pruned: Pruned, place: Path) -> Lens:
    """Load what was written; weights that it lacks, as the original does, are those of the pruned model."""
    dtype = str(lens.model.dtype).removeprefix("torch.")
    again = Lens.load(
        str(place), device=str(lens.device), dtype=dtype, allow_random_weights=bool(lens.missing)
    )
    made_up = {name: pruned.model.get_parameter(name) for name in again.missing}
    with torch.no_grad():
        for name, weight in made_up.items():
            again.model.get_parameter(name).copy_(weight)
    return again


def _on_disk(lens: Lens) -> int:
    files = lens.source.files if lens.source is not None else ()
    return sum(path.stat().st_size for path in files)


def _check_form(form: str) -> None:
    """Refuse a form that does not exist."""
    if form not in FORMS:
        raise InputError(f"There is no form {form!r}.", f"Choose one of: {', '.join(FORMS)}.")


# ---- Writes a pruned model as a checkpoint, with everything that went along with the model


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


# ---- The note that a pruned model carries: what was taken out, and how to load it


_FRONT = re.compile(r"\A---\n.*?\n---\n", re.DOTALL)  # settings of a model card, which must stay on top
HOW = {
    "cut": "Their matrices were cut and the config says so: the model has fewer parameters and less to "
    "compute, and plain `transformers` loads it.",
    "masked": "Their rows of W_O were set to 0: the model computes what it computes without these heads, "
    "loads wherever the original loads, and is neither smaller nor faster.",
    "compact": "The matrices of each layer were cut by themselves: the model has fewer parameters and less "
    "to compute.",
}


def card(lens: Lens, pruned: Pruned, old: str = "") -> str:
    """Write the note, above the card of the original model.

    Args:
        lens: the model before.
        pruned: the model after.
        old: the original's model card.

    Returns:
        Markdown.
    """
    name = lens.source.name if lens.source is not None else lens.anatomy.architecture
    front = _FRONT.match(old)
    top, rest = (front[0], old[front.end() :].lstrip()) if front else ("", old)
    lines = [
        f"# {name}, without {len(pruned.plan.removed)} of {len(lens.anatomy.heads)} attention heads",
        "",
        f"Pruned by [headlens](https://pypi.org/project/headlens/) {__version__} from `{name}`. "
        f"{HOW[pruned.form]} Its outputs are those of the original with these heads ablated (set to 0 before "
        f"W_O); the largest difference measured was {pruned.difference:.1g}.",
        "",
        f"Removed (layer.head, both counted from 0): {removed_heads(lens, pruned)}.",
    ]
    if pruned.form != "masked" and pruned.plan.n_silent:
        lines += ["", silent_heads(pruned)]
    if pruned.compact is not None:
        lines += [
            "",
            "```python",
            "import headlens",
            "",
            'model = headlens.load("this directory").model',
            "```",
        ]
    lines += ["", "It was not trained after pruning."]
    return top + "\n".join(lines) + "\n" + (f"\n{rest}" if rest.strip() else "")


def removed_heads(lens: Lens, pruned: Pruned) -> str:
    """Name the removed heads as a selector does.

    Args:
        lens: the model before.
        pruned: the model after.

    Returns:
        Such as ``0.1,0.4-6,3.2``.
    """
    parts = []
    for site in lens.anatomy.sites:
        gone = [head for head in pruned.plan.removed if head in site.heads]
        for numbers in number_ranges(head.head for head in gone).split(",") if gone else ():
            parts.append(lens.anatomy.name(gone[0]).rpartition(".")[0] + "." + numbers)
    return ",".join(parts)


def silent_heads(pruned: Pruned) -> str:
    """Say that heads could not be cut.

    Args:
        pruned: the model after.

    Returns:
        A sentence.
    """
    count = pruned.plan.n_silent
    be, whose = ("is", "its") if count == 1 else ("are", "their")
    return f"{count} of them could not be cut and {be} silent: {whose} rows of W_O are 0."


# ---- What a model costs: parameters, multiply-adds, and its measured speed, which are three things


TOKENS, REPEATS = 128, 7  # of a speed test


@dataclass(frozen=True, slots=True)
class Cost:
    """What a model costs.

    Args:
        heads: attention heads whose output is not all 0.
        parameters: numbers in its weights.
        multiply_adds: of the attention layers, for one input of `tokens` tokens.
        tokens: length of an input.
        tokens_per_second: measured, one input at a time, on the model's device; the median of several passes.
    """

    heads: int
    parameters: int
    multiply_adds: int
    tokens: int
    tokens_per_second: float


def costs(before: Lens, after: PreTrainedModel, n_removed: int) -> tuple[Cost, Cost]:
    """Measure two models side by side.

    Args:
        before: one model.
        after: the other; they take turns, so that whatever else the machine does slows both.
        n_removed: how many heads are silent or gone in the other.

    Returns:
        What each costs.
    """
    tokens = min(TOKENS, longest_input(before) or TOKENS)
    models = (before.model, after)
    seconds: tuple[list[float], list[float]] = ([], [])
    for repeat in range(REPEATS + 1):
        for model, mine in zip(models, seconds, strict=True):
            took = _pass(model, tokens)
            if repeat:  # the first pass of each warms up
                mine.append(took)
    found = [examine(model) for model in models]
    n_heads = len(found[0].heads)
    return (
        _cost(found[0], n_heads, tokens, seconds[0]),
        _cost(found[1], n_heads - n_removed, tokens, seconds[1]),
    )


def _cost(anatomy: Anatomy, heads: int, tokens: int, seconds: list[float]) -> Cost:
    work = sum(part.multiply_adds(tokens, tokens) for part in anatomy.parts)
    return Cost(heads, anatomy.n_parameters, work, tokens, tokens / statistics.median(seconds))


def _pass(model: PreTrainedModel, tokens: int) -> float:
    device = next(model.parameters()).device
    _wait(device)
    began = time.perf_counter()
    with torch.inference_mode():
        run(model, lengths=(tokens, tokens))
    _wait(device)
    return time.perf_counter() - began


def _wait(device: torch.device) -> None:
    """GPUs work on after a call returns."""
    if device.type == "cuda":
        torch.cuda.synchronize(device)
    elif device.type == "mps":
        torch.mps.synchronize()
