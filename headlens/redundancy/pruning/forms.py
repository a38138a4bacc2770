"""The forms that a pruned model can have."""

from __future__ import annotations

import copy
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from transformers import PreTrainedModel

from headlens.errors import ModelError
from headlens.model.heads import Head
from headlens.model.lens import Lens
from headlens.model.source import Compact, read_compact
from headlens.model.weights import Layout, layouts
from headlens.redundancy.pruning.by_config import makers
from headlens.redundancy.pruning.by_surgery import compacts, shrunk
from headlens.redundancy.pruning.plan import Plan, cut_alike, cut_each, silence
from headlens.redundancy.pruning.probe import Probe
from headlens.redundancy.pruning.surgery import without


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
    plan: Plan
    compact: Compact | None
    difference: float
    probe: Probe


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
    probe, plan = Probe(lens, removed), silence(lens.anatomy, removed)
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
    probe, places = Probe(lens, removed), _layouts(lens)
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
    probe, plan = Probe(lens, removed), cut_each(lens.anatomy, removed)
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
