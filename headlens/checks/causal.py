"""The check that layers see later tokens where they should, and nowhere else."""

from __future__ import annotations

import math
from dataclasses import replace

from headlens.checks.base import Outcome, does_not_apply, largest, within
from headlens.checks.fed import apart, feed, run
from headlens.checks.seen import Seen
from headlens.checks.subject import Subject
from headlens.checks.texts import Pair
from headlens.corpus.inputs import Item
from headlens.model.heads import Site

SEEN = 1e-6  # a weight above it is one


def causality(subject: Subject) -> Outcome:
    """Causal layers give later tokens nothing, by weight and by behaviour; others give them something."""
    sites = [site for site in subject.alone[0].patterns if site.stack != "cross"]
    ahead = {site: largest(_ahead(seen, site) for seen in subject.alone) for site in sites}
    for site, weight in ahead.items():
        if math.isnan(weight):
            return Outcome(False, f"layer {site} gives later tokens NaN", weight)
        if site.causal and not weight <= 0:
            return Outcome(False, f"layer {site} gives a later token the weight {weight:.2g}", weight, 0)
        if not site.causal and _calls_itself_causal(subject, site):
            return Outcome(False, f"layer {site} calls itself causal and sees later tokens", weight, 0)
        if not site.causal and not weight > SEEN:
            return Outcome(False, f"layer {site}, which is not causal, gives later tokens no weight", weight)
    if not sites:
        return does_not_apply("no layer attends to its own tokens")
    return _in_words(subject, ahead)


def _in_words(subject: Subject, ahead: dict[Site, float]) -> Outcome:
    both = [weight for site, weight in ahead.items() if not site.causal]
    said = [f"layers that look both ways give some later token {min(both):.2g} or more"] if both else []
    if len(both) == len(ahead):
        return Outcome(True, said[0], min(both))
    said.append("causal layers give later tokens no weight")
    last = list(ahead)[-1].stack
    if not all(site.causal for site in ahead if site.stack == last):
        return Outcome(True, "; ".join(said), 0, 0)
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
