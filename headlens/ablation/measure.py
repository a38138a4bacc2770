"""Measures a benchmark while heads are removed, a checkpoint of finished units at a time."""

from __future__ import annotations

import hashlib
import io
import json
import sys
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Generic, TypeVar

import numpy as np
from tqdm import tqdm

from headlens.ablation.gates import show
from headlens.ablation.plan import Condition
from headlens.ablation.prefix import NOTHING, Prefix
from headlens.benchmarks.metrics import Array
from headlens.benchmarks.registry import Benchmark
from headlens.engine.local import Engine, Here
from headlens.errors import RunError
from headlens.model.blocks import blocks_of, first_block
from headlens.model.finite import diagnosing, find_source
from headlens.model.heads import Head
from headlens.model.lens import Lens
from headlens.model.replacements import NEED_REFERENCE, Reference, gather
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

BASELINE = "baseline"


class Measuring:
    """One benchmark of one model, under any ablation in one mode.

    Args:
        lens: the model.
        benchmark: what it is measured on.
        mode: what stands in removed heads' places.
        units: finished work on disk; None keeps none.
        label: begins the names of what is kept, so that two benchmarks can share a directory.
        prefix_memory: bytes that prefix reuse may keep.
        seed: of what *resample* draws.
        progress: show a progress bar on stderr.
        engine: where conditions are measured.
    """

    def __init__(
        self,
        lens: Lens,
        benchmark: Benchmark,
        mode: str = "zero",
        units: Units | None = None,
        *,
        label: str = "",
        prefix_memory: int = 0,
        seed: int = 0,
        progress: bool = False,
        engine: Engine | None = None,
    ) -> None:
        self._lens = lens
        self.benchmark = benchmark
        self._work = _Removing(benchmark, mode, prefix_memory, seed)
        self._blocks = (blocks_of(lens) if prefix_memory else None) or ()
        self._units = units
        self._label = label
        self._progress = progress
        self.engine = engine or Here()
        self._known: dict[frozenset[Head], Array] = {}
        self._spared: list[_Reuse] = []
        self.reused = 0  # conditions that were on disk

    def baseline(self) -> Array:
        """Measure the model as it is.

        Returns:
            Per-example values [example, column].

        Raises:
            ModelError: the model computes with NaN.
        """
        self._measure([Condition(BASELINE, ())])
        return self._known[frozenset()]

    def values(self, conditions: Sequence[Condition]) -> list[Array]:
        """Measure conditions; equal sets of heads are measured once.

        Args:
            conditions: in any order; they are run in that of their first heads.

        Returns:
            Per-example values of each, in the order given.
        """
        self.baseline()
        self._measure(sorted(conditions, key=lambda one: first_block(self._blocks, one.heads)))
        return [self._known[frozenset(one.heads)] for one in conditions]

    @property
    def facts(self) -> dict[str, Any]:
        """What `run.json` says about prefix reuse."""
        return {
            "passes": sum(one.passes for one in self._spared),
            "reused": sum(one.reused for one in self._spared),
            "level": min((one.level for one in self._spared), default=NOTHING),
        }

    @property
    def note(self) -> str:
        """What the user should know about prefix reuse; empty where it worked or nothing came of it."""
        if not any(one.tried and one.level == NOTHING for one in self._spared):
            return ""
        kind = type(self._lens.model).__name__
        return f"{kind} needs more than its blocks hand on, so every ablation ran the whole model."

    def _measure(self, conditions: Sequence[Condition]) -> None:
        """Come to know the values of conditions, all of them at once where there are many workers."""
        waiting: dict[frozenset[Head], Condition] = {}
        for one in conditions:
            if frozenset(one.heads) not in self._known:
                waiting.setdefault(frozenset(one.heads), one)
        queue = [one for one in waiting.values() if not self._read(one)]
        parts = range(len(self._work.parts))
        units = [(one, _Unit(one.heads, part)) for one in queue for part in parts]
        bar = tqdm(
            total=len(waiting) * len(parts), initial=(len(waiting) - len(queue)) * len(parts), unit="run",
            desc=f"{self._label}ablate", disable=not self._progress or not any(waiting), file=sys.stderr,
        )  # fmt: skip
        found: dict[frozenset[Head], dict[int, Array]] = defaultdict(dict)
        with bar:
            results = self.engine.run(self._lens, self._work, [unit for _, unit in units])
            for number, outcome in results:
                one, unit = units[number]
                mine = found[frozenset(one.heads)]
                mine[unit.part] = outcome.values
                self._spared.append(outcome.reuse)
                if len(mine) == len(parts):
                    self._keep(one, np.concatenate([mine[part] for part in parts]))
                bar.update()

    def _read(self, one: Condition) -> bool:
        """Whether a condition's values are on disk; they are known then."""
        if self._units is None:
            return False
        values = self._units.load(self._label + one.name, int(self.benchmark.facts["examples"]))
        if values is not None:
            self._known[frozenset(one.heads)] = values
            self.reused += bool(one.heads)
        return values is not None

    def _keep(self, one: Condition, values: Array) -> None:
        self._known[frozenset(one.heads)] = values
        if self._units:
            self._units.save(self._label + one.name, values)


# ---- The work of a sweep: a benchmark, or a part of it, runs without some heads


T = TypeVar("T")

PART = 2048  # examples: more are measured in parts


@dataclass(frozen=True, slots=True)
class _Reuse:
    """How far a unit was spared passes from the first block on.

    Args:
        passes: passes of the model that could begin later.
        reused: those that did.
        level: how much they leave out, see `headlens.ablation.prefix`.
        tried: whether there were passes to be reused, whatever came of them.
    """

    passes: int
    reused: int
    level: int
    tried: bool


@dataclass(frozen=True, slots=True)
class _Outcome:
    """What came of a unit.

    Args:
        values: per-example values [example, column].
        reuse: what was spared.
    """

    values: Array
    reuse: _Reuse


@dataclass(frozen=True, slots=True)
class _Unit:
    """A unit of work: a part of the examples without some heads; without none, it is the baseline.

    Args:
        heads: which are taken out.
        part: number of the part, from 0.
    """

    heads: tuple[Head, ...]
    part: int = 0


@dataclass(frozen=True, eq=False)
class _Removing:
    """The work of measuring a benchmark without some heads.

    The baseline passes through the seam, too, so that only ablation can differ.

    Args:
        benchmark: what is measured.
        mode: what stands in removed heads' places.
        prefix_memory: bytes that prefix reuse may keep.
        seed: of what *resample* draws.
    """

    benchmark: Benchmark
    mode: str = "zero"
    prefix_memory: int = 0
    seed: int = 0

    @property
    def parts(self) -> list[list[int]]:
        """Numbers of the examples of each part: two workers can share a condition."""
        n = int(self.benchmark.facts["examples"])
        return [list(range(start, min(start + PART, n))) for start in range(0, max(n, 1), PART)]

    def begin(self, lens: Lens) -> Callable[[_Unit], _Outcome]:
        """See `headlens.engine.local.Work`.

        Raises:
            ModelError: the model computes with NaN.
        """
        parts = self.parts
        reference = _Once(lambda: self._gathered(lens) if self.mode in NEED_REFERENCE else None)
        known: dict[int, _Part] = {}

        def measured(unit: _Unit) -> _Outcome:
            if unit.part not in known:
                mine = self.benchmark.take(parts[unit.part]) if len(parts) > 1 else self.benchmark
                prefix = Prefix(lens, self.prefix_memory // len(parts))
                known[unit.part] = _Part(lens, mine, self.mode, prefix, reference)
            return known[unit.part].measured(unit.heads)

        return measured

    def _gathered(self, lens: Lens) -> Reference:
        stacks = self.benchmark.stacks
        sites = [site for site in lens.anatomy.sites if site.stack in stacks]
        return gather(lens.seam, lambda: show(self.benchmark, lens), sites, self.seed)


class _Once(Generic[T]):
    """Makes something when it is first wanted.

    Args:
        make: makes it.
    """

    def __init__(self, make: Callable[[], T]) -> None:
        self._make = make
        self._made: list[T] = []

    def __call__(self) -> T:
        """Get it."""
        if not self._made:
            self._made.append(self._make())
        return self._made[0]


@dataclass
class _Part:
    """A part of a benchmark on one model, with what is kept from one set of heads to the next."""

    lens: Lens
    benchmark: Benchmark
    mode: str
    prefix: Prefix
    reference: _Once[Reference | None]
    recorded: bool = False

    def measured(self, heads: tuple[Head, ...]) -> _Outcome:
        prefix = self.prefix
        passes, reused = prefix.passes, prefix.reused
        values = self._without(heads) if heads else self._clean()
        reuse = _Reuse(prefix.passes - passes, prefix.reused - reused, prefix.level, prefix.tried)
        return _Outcome(values, reuse)

    def _without(self, heads: tuple[Head, ...]) -> Array:
        if not self.recorded:  # the baseline came from disk or elsewhere: its passes are still to be seen
            self._clean()
        self.reference()  # found before, with passes of its own
        with self.prefix.reuse(heads, patterns=self.mode == "uniform"), self._out(heads):
            values = self.benchmark.measure(self.lens)
        return self._checked(values, heads)

    def _clean(self) -> Array:
        self.recorded = True
        with self.prefix.record(), self._out(()):
            values = self.benchmark.measure(self.lens)
        return self._checked(values, ())

    @contextmanager
    def _out(self, heads: tuple[Head, ...]) -> Iterator[None]:
        """Without heads while the block lasts, and numbers that are none are refused by their source."""
        reference = self.reference() if heads else None
        mode = self.mode if heads else "zero"
        with self.lens.ablate(heads, mode, reference), diagnosing(self.lens, self._again, heads):
            yield

    def _checked(self, values: Array, heads: tuple[Head, ...]) -> Array:
        """The same; the model is looked at where some are no numbers: a metric can be undefined, too."""
        if not np.isfinite(values).all():
            with self._out(heads):
                find_source(self.lens, self._again)
        return values

    def _again(self) -> None:
        show(self.benchmark, self.lens)


# ---- Finished work on disk, so that an interrupted sweep goes on where it stopped


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
