"""Takes heads out of a model's weights: matrices without their rows, and rows of W_O that are 0."""

from __future__ import annotations

from collections.abc import Mapping

import torch
from torch import Tensor

from headlens.errors import ModelError
from headlens.model.anatomy import Part
from headlens.model.lens import Lens
from headlens.model.weights import Layout, input_axis
from headlens.redundancy.pruning.plan import Cut, Plan

State = dict[str, Tensor]  # the weights of a model, by name


def without(lens: Lens, plan: Plan, layouts: Mapping[str, Layout]) -> State:
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
