"""From a text to what all heads write on it."""

from __future__ import annotations

import inspect
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import torch

from headlens.corpus.batches import Axis, Reading, read
from headlens.map_making import title_of
from headlens.model.finite import holds_none
from headlens.model.heads import Head, Site
from headlens.model.lens import Lens
from headlens.redundancy.contributions.direct import slopes_of
from headlens.redundancy.contributions.measuring import Parts, measure_writing, reaches_logits
from headlens.redundancy.contributions.predicted import Predicted, position_of, predicted, token_id
from headlens.redundancy.contributions.result import Contributions
from headlens.redundancy.contributions.stream import joints_of
from headlens.redundancy.contributions.sums import Array


def contributions(
    lens: Lens,
    text: str,
    pair: str | None = None,
    target: str | None = None,
    *,
    heads: str | Head | Sequence[Head] | None = None,
    token: str | None = None,
    position: int | None = None,
    max_length: int | None = None,
) -> Contributions:
    """Measure what each head writes for one input.

    Args:
        lens: the model and its tokenizer.
        text: what the model reads.
        pair: a second text, for models that read two.
        target: what an encoder-decoder model writes (teacher forcing).
        heads: a selector such as ``2.8,3.*``, or heads; all by default.
        token: the token whose logit is looked at; by default the one that the model ranks first.
        position: where it is predicted, from 0 (in the target of an encoder-decoder model); by default the
            last token, and the first mask token for a model that fills masks in.
        max_length: refuse inputs of more tokens; by default what the model takes.

    Returns:
        What the heads write; see `Contributions`.

    Raises:
        InputError: the text, the token or the position cannot be used.
        SelectorError: a head does not exist.
        ModelError: what heads write does not add up to what W_O puts out, or a W_O is not known.
    """
    chosen = lens.anatomy.heads if heads is None else lens.anatomy.select(heads)
    reading = read(lens, text, pair, target, max_length)
    taken = inspect.signature(lens.model.forward).parameters
    inputs = {name: value for name, value in reading.inputs.items() if name in taken}
    place, why = position_of(lens, inputs, position)
    wanted = None if token is None else token_id(lens, token)
    joints = joints_of(lens)
    parts, answer = measure_writing(lens, inputs, joints, place)
    seen = None if place is None else predicted(lens, answer, place, wanted)
    del answer
    notes = [] if why is None else [why]
    homeless = [site for site in lens.anatomy.sites if site not in joints]
    half = torch.finfo(lens.model.dtype).eps > 1e-5
    if homeless:
        notes.append(
            f"Where {_places(homeless)} adds what it writes to the residual stream was not found: its "
            "stream_share and logit are empty." + " Try --dtype float32: half precision may hide it." * half
        )
    effects = _effects(lens, inputs, parts, seen, homeless)
    notes += _remarks(lens, effects, homeless) if seen is not None else []
    read_as = text + (f" | {pair}" if pair else "") + (f" \u2192 {target}" if target else "")
    values = {site: part.values for site, part in parts.items()}
    axes = _axes(lens, reading)
    return Contributions(
        title_of(lens), lens.anatomy.sites, axes, values, effects, chosen, seen, tuple(notes), read_as
    )


def _effects(
    lens: Lens,
    inputs: Mapping[str, Any],
    parts: Mapping[Site, Parts],
    seen: Predicted | None,
    homeless: Sequence[Site],
) -> dict[Site, Array]:
    effects = {site: np.full(_count(part), np.nan) for site, part in parts.items()}
    if seen is None:
        return effects
    slopes = slopes_of(lens, inputs, seen.position, seen.id)
    for site, slope in slopes.by_site.items():
        if site not in homeless:
            written = parts[site].written
            effects[site] = (written @ slope.to(written)).double().numpy()
            if not np.isfinite(effects[site]).all():
                raise holds_none(f"The derivative of the logit by what {site} writes")
    return effects


def _count(part: Parts) -> int:
    return len(part.values["written_norm"])


def _remarks(lens: Lens, effects: Mapping[Site, Array], homeless: Sequence[Site]) -> list[str]:
    """Say which effects are not there."""
    notes = []
    silent = [site for site in effects if not reaches_logits(lens, site)]
    if silent:
        notes.append(
            "The encoder's heads write to no stream that the language head reads: their logit is empty."
        )
    lost = [
        site
        for site, values in effects.items()
        if np.isnan(values).all() and site not in homeless and site not in silent
    ]
    if lost:
        notes.append(
            f"No path along the residual stream from {_places(lost)} to the logit was found: its logit is "
            "empty."
        )
    return notes


def _places(sites: Sequence[Site]) -> str:
    shown = ", ".join(map(str, sites[:3]))
    return shown + (f" and {len(sites) - 3} more" if len(sites) > 3 else "")


def _axes(lens: Lens, reading: Reading) -> dict[str, Axis]:
    return {stack: reading.axes(stack)[0] for stack in lens.anatomy.stacks}
