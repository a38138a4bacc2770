"""Checks against `transformers` itself: its other way to compute, and the patterns that it returns."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

from torch import Tensor
from transformers import PreTrainedModel

from headlens.checks.base import Outcome, does_not_apply, largest, within, worst
from headlens.checks.fed import apart, real_states, run
from headlens.checks.rounding import rounding
from headlens.checks.seen import look
from headlens.checks.subject import Subject
from headlens.model.attention_call import configs_of
from headlens.model.heads import Head

PATTERNS = {
    "encoder": ("encoder_attentions", "attentions"),
    "decoder": ("decoder_attentions", "attentions"),
    "cross": ("cross_attentions",),
}
"""Where transformers puts the patterns of a stack."""


def backends(subject: Subject) -> Outcome:
    """Eager and sdpa give the same states, with all heads and with some out."""
    lens, fed = subject.lens, subject.together
    parts = [part for part in lens.model.modules() if isinstance(part, PreTrainedModel)]
    if not all(part._supports_sdpa for part in parts):
        return does_not_apply(f"{type(lens.model).__name__} has no sdpa attention")
    first = [site.heads[0] for site in subject.alone[0].patterns]
    whole: list[Sequence[Tensor]] = []
    without: list[Sequence[Tensor]] = []
    for name in ("eager", "sdpa"):
        with computing(lens.model, name):
            whole.append(real_states(run(lens, fed), fed))
            with lens.ablate(first):
                without.append(real_states(run(lens, fed), fed))
    plain, ablated = apart(*whole), apart(*without)
    said = f"eager and sdpa differ by {plain:.2g}, with head 0 of each layer out by {ablated:.2g}"
    return within(largest([plain, ablated]), subject.rounding, said)


def own_patterns(subject: Subject) -> Outcome:
    """Patterns are those that the model returns itself, on a padded batch."""
    lens, fed = subject.lens, subject.together
    body: Any = lens.model.base_model
    given = {name: x.to(lens.device) for name, x in fed.inputs.items() if name in lens.arguments}
    with computing(lens.model, "eager"):
        outputs = body(**given, output_attentions=True)
    seen = look(lens, fed)
    gaps: dict[Head, float] = {}
    for stack in lens.anatomy.stacks:
        own, sites = _returned(outputs, stack), [site for site in seen.patterns if site.stack == stack]
        if len(own) != len(sites):
            return does_not_apply(f"transformers returns {len(own)} patterns for {len(sites)} {stack} layers")
        for site, pattern in zip(sites, own, strict=True):
            differs = (pattern.float().cpu() - seen.patterns[site]).abs().amax(-1)  # [row, head, query]
            differs = differs.transpose(1, 2)[fed.queries(site)].amax(0)
            gaps |= dict(zip(site.heads, differs.tolist(), strict=True))
    said = f"weights differ from those of output_attentions=True by {worst(lens, gaps)}"
    return within(largest(gaps.values()), rounding(lens), said)


def _returned(outputs: Any, stack: str) -> Sequence[Tensor]:
    for name in PATTERNS[stack]:
        found = getattr(outputs, name, None)
        if found:
            return [pattern for pattern in found if isinstance(pattern, Tensor)]
    return []


@contextmanager
def computing(model: PreTrainedModel, name: str) -> Iterator[None]:
    """Have a model compute its attention in another way while the block lasts.

    Args:
        model: the model; afterwards it is as it was.
        name: "eager" or "sdpa".

    Yields:
        Nothing.
    """
    configs = configs_of(model)
    kept = [config._attn_implementation_internal for config in configs]
    for config in configs:
        config._attn_implementation_internal = name
    try:
        yield
    finally:
        for config, implementation in zip(configs, kept, strict=True):
            config._attn_implementation_internal = implementation
