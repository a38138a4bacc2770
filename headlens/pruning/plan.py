"""What pruning would take away: heads, layer by layer, and the weights that belong to them."""

from __future__ import annotations

import math
import shlex
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import reduce
from pathlib import Path

import torch
from safetensors import safe_open
from torch import Tensor

from headlens.errors import InputError, ModelError
from headlens.model.anatomy import Anatomy, Part
from headlens.model.heads import Head, Site, number_ranges
from headlens.model.lens import Lens
from headlens.model.weights import Layout, input_axis
from headlens.runs.read import read_marks


@dataclass(frozen=True, slots=True)
class Cut:
    """What becomes of one site's heads.

    Args:
        site: where.
        kept_groups: numbers of the key-value heads that stay, each with all query heads that read it.
        silent: numbers of query heads that stay but whose rows of W_O become 0.
    """

    site: Site
    kept_groups: tuple[int, ...]
    silent: tuple[int, ...]

    @property
    def group(self) -> int:
        """How many query heads read one key-value head."""
        return self.site.n_heads // self.site.n_kv_heads

    @property
    def kept(self) -> tuple[int, ...]:
        """Numbers of the query heads that stay."""
        return tuple(g * self.group + i for g in self.kept_groups for i in range(self.group))


@dataclass(frozen=True, slots=True)
class PruningPlan:
    """What becomes of all heads.

    Args:
        removed: the heads that shall go.
        cuts: what becomes of each site.
    """

    removed: tuple[Head, ...]
    cuts: tuple[Cut, ...]

    @property
    def n_cut(self) -> int:
        """How many heads leave the matrices."""
        return sum(cut.site.n_heads - len(cut.kept) for cut in self.cuts)

    @property
    def n_silent(self) -> int:
        """How many heads stay silent."""
        return sum(len(cut.silent) for cut in self.cuts)

    @property
    def sizes(self) -> set[tuple[int, int]]:
        """Numbers of query and key-value heads that sites are left with."""
        return {(len(cut.kept), len(cut.kept_groups)) for cut in self.cuts}


def silence(anatomy: Anatomy, removed: Sequence[Head]) -> PruningPlan:
    """Keep all matrices as large as they are.

    Args:
        anatomy: of the model.
        removed: the heads that shall go.

    Returns:
        The plan.

    Raises:
        InputError: one module runs several layers, and a head would go in some of them only.
    """
    return _plan(anatomy, removed, {site: range(site.n_kv_heads) for site in anatomy.sites})


def cut_each(anatomy: Anatomy, removed: Sequence[Head]) -> PruningPlan:
    """Cut what can be cut in each layer by itself.

    A key-value head can go with all query heads that read it; query heads that go without it stay silent. A
    layer keeps one group: of a layer whose heads all go the first stays, silent.

    Args:
        anatomy: of the model.
        removed: the heads that shall go.

    Returns:
        The plan.

    Raises:
        InputError: see `silence`.
    """
    needed = {site: _needed(site, removed) for site in anatomy.sites}
    return _plan(anatomy, removed, {site: groups or [0] for site, groups in needed.items()})


def cut_alike(anatomy: Anatomy, removed: Sequence[Head]) -> PruningPlan:
    """Cut as much as leaves every layer with the same number of heads; the rest stays silent.

    Args:
        anatomy: of the model.
        removed: the heads that shall go.

    Returns:
        The plan.

    Raises:
        InputError: see `silence`.
    """
    needed = {site: _needed(site, removed) for site in anatomy.sites}
    most = max(1, *(len(groups) for groups in needed.values()))
    kept: dict[Site, Iterable[int]] = {}
    for site, groups in needed.items():
        spare = [group for group in range(site.n_kv_heads) if group not in groups]
        kept[site] = sorted([*groups, *spare[: most - len(groups)]])
    return _plan(anatomy, removed, kept)


def _needed(site: Site, removed: Sequence[Head]) -> list[int]:
    """Key-value heads that a head reads which stays."""
    group = site.n_heads // site.n_kv_heads
    gone = set(removed)
    return sorted({head.head // group for head in site.heads if head not in gone})


def _plan(anatomy: Anatomy, removed: Sequence[Head], kept: dict[Site, Iterable[int]]) -> PruningPlan:
    gone = set(removed)
    cuts = []
    for site, groups in kept.items():
        whole = Cut(site, tuple(groups), ())
        silent = tuple(n for n in whole.kept if Head(site.stack, site.layer, n) in gone)
        cuts.append(Cut(site, whole.kept_groups, silent))
    _check_shared(anatomy, cuts)
    return PruningPlan(tuple(removed), tuple(cuts))


def _check_shared(anatomy: Anatomy, cuts: Sequence[Cut]) -> None:
    """ALBERT runs one module for all layers: a head goes in all of them or in none."""
    for cut in cuts:
        same = [other for other in cuts if other.site.module == cut.site.module]
        if any((other.kept, other.silent) != (cut.kept, cut.silent) for other in same):
            layers = number_ranges(sorted(other.site.layer for other in same))
            raise InputError(
                f"In {anatomy.architecture} the layers {layers} share one set of weights, so a head goes in "
                "all of them or in none.",
                "Name it in all layers, such as *.3.",
            )


# ---- Takes heads out of a model's weights: matrices without their rows, and rows of W_O that are 0


State = dict[str, Tensor]  # the weights of a model, by name


def without(lens: Lens, plan: PruningPlan, layouts: Mapping[str, Layout]) -> State:
    """Make a model's weights without the heads of a plan; the model itself is left alone.

    Args:
        lens: the model.
        plan: what becomes of its heads.
        layouts: how the projections of each attention module are laid out; only needed to cut.

    Returns:
        All weights: those that change are new, the others are the model's own.

    Raises:
        ModelError: weights are not plain matrices, or cannot be told apart by heads.
    """
    state: State = dict(lens.model.state_dict())
    done: set[str] = set()
    for part, cut in zip(lens.anatomy.parts, plan.cuts, strict=True):
        if part.site.module in done:  # one module that runs several layers
            continue
        done.add(part.site.module)
        _silence(lens, state, part, cut)
        if len(cut.kept) < part.site.n_heads:
            _cut(lens, state, part, cut, layouts.get(part.site.module))
    return state


def kept_rows(cut: Cut) -> Tensor:
    """Tell which rows of W_O stay.

    Args:
        cut: what becomes of a site's heads.

    Returns:
        Their numbers, rising.
    """
    width = cut.site.head_width
    return torch.tensor([head * width + i for head in cut.kept for i in range(width)])


def _silence(lens: Lens, state: State, part: Part, cut: Cut) -> None:
    if not cut.silent:
        return
    name = f"{part.projections.output}.weight"
    axis = _axis(lens, part.projections.output)
    weight = state[name].clone()
    width = cut.site.head_width
    for head in cut.silent:
        weight.narrow(axis, head * width, width).zero_()
    state[name] = weight


def _cut(lens: Lens, state: State, part: Part, cut: Cut, layout: Layout | None) -> None:
    if layout is None:
        raise ModelError(
            f"Query, key and value of {part.site} in {lens.anatomy.architecture} are not made by one linear "
            "layer each, so its matrices cannot be cut by heads.",
            "Type --form masked.",
        )
    gone_heads = [n for n in range(part.site.n_heads) if n not in cut.kept]
    gone_groups = [n for n in range(part.site.n_kv_heads) if n not in cut.kept_groups]
    gone: dict[str, list[int]] = {}
    for places, numbers in zip(layout.roles, (gone_heads, gone_groups, gone_groups), strict=True):
        gone.setdefault(places.layer, []).extend(places.rows[numbers].flatten().tolist())
    for path, rows in gone.items():
        axis = 1 - _axis(lens, path)
        stay = [row for row in range(state[f"{path}.weight"].shape[axis]) if row not in set(rows)]
        _select(state, f"{path}.weight", axis, torch.tensor(stay))
        _select(state, f"{path}.bias", 0, torch.tensor(stay))
    output = part.projections.output
    _select(state, f"{output}.weight", _axis(lens, output), kept_rows(cut))
    for name in list(state):  # what the module itself has for each head, such as GPT-OSS' sinks
        path, _, _ = name.rpartition(".")
        if path == part.site.module and state[name].shape == (part.site.n_heads,):
            _select(state, name, 0, torch.tensor(cut.kept))


def _axis(lens: Lens, path: str) -> int:
    """The axis of a layer's inputs."""
    layer = lens.model.get_submodule(path) if path else None
    axis = None if layer is None else input_axis(layer)
    if axis is None:
        kind = type(layer).__name__
        raise ModelError(
            f"{path or 'W_O'} of {lens.anatomy.architecture} is a {kind}, not a plain linear layer: no head "
            "can be taken out of its weights.",
            "Load the model without quantisation, and merge adapters first.",
        )
    return axis


def _select(state: State, name: str, axis: int, rows: Tensor) -> None:
    if name in state:
        state[name] = state[name].index_select(axis, rows.to(state[name].device))


# ---- In which type a checkpoint stores its weights, read from the files: configs are often wrong about it


TYPES = {"F64": torch.float64, "F32": torch.float32, "F16": torch.float16, "BF16": torch.bfloat16}


def stored_dtype(lens: Lens) -> torch.dtype:
    """Find the type that holds all weights of a checkpoint as they are.

    Args:
        lens: the model.

    Returns:
        The widest type in its files; of a model without safetensors files (in memory, .gguf) its own.
    """
    found: set[torch.dtype] = set()
    for path in lens.source.files if lens.source is not None else ():
        if path.suffix == ".safetensors":
            with safe_open(str(path), "pt") as file:
                kinds = {file.get_slice(name).get_dtype() for name in file.keys()}  # noqa: SIM118  # no dict
                found |= {TYPES[kind] for kind in kinds if kind in TYPES}
    return reduce(torch.promote_types, found) if found else lens.model.dtype


def check_nothing_is_rounded(lens: Lens) -> None:
    """Refuse a model that was loaded in a type which cannot hold what its checkpoint stores.

    Args:
        lens: the model.

    Raises:
        InputError: its weights were rounded.
    """
    stored, loaded = stored_dtype(lens), lens.model.dtype
    if torch.promote_types(stored, loaded) != loaded:
        names = [str(dtype).removeprefix("torch.") for dtype in (stored, loaded)]
        raise InputError(
            f"The checkpoint holds {names[0]} and was loaded as {names[1]}, which rounds its weights.",
            "Leave --dtype out.",
        )


# ---- Which heads to remove: those that a finished run found to matter least


def least_important(lens: Lens, run: str | Path, keep: float) -> tuple[Head, ...]:
    """Choose the least important heads of a model.

    Args:
        lens: the model.
        run: directory of ``headlens ablate``.
        keep: share of all heads that stay, 0..1; rounded to whole heads.

    Returns:
        The others: the least important, of equals the last of the model. A head without importance stays.

    Raises:
        InputError: the share is none, or so small that heads without importance would have to go.
        RunError: the run has no importance, or is about another model.
    """
    heads = lens.anatomy.heads
    if not 0 <= keep < 1:
        raise InputError(
            f"Expected a share of heads to keep, from 0 to below 1, found {keep:g}.", "Write 0.75."
        )
    worth = read_marks([run], lens).importance
    if worth is None:
        model = shlex.quote(lens.source.name) if lens.source else "MODEL"
        raise InputError(
            f"{run} says nothing about the importance of heads.",
            f"Type first: headlens ablate {model} --out RUN",
        )
    known = [head for head in heads if not math.isnan(worth.get(head, math.nan))]
    n_gone = len(heads) - math.floor(keep * len(heads) + 0.5)
    if n_gone == 0:
        raise InputError(
            f"To keep {keep:.4g} of {len(heads)} heads removes none.",
            f"Keep {1 - 1 / len(heads):.2f} or less.",
        )
    if n_gone > len(known):
        raise InputError(
            f"To keep {keep:.4g} of {len(heads)} heads {n_gone} must go, and {run} has the importance of "
            f"{len(known)}.",
            "Keep more, or measure all heads.",
        )
    order = sorted(range(len(known)), key=lambda place: (worth[known[place]], -place))
    gone = {known[place] for place in order[:n_gone]}
    return tuple(head for head in heads if head in gone)
