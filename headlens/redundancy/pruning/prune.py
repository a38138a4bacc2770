"""`prune`: a checkpoint without some heads, checked before it is written and after."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import torch

from headlens.errors import InputError, ModelError
from headlens.model.devices import is_spread
from headlens.model.heads import Head
from headlens.model.lens import Lens, load
from headlens.model.load import find
from headlens.redundancy.pruning.cost import Cost, costs
from headlens.redundancy.pruning.forms import FORMS, Pruned
from headlens.redundancy.pruning.saving import check_place, save, staged
from headlens.redundancy.pruning.stored import check_nothing_is_rounded
from headlens.util.files import locked

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
    check_form(form)
    out = Path(out)
    lens = load(lens) if isinstance(lens, str) else lens
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
    again = load(str(place), device=str(lens.device), dtype=dtype, allow_random_weights=bool(lens.missing))
    made_up = {name: pruned.model.get_parameter(name) for name in again.missing}
    with torch.no_grad():
        for name, weight in made_up.items():
            again.model.get_parameter(name).copy_(weight)
    return again


def _on_disk(lens: Lens) -> int:
    files = lens.source.files if lens.source is not None else ()
    return sum(path.stat().st_size for path in files)


def check_form(form: str) -> None:
    """Refuse a form that does not exist.

    Args:
        form: what the user asks for.

    Raises:
        InputError: it is not in `FORMS`.
    """
    if form not in FORMS:
        raise InputError(f"There is no form {form!r}.", f"Choose one of: {', '.join(FORMS)}.")
