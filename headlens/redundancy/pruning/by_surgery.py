"""Pruned models that no config can express: made by shrinking the modules of the model itself."""

from __future__ import annotations

import copy
from collections.abc import Iterator, Mapping
from itertools import combinations

from torch import nn
from transformers import PreTrainedModel

from headlens.model.lens import Lens
from headlens.model.source import Compact
from headlens.redundancy.pruning.plan import Cut, Plan
from headlens.redundancy.pruning.surgery import State

MOST_COUNTS = 8  # attributes of an attention module that may count heads; more are not tried


def compacts(lens: Lens, plan: Plan, state: State) -> Iterator[Compact]:
    """Find ways to tell the modules of a model how many heads they have now.

    What an attention module counts by (number of heads, width of all heads) are attributes of it, and which
    of them matters is its family's own business: those whose value fits are changed, all of them or fewer.

    Args:
        lens: the model before.
        plan: what becomes of its heads.
        state: its weights without them.

    Yields:
        Ways to try.
    """
    old = lens.model.state_dict()
    config = {**lens.model.config.to_dict(), "architectures": [type(lens.model).__name__]}
    config.pop("_name_or_path", None)  # a path of this machine
    shapes = {name: tuple(t.shape) for name, t in state.items() if t.shape != old[name].shape}
    layers = _layers(lens.model, shapes)
    cuts = {cut.site.module: cut for cut in plan.cuts if len(cut.kept) < cut.site.n_heads}
    counts = {path: _counts(lens, path, cut) for path, cut in cuts.items()}
    before = {path: vars(lens.model.get_submodule(path)) for path in counts}
    names = sorted({name for found in counts.values() for name in found})[:MOST_COUNTS]
    for size in range(len(names), -1, -1):
        for chosen in combinations(names, size):
            attributes = {
                path: {name: now if name in chosen else before[path][name] for name, now in found.items()}
                for path, found in counts.items()
            }
            yield Compact(config, shapes, {**layers, **attributes})


def shrunk(lens: Lens, how: Compact, state: State) -> PreTrainedModel:
    """Make the pruned model.

    Args:
        lens: the model before, which is left alone.
        how: what becomes smaller.
        state: the weights.

    Returns:
        A copy, shrunk.
    """
    model = copy.deepcopy(lens.model)
    how.shrink(model)
    model.load_state_dict(state)
    return model


def _layers(model: nn.Module, shapes: Mapping[str, tuple[int, ...]]) -> dict[str, dict[str, int]]:
    """The sizes that the linear layers themselves note."""
    notes: dict[str, dict[str, int]] = {}
    for name, shape in shapes.items():
        path, _, leaf = name.rpartition(".")
        if leaf != "weight":
            continue
        layer = model.get_submodule(path)
        pairs = (("out_features", "in_features"), ("nx", "nf"))  # in the order of the weight's axes
        notes[path] = {
            attribute: size
            for pair in pairs
            for attribute, size in zip(pair, shape, strict=True)
            if isinstance(getattr(layer, attribute, None), int)
        }
    return notes


def _counts(lens: Lens, path: str, cut: Cut) -> dict[str, int]:
    """Attributes of an attention module whose value counts its heads, with what they would be now."""
    site = cut.site
    part = next(part for part in lens.anatomy.parts if part.site.module == path)
    heads, groups = (site.n_heads, len(cut.kept)), (site.n_kv_heads, len(cut.kept_groups))
    pairs = [heads, groups]
    pairs += [
        (old * width, new * width)
        for old, new in (heads, groups)
        for width in (part.key_width, site.head_width)
    ]
    now = dict(reversed(pairs))
    own = vars(lens.model.get_submodule(path))
    return {
        name: now[value]
        for name, value in own.items()
        if isinstance(value, int) and not isinstance(value, bool) and value in now and now[value] != value
    }
