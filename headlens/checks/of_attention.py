"""Checks of attention: patterns, masks, outputs, padding, ablation."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace

import torch
from torch import Tensor, nn

from headlens.checks.inputs import (
    CheckOutcome,
    Fed,
    Gap,
    Pair,
    Seen,
    Subject,
    apart,
    as_check,
    bare,
    does_not_apply,
    feed,
    gap,
    largest,
    look,
    repeated,
    rounding,
    run,
    within,
    worst,
)
from headlens.corpus.inputs import Item
from headlens.model.heads import Head, Site
from headlens.model.lens import Lens
from headlens.model.seam import Block, Seam

EVEN = 0.95  # of the largest entropy; the sharpest head of a trained model has next to none


@as_check(
    "The model computes with what is no number, so nothing that is measured on it means anything; try "
    "--dtype float32."
)
def numbers(subject: Subject) -> CheckOutcome:
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
        return CheckOutcome(False, said, len(broken), 0)
    states = sum(int((~torch.isfinite(x)).sum()) for seen in subject.alone for x in seen.real_states(0))
    plain = subject.plain_logits
    logits = int((torch.isnan(plain) | torch.isposinf(plain)).sum())  # minus infinity forbids a token
    if states + logits:
        said = f"no number where {states} states and {logits} logits should be"
        return CheckOutcome(False, said, states + logits, 0)
    return CheckOutcome(True, f"all weights of {len(anatomy.heads)} heads are numbers, and all states", 0, 0)


def _not_finite(site: Site, pattern: Tensor) -> Iterator[Head]:
    broken = (~torch.isfinite(pattern)).any(-1).any(-1)  # [head]
    for number in broken.nonzero().flatten().tolist():
        yield site.heads[number]


@as_check("What is captured are not attention weights after softmax, so no score of them can be trusted.")
def rows(subject: Subject) -> CheckOutcome:
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


@as_check(
    "All heads look everywhere alike, as in a model that was never trained, so nothing tells them apart."
)
def evenness(subject: Subject) -> CheckOutcome:
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


# ---- Whether rows that sum to less than 1 do so for the sake of a sink, found by trying


NOWHERE = -1e4  # a logit that takes nothing, in float16, too


def without_sinks(subject: Subject, sites: Sequence[Site]) -> dict[Site, float]:
    """Try whether rows sum to 1 once what may be a sink takes nothing.

    A sink is a parameter of the attention module with a number for each head. With it so low that it takes
    nothing, rows have to sum to 1, and their weights have to stay in proportion.

    Args:
        subject: the model.
        sites: whose rows sum to less than 1.

    Returns:
        For every site that has such a parameter: how far it is from that, at most.
    """
    lens, fed, found = subject.lens, subject.alone[-1].fed, dict[Site, float]()

    def look(site: Site, output: Tensor) -> Tensor:
        if site in sites:
            module = lens.model.get_submodule(site.module)
            gaps = [_gap(lens.seam, one) for one in module.parameters(recurse=False) if _fits(one, site)]
            if gaps:
                found[site] = min(gaps)
        return output

    if sites:
        with lens.edit(look):
            run(lens, fed)
    return found


def _fits(parameter: nn.Parameter, site: Site) -> bool:
    return parameter.numel() == site.n_heads


def _gap(seam: Seam, sink: nn.Parameter) -> float:
    """How far the site that is running is from rows that sum to 1 and were in proportion."""
    call = seam.call
    if call is None:
        return float("inf")
    n_queries = call.query.shape[2]
    before = call.block(0, n_queries)[1].float()
    with _lowered(sink):
        after = call.block(0, n_queries)[1].float()
    in_proportion = after * before.sum(-1, keepdim=True)
    return largest([float((after.sum(-1) - 1).abs().max()), float((in_proportion - before).abs().max())])


@contextmanager
def _lowered(parameter: nn.Parameter) -> Iterator[None]:
    kept = parameter.detach().clone()
    with torch.no_grad():
        parameter.fill_(NOWHERE)
        try:
            yield
        finally:
            parameter.copy_(kept)


# ---- The check that layers see later tokens where they should, and nowhere else


SEEN = 1e-6  # a weight above it is one


@as_check(
    "Tokens reach others that they should not, or fail to reach those that they should, so the masks are "
    "wrong."
)
def causality(subject: Subject) -> CheckOutcome:
    """Causal layers give later tokens nothing, by weight and by behaviour; others give them something."""
    sites = [site for site in subject.alone[0].patterns if site.stack != "cross"]
    ahead = {site: largest(_ahead(seen, site) for seen in subject.alone) for site in sites}
    for site, weight in ahead.items():
        if math.isnan(weight):
            return CheckOutcome(False, f"layer {site} gives later tokens NaN", weight)
        if site.causal and not weight <= 0:
            return CheckOutcome(False, f"layer {site} gives a later token the weight {weight:.2g}", weight, 0)
        if not site.causal and _calls_itself_causal(subject, site):
            return CheckOutcome(False, f"layer {site} calls itself causal and sees later tokens", weight, 0)
        if not site.causal and not weight > SEEN:
            return CheckOutcome(
                False, f"layer {site}, which is not causal, gives later tokens no weight", weight
            )
    if not sites:
        return does_not_apply("no layer attends to its own tokens")
    return _in_words(subject, ahead)


def _in_words(subject: Subject, ahead: dict[Site, float]) -> CheckOutcome:
    both = [weight for site, weight in ahead.items() if not site.causal]
    said = [f"layers that look both ways give some later token {min(both):.2g} or more"] if both else []
    if len(both) == len(ahead):
        return CheckOutcome(True, said[0], min(both))
    said.append("causal layers give later tokens no weight")
    last = list(ahead)[-1].stack
    if not all(site.causal for site in ahead if site.stack == last):
        return CheckOutcome(True, "; ".join(said), 0, 0)
    change = _behaviour(subject)
    said.append(f"another last token changes earlier states by {change:.2g}")
    return within(change, subject.rounding, "; ".join(said))


def _ahead(seen: Seen, site: Site) -> float:
    """The largest weight on a key after its query."""
    return float(seen.patterns[site].triu(1).max())


def _calls_itself_causal(subject: Subject, site: Site) -> bool:
    """Whether a layer's module says that it is causal, and its config does not say otherwise."""
    module = subject.lens.model.get_submodule(site.module)
    config = subject.lens.model.config.get_text_config()
    return getattr(module, "is_causal", False) is True and getattr(config, "is_causal", True) is not False


def _behaviour(subject: Subject) -> float:
    """By how much states before the last token differ when that is another one."""
    lens, (source, target) = subject.lens, subject.pairs[-1]
    other: Pair = (_changed(source), None) if target is None else (source, _changed(target))
    before, after = (run(lens, feed(lens, [pair]))[0] for pair in ((source, target), other))
    return apart([before[:, :-1]], [after[:, :-1]])


def _changed(item: Item) -> Item:
    ids = item.encoded.inputs["input_ids"]
    other = next((one for one in ids if one != ids[-1]), ids[-1] - 1 if ids[-1] else 1)
    inputs = {**item.encoded.inputs, "input_ids": [*ids[:-1], other]}
    return replace(item, encoded=replace(item.encoded, inputs=inputs))


# ---- Checks that looking changes nothing, and that taking out nothing changes nothing


@as_check("Looking changes what the model computes, so its patterns are not those of the model that is used.")
def observing(subject: Subject) -> CheckOutcome:
    """Logits are the same while someone observes, and afterwards."""
    lens, fed, plain = subject.lens, subject.alone[-1].fed, subject.plain_logits
    with lens.observe(_nobody):
        during = apart([plain], [subject.logits(fed)])
    after = apart([plain], [subject.logits(fed)])
    said = f"logits change by {during:.2g} under observation and by {after:.2g} after it"
    return within(largest([during, after]), subject.rounding, said)


@as_check(
    "The place where heads are taken out changes the model by itself, so effects of ablation are not "
    "those of the heads."
)
def no_op(subject: Subject) -> CheckOutcome:
    """Logits are the same while no head is out, and with every head put back as it is."""
    lens, fed, plain = subject.lens, subject.alone[-1].fed, subject.plain_logits
    found = []
    for block in (lens.ablate([]), lens.edit(lambda _, output: output.clone())):
        with block:
            found.append(apart([plain], [subject.logits(fed)]))
    figure = largest(found)
    return within(figure, rounding(lens), f"logits change by {figure:.2g} with no head out")


def _nobody(site: Site, block: Block) -> None:
    """Look away."""


# ---- Checks that what stands beside an input changes nothing: padding on either side, and other inputs


N_OTHERS = 3


@as_check("Scores of a text depend on how long the other texts of its batch are.")
def padding(subject: Subject) -> CheckOutcome:
    """Inputs alone are what they are beside longer ones, padded on the right."""
    return _outcome(subject, _gaps(subject, left=False), "beside longer ones")


@as_check("Scores of a text depend on the padding before it: pad this model on the right.")
def left_padding(subject: Subject) -> CheckOutcome:
    """Inputs alone are what they are beside longer ones, padded on the left."""
    found = _outcome(subject, _gaps(subject, left=True), "padded on the left")
    if not found.passed and "position_ids" not in subject.lens.arguments:
        return does_not_apply(
            "this model cannot be told the positions of its tokens, so it is padded on the right (on the "
            f"left they change by {found.figure:.2g})"
        )
    return found


@as_check("Scores of a text depend on which other texts are in its batch: use --batch-size 1.")
def batch(subject: Subject) -> CheckOutcome:
    """An input alone is what it is beside others of its length."""
    lens = subject.lens
    source, target = subject.pairs[len(subject.pairs) // 2]
    ids = source.encoded.inputs["input_ids"]
    one, *others = ((bare(ids[n:] + ids[:n]), target) for n in range(N_OTHERS + 1))
    rows: list[Pair] = [*others, one]
    together = look(lens, feed(lens, rows))
    found = gap(look(lens, feed(lens, [one])), together, row=N_OTHERS)
    return _outcome(subject, [found], f"beside {N_OTHERS} others of its length")


def _gaps(subject: Subject, left: bool) -> list[Gap]:
    together = look(subject.lens, feed(subject.lens, subject.pairs, left))
    return [gap(alone, together, row) for row, alone in enumerate(subject.alone)]


def _outcome(subject: Subject, gaps: list[Gap], how: str) -> CheckOutcome:
    weights = {head: largest(one.weights[head] for one in gaps) for head in gaps[0].weights}
    states = largest(one.states for one in gaps)
    said = f"an input {how}: weights differ by {worst(subject.lens, weights)}, states by {states:.2g}"
    return within(largest([states, *weights.values()]), subject.rounding, said)


# ---- The check that every head's absence shows, and that `ablate` takes out what it says


TOKENS_AT_ONCE = 2048  # of all rows together
NAMED = 8  # dead heads
NOTHING = 1e-6  # an effect this small is none

States = tuple[Tensor, ...]


@as_check(
    "Ablation does not reach the model, so a loss of nothing under ablation shows nothing.",
    cheap=False,
)
def ablation(subject: Subject) -> CheckOutcome:
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
        return CheckOutcome(False, f"{said}, allowed {allowed:.2g}", differ, allowed)
    return _effects(subject, effects, max(NOTHING, 2 * _noise(lens, fed, size)))


def _effects(subject: Subject, effects: dict[Head, float], least: float) -> CheckOutcome:
    anatomy = subject.lens.anatomy
    dead = [head for head, effect in effects.items() if not effect > least]
    for site in anatomy.sites:
        if site.heads[0] in effects and set(site.heads) <= set(dead):
            return CheckOutcome(False, f"no head of layer {site} has an effect above {least:.2g}", 0.0)
    head = min(effects, key=lambda head: effects[head])
    if not dead:
        said = f"all {len(effects)} heads have an effect, {anatomy.name(head)} the least, {effects[head]:.2g}"
        return CheckOutcome(True, said, effects[head])
    names = ", ".join(anatomy.name(head) for head in dead[:NAMED])
    more = f" and {len(dead) - NAMED} more" if len(dead) > NAMED else ""
    said = f"{len(dead)} of {len(effects)} heads are dead (no effect above {least:.2g}): {names}{more}"
    return CheckOutcome(True, said, effects[head])


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
