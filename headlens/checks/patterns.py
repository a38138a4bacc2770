"""Checks of the patterns themselves: they are numbers, their rows sum to 1, and heads can be told apart."""

from __future__ import annotations

from collections.abc import Iterator

import torch
from torch import Tensor

from headlens.checks.base import Outcome, does_not_apply, largest, within
from headlens.checks.rounding import rounding
from headlens.checks.seen import Seen
from headlens.checks.sinks import without_sinks
from headlens.checks.subject import Subject
from headlens.model.heads import Head, Site

EVEN = 0.95  # of the largest entropy; the sharpest head of a trained model has next to none


def numbers(subject: Subject) -> Outcome:
    """Patterns and states are finite, logits are numbers."""
    anatomy = subject.lens.anatomy
    broken = dict.fromkeys(
        head
        for seen in subject.alone
        for site in seen.patterns
        for head in _not_finite(site, seen.real_pattern(site, 0))
    )
    if broken:
        first = anatomy.name(next(iter(broken)))
        said = f"{len(broken)} of {len(anatomy.heads)} heads look at NaN, first {first}"
        return Outcome(False, said, len(broken), 0)
    states = sum(int((~torch.isfinite(x)).sum()) for seen in subject.alone for x in seen.real_states(0))
    plain = subject.plain_logits
    logits = int((torch.isnan(plain) | torch.isposinf(plain)).sum())  # minus infinity forbids a token
    if states + logits:
        said = f"no number where {states} states and {logits} logits should be"
        return Outcome(False, said, states + logits, 0)
    return Outcome(True, f"all weights of {len(anatomy.heads)} heads are numbers, and all states", 0, 0)


def _not_finite(site: Site, pattern: Tensor) -> Iterator[Head]:
    broken = (~torch.isfinite(pattern)).any(-1).any(-1)  # [head]
    for number in broken.nonzero().flatten().tolist():
        yield site.heads[number]


def rows(subject: Subject) -> Outcome:
    """Every row of every head sums to 1, or to 1 less what its sink takes."""
    allowed = rounding(subject.lens)
    off = {site: _sums(subject.alone, site) - 1 for site in subject.alone[0].patterns}
    less = [site for site, sums in off.items() if sums.min() < -allowed and sums.max() <= allowed]
    gaps = {site: float(sums.abs().max()) for site, sums in off.items()}
    with_sinks = {site: gap for site, gap in without_sinks(subject, less).items() if gap <= allowed}
    figure = largest((gaps | with_sinks).values())
    said = f"largest difference {figure:.2g}"
    if not with_sinks:
        return within(figure, allowed, f"rows sum to 1: {said}")
    taken = -torch.cat([off[site] for site in with_sinks])
    share = f"{taken.min():.2g} to {taken.max():.2g}"
    return within(figure, allowed, f"rows sum to 1 less the sinks' share ({share}): {said}")


def _sums(seen: list[Seen], site: Site) -> Tensor:
    return torch.cat([one.real_pattern(site, 0).sum(-1).flatten() for one in seen])


def evenness(subject: Subject) -> Outcome:
    """Some head looks at some keys more than at others."""
    even: dict[Head, float] = {}
    for site in subject.alone[0].patterns:
        shares = torch.cat([_evenness(seen, site) for seen in subject.alone], dim=1)  # [head, row]
        if shares.shape[1]:
            even |= dict(zip(site.heads, shares.nanmean(1).tolist(), strict=True))
    if not even:
        return does_not_apply("no query can see two keys")
    head = min(even, key=lambda head: even[head])
    name = subject.lens.anatomy.name(head)
    said = f"the least even head, {name}, has {even[head]:.2f} of the largest entropy"
    return within(even[head], EVEN, said)


def _evenness(seen: Seen, site: Site) -> Tensor:
    """Entropy of each row as a share of the largest, of rows that see two keys or more, [head, row]."""
    pattern = seen.real_pattern(site, 0)
    n_seen = seen.visible[site][0, 0][seen.fed.queries(site)[0]].sum(-1)  # [row]
    pattern = pattern[:, n_seen > 1]
    pattern = pattern / pattern.sum(-1, keepdim=True)  # without what sinks take; NaN where that is all
    entropy: Tensor = torch.special.entr(pattern).sum(-1)
    return entropy / n_seen[n_seen > 1].log()
