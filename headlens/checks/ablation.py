"""The check that every head's absence shows, and that `ablate` takes out what it says."""

from __future__ import annotations

from collections.abc import Sequence

from torch import Tensor

from headlens.checks.base import Outcome, largest
from headlens.checks.fed import Fed, apart, feed, repeated, run
from headlens.checks.subject import Subject
from headlens.model.heads import Head, Site
from headlens.model.lens import Lens

TOKENS_AT_ONCE = 2048  # of all rows together
NAMED = 8  # dead heads
NOTHING = 1e-6  # an effect this small is none

States = tuple[Tensor, ...]


def ablation(subject: Subject) -> Outcome:
    """Taking a head out changes what the model puts out, and as much by itself as in a row of a batch."""
    lens, fed = subject.lens, feed(subject.lens, subject.pairs[:1])
    size = subject.options.batch_size or max(1, TOKENS_AT_ONCE // fed.inputs["input_ids"].shape[1])
    effects: dict[Head, float] = {}
    gaps = []
    for site in subject.alone[0].patterns:
        mine, states = _one_by_one(lens, fed, site, size)
        effects |= mine
        head = max(mine, key=lambda head: mine[head])
        with lens.ablate([head]):
            gaps.append(apart(run(lens, fed), states[head]))
    differ, allowed = largest(gaps), subject.rounding
    if not differ <= allowed:
        said = f"a head that lens.ablate takes out and one that is zeroed by hand differ by {differ:.2g}"
        return Outcome(False, f"{said}, allowed {allowed:.2g}", differ, allowed)
    return _effects(subject, effects, max(NOTHING, 2 * _noise(lens, fed, size)))


def _effects(subject: Subject, effects: dict[Head, float], least: float) -> Outcome:
    anatomy = subject.lens.anatomy
    dead = [head for head, effect in effects.items() if not effect > least]
    for site in anatomy.sites:
        if site.heads[0] in effects and set(site.heads) <= set(dead):
            return Outcome(False, f"no head of layer {site} has an effect above {least:.2g}", 0.0)
    head = min(effects, key=lambda head: effects[head])
    if not dead:
        said = f"all {len(effects)} heads have an effect, {anatomy.name(head)} the least, {effects[head]:.2g}"
        return Outcome(True, said, effects[head])
    names = ", ".join(anatomy.name(head) for head in dead[:NAMED])
    more = f" and {len(dead) - NAMED} more" if len(dead) > NAMED else ""
    said = f"{len(dead)} of {len(effects)} heads are dead (no effect above {least:.2g}): {names}{more}"
    return Outcome(True, said, effects[head])


def _one_by_one(lens: Lens, fed: Fed, site: Site, size: int) -> tuple[dict[Head, float], dict[Head, States]]:
    """What the absence of each head of a site changes, and the states without it.

    One text is repeated in a batch, and each row goes without another head; the last row goes with all.
    """
    effects: dict[Head, float] = {}
    states: dict[Head, States] = {}
    for first in range(0, site.n_heads, size):
        heads = site.heads[first : first + size]
        *without, whole = _without(lens, fed, site, [head.head for head in heads])
        states |= dict(zip(heads, without, strict=True))
        effects |= {head: apart(whole, states[head]) for head in heads}
    return effects, states


def _without(lens: Lens, fed: Fed, site: Site, heads: Sequence[int]) -> list[States]:
    rows = list(range(len(heads)))

    def silence(where: Site, output: Tensor) -> Tensor:
        if where != site:
            return output
        output = output.clone()  # [row, query, head, width]
        output[rows, :, list(heads)] = 0
        return output

    with lens.edit(silence):
        states = run(lens, repeated(fed, len(heads) + 1))
    return [tuple(one[row : row + 1] for one in states) for row in range(len(heads) + 1)]


def _noise(lens: Lens, fed: Fed, size: int) -> float:
    """By how much the rows of a batch differ that are the same input with all heads."""
    states = run(lens, repeated(fed, min(size, lens.anatomy.sites[0].n_heads) + 1))
    return apart([one[:1].expand_as(one) for one in states], states)
