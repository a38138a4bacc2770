"""Pruned models that a config can express: plain `transformers` makes them, smaller and faster."""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import torch
from torch import Tensor
from transformers import PreTrainedConfig, PreTrainedModel

from headlens.model.anatomy import Anatomy
from headlens.model.describe import examine_config
from headlens.model.lens import Lens
from headlens.redundancy.pruning.plan import Plan
from headlens.redundancy.pruning.surgery import State, kept_rows


def makers(lens: Lens, plan: Plan, state: State) -> Iterator[Callable[[], PreTrainedModel]]:
    """Find configs that may say what a plan leaves, and the models that they make.

    Args:
        lens: the model before.
        plan: what becomes of its heads.
        state: its weights without them.

    Yields:
        Ways to make the model; each raises whatever its family raises where it cannot express this.
    """
    for change in (_alike, _per_layer):
        yield partial(_make, lens, plan, state, change)


def _alike(config: PreTrainedConfig, plan: Plan) -> None:
    """The same number of heads in every layer."""
    ((heads, kv_heads),) = plan.sizes  # ValueError where there are several
    config.num_attention_heads = heads
    if hasattr(config, "num_key_value_heads"):
        config.num_key_value_heads = kv_heads
    config.head_dim = plan.cuts[0].site.head_width


def _per_layer(config: PreTrainedConfig, plan: Plan) -> None:
    """A number for each layer, where the family's code reads it layer by layer."""
    config.per_layer_config = {
        cut.site.layer: {"num_attention_heads": len(cut.kept), "num_key_value_heads": len(cut.kept_groups)}
        for cut in plan.cuts
    }


def _make(
    lens: Lens, plan: Plan, state: State, change: Callable[[PreTrainedConfig, Plan], None]
) -> PreTrainedModel:
    old = lens.model
    config = copy.deepcopy(old.config)
    change(config.get_text_config(), plan)
    config = type(config).from_dict(config.to_dict())  # what a saved config would say, checked as it is read
    kind: Any = type(old)
    config.architectures = [kind.__name__]
    _check(examine_config(config), plan)
    model: PreTrainedModel = kind._from_config(config, dtype=old.dtype).eval()
    shapes = {name: tensor.shape for name, tensor in model.state_dict().items()}
    model.load_state_dict({name: _cut_to(state[name], shapes[name], plan, name) for name in shapes})
    if old.can_generate():
        model.generation_config = copy.deepcopy(old.generation_config)
    moved: PreTrainedModel = model.to(lens.device)  # type: ignore[arg-type]  # to() is wrapped
    return moved


def _check(found: Anatomy, plan: Plan) -> None:
    for site, cut in zip(found.sites, plan.cuts, strict=True):
        size = (site.n_heads, site.n_kv_heads, site.head_width)
        if size != (len(cut.kept), len(cut.kept_groups), cut.site.head_width):
            raise ValueError(f"the config says {size} for {site}")


def _cut_to(tensor: Tensor, shape: torch.Size, plan: Plan, name: str) -> Tensor:
    """Cut a weight that has an entry, or a head's width of them, for each head (T5's position biases)."""
    if tensor.shape == shape:
        return tensor
    cut = next((cut for cut in plan.cuts if name.startswith(cut.site.module + ".")), plan.cuts[0])
    (axis,) = [axis for axis, size in enumerate(shape) if tensor.shape[axis] != size]
    rows = kept_rows(cut) if tensor.shape[axis] > cut.site.n_heads else torch.tensor(cut.kept)
    return tensor.index_select(axis, rows.to(tensor.device))
