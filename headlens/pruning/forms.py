"""The forms that a pruned model can have: cut, compact, masked."""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import combinations
from typing import Any

import torch
from torch import Tensor, nn
from transformers import PreTrainedConfig, PreTrainedModel

from headlens.errors import ModelError
from headlens.model.anatomy import Anatomy
from headlens.model.describe import examine_config
from headlens.model.finite import holds_none
from headlens.model.heads import Head
from headlens.model.lens import Lens
from headlens.model.source import Compact, read_compact
from headlens.model.trace import N_SOURCE, N_TOKENS, run
from headlens.model.weights import Layout, layouts
from headlens.pruning.plan import Cut, PruningPlan, State, cut_alike, cut_each, kept_rows, silence, without


@dataclass(frozen=True)
class Pruned:
    """A model without some of its heads.

    Args:
        model: the model.
        form: "cut", "masked" or "compact".
        plan: which heads left the matrices, and which are silent.
        compact: how a compact model differs from its config.
        difference: of its outputs from those of the model with the same heads ablated, at most.
        probe: what they were held against, and can be again.
    """

    model: PreTrainedModel
    form: str
    plan: PruningPlan
    compact: Compact | None
    difference: float
    probe: FormProbe


def masked(lens: Lens, removed: Sequence[Head]) -> Pruned:
    """Set the removed heads' rows of W_O to 0: loads anywhere, as large and as slow as before.

    Args:
        lens: the model; it is left alone.
        removed: the heads.

    Returns:
        The pruned model.

    Raises:
        InputError: layers share weights, and a head would go in some of them only.
        ModelError: weights are no plain matrices, or the result is not what ablation gives.
    """
    probe, plan = FormProbe(lens, removed), silence(lens.anatomy, removed)
    model = copy.deepcopy(lens.model)
    model.load_state_dict(without(lens, plan, {}))
    return Pruned(model, "masked", plan, _so_far(lens), probe.check(model, "with silent heads"), probe)


def cut(lens: Lens, removed: Sequence[Head]) -> Pruned:
    """Cut the heads out of the matrices as far as the family's config can say it.

    Args:
        lens: the model; it is left alone.
        removed: the heads.

    Returns:
        The pruned model: smaller and faster in plain `transformers`.

    Raises:
        InputError: layers share weights, and a head would go in some of them only.
        ModelError: the config cannot say it.
    """
    if not cut_each(lens.anatomy, removed).n_cut:
        raise _no_group()
    probe, places = FormProbe(lens, removed), _layouts(lens)
    for plan in (cut_each(lens.anatomy, removed), cut_alike(lens.anatomy, removed)):
        if not plan.n_cut:
            continue
        found = probe.first(makers(lens, plan, without(lens, plan, places)))
        if found is not None:
            return Pruned(found[0], "cut", plan, None, found[1], probe)
    raise ModelError(
        f"A config of {lens.anatomy.architecture} cannot say what would be left: it ties the width of a head "
        "to the number of heads, or layers would have different numbers of heads.",
        "Type --form compact for a smaller and faster model that headlens.load reads, or --form masked for "
        "one that loads anywhere and is as large as before.",
    )


def compact(lens: Lens, removed: Sequence[Head]) -> Pruned:
    """Cut the heads out of each layer's matrices, whatever the config can say.

    Args:
        lens: the model; it is left alone.
        removed: the heads.

    Returns:
        The pruned model: smaller and faster. Where a config can say it, plain `transformers` loads it; else
        `headlens.load` does.

    Raises:
        InputError: layers share weights, and a head would go in some of them only.
        ModelError: the family's code does not work with fewer heads.
    """
    probe, plan = FormProbe(lens, removed), cut_each(lens.anatomy, removed)
    if not plan.n_cut:
        raise _no_group()
    state = without(lens, plan, _layouts(lens))
    found = probe.first(makers(lens, plan, state))
    if found is not None:
        return Pruned(found[0], "compact", plan, None, found[1], probe)
    ways = list(compacts(lens, plan, state))
    small = shrunk(lens, ways[0], state)
    for how in ways:
        how.count(small)
        found = probe.first([lambda: small])
        if found is not None:
            so_far = _so_far(lens)
            whole = how if so_far is None else so_far.then(how)
            return Pruned(small, "compact", plan, whole, found[1], probe)
    raise ModelError(
        f"{lens.anatomy.architecture} does not run with other numbers of heads in its layers: it counts "
        "heads elsewhere as well (for position biases of all heads, say).",
        "Type --form masked.",
    )


def automatic(lens: Lens, removed: Sequence[Head]) -> Pruned:
    """Cut where the config can say all of it, else mask.

    Args:
        lens: the model; it is left alone.
        removed: the heads.

    Returns:
        The pruned model.

    Raises:
        InputError: layers share weights, and a head would go in some of them only.
        ModelError: weights are no plain matrices, or the result is not what ablation gives.
    """
    plan = cut_each(lens.anatomy, removed)
    if plan.n_silent == 0:
        try:
            found = cut(lens, removed)
        except ModelError:  # it cannot be cut
            return masked(lens, removed)
        if found.plan.n_silent == 0:
            return found
    return masked(lens, removed)


def _no_group() -> ModelError:
    return ModelError(
        "No key-value head loses all the heads that read it, so no matrix gets smaller.",
        "Remove whole groups, or type --form masked.",
    )


def _so_far(lens: Lens) -> Compact | None:
    """How the model differs from its config already, where it was loaded from a compact checkpoint."""
    return None if lens.source is None else read_compact(lens.source.place)


def _layouts(lens: Lens) -> Mapping[str, Layout]:
    return {site.module: layout for site, layout in layouts(lens).items()}


FORMS: Mapping[str, Callable[[Lens, Sequence[Head]], Pruned]] = {
    "auto": automatic,
    "cut": cut,
    "masked": masked,
    "compact": compact,
}
"""The forms by their names."""


# ---- Pruned models that a config can express: plain `transformers` makes them, smaller and faster


def makers(lens: Lens, plan: PruningPlan, state: State) -> Iterator[Callable[[], PreTrainedModel]]:
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


def _alike(config: PreTrainedConfig, plan: PruningPlan) -> None:
    """The same number of heads in every layer."""
    ((heads, kv_heads),) = plan.sizes  # ValueError where there are several
    config.num_attention_heads = heads
    if hasattr(config, "num_key_value_heads"):
        config.num_key_value_heads = kv_heads
    config.head_dim = plan.cuts[0].site.head_width


def _per_layer(config: PreTrainedConfig, plan: PruningPlan) -> None:
    """A number for each layer, where the family's code reads it layer by layer."""
    config.per_layer_config = {
        cut.site.layer: {"num_attention_heads": len(cut.kept), "num_key_value_heads": len(cut.kept_groups)}
        for cut in plan.cuts
    }


def _make(
    lens: Lens, plan: PruningPlan, state: State, change: Callable[[PreTrainedConfig, PruningPlan], None]
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


def _check(found: Anatomy, plan: PruningPlan) -> None:
    for site, cut in zip(found.sites, plan.cuts, strict=True):
        size = (site.n_heads, site.n_kv_heads, site.head_width)
        if size != (len(cut.kept), len(cut.kept_groups), cut.site.head_width):
            raise ValueError(f"the config says {size} for {site}")


def _cut_to(tensor: Tensor, shape: torch.Size, plan: PruningPlan, name: str) -> Tensor:
    """Cut a weight that has an entry, or a head's width of them, for each head (T5's position biases)."""
    if tensor.shape == shape:
        return tensor
    cut = next((cut for cut in plan.cuts if name.startswith(cut.site.module + ".")), plan.cuts[0])
    (axis,) = [axis for axis, size in enumerate(shape) if tensor.shape[axis] != size]
    rows = kept_rows(cut) if tensor.shape[axis] > cut.site.n_heads else torch.tensor(cut.kept)
    return tensor.index_select(axis, rows.to(tensor.device))


# ---- Pruned models that no config can express: made by shrinking the modules of the model itself


MOST_COUNTS = 8  # attributes of an attention module that may count heads; more are not tried


def compacts(lens: Lens, plan: PruningPlan, state: State) -> Iterator[Compact]:
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


# ---- Holds a pruned model against the model with the same heads ablated


JOINT = "Something between its heads and W_O depends on all heads together, a norm for instance."
WITHIN = 1e-5  # of the largest output, where that is above 1


class FormProbe:
    """What a model puts out for some tokens with heads ablated, to hold pruned models against.

    Args:
        lens: the model as it is; on return it is as it was.
        removed: the heads.
        seed: of the tokens.

    Raises:
        NotNumbersError: what it puts out is NaN or infinite.
    """

    def __init__(self, lens: Lens, removed: Sequence[Head], seed: int = 0) -> None:
        self._seed = seed
        with lens.ablate(removed):
            self._expected = self._outputs(lens.model)
        if not bool(torch.isfinite(self._expected).all()):
            raise holds_none("What the model puts out with these heads ablated")
        size = max(1.0, float(self._expected.abs().max()))
        eps = torch.finfo(lens.model.dtype).eps
        self.tolerance = size * max(WITHIN, 8 * eps if lens.model.dtype.itemsize < 4 else 0)

    def difference(self, model: PreTrainedModel) -> float:
        """Measure by how much a model's outputs differ at most from the ablated ones.

        Args:
            model: a pruned model.

        Returns:
            The largest absolute difference of any logit (of a model without logits, of any state).
        """
        found = self._outputs(model)
        if found.shape != self._expected.shape:
            return float("inf")
        return float((found - self._expected).abs().max())

    def first(self, makers: Iterable[Callable[[], PreTrainedModel]]) -> tuple[PreTrainedModel, float] | None:
        """Find the first way of making the pruned model that gives the ablated model's outputs.

        Args:
            makers: make it; whatever one raises means that this is no way.

        Returns:
            What it made, and its largest difference; None where none works.
        """
        for make in makers:
            try:
                model = make()
                difference = self.difference(model)
                if difference <= self.tolerance:
                    return model, difference
            except Exception:  # a family's code may fail on sizes that it was not made for in any way
                continue
        return None

    def check(self, model: PreTrainedModel, what: str, why: str = JOINT) -> float:
        """Refuse a model whose outputs are not the ablated ones.

        Args:
            model: a pruned model.
            what: how it was pruned, for the message.
            why: what it may come from, for the message.

        Returns:
            The largest difference.

        Raises:
            ModelError: they differ by more than `tolerance`.
        """
        found = self.difference(model)
        if not found <= self.tolerance:
            raise ModelError(
                f"{type(model).__name__} {what} puts out other values than with the same heads ablated "
                f"(up to {found:.2g} apart, where at most {self.tolerance:.2g} is rounding).",
                why,
            )
        return found

    def _outputs(self, model: PreTrainedModel) -> Tensor:
        drawn = torch.Generator().manual_seed(self._seed)
        with torch.no_grad():
            outputs: Any = run(model, lengths=(6 * N_TOKENS, 6 * N_SOURCE), drawn=drawn)
        first: Tensor = outputs.logits if "logits" in outputs else outputs[0]
        return first.float().cpu()
