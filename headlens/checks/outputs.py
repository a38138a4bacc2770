"""Checks that looking changes nothing, and that taking out nothing changes nothing."""

from __future__ import annotations

from headlens.checks.base import Outcome, largest, within
from headlens.checks.fed import apart
from headlens.checks.rounding import rounding
from headlens.checks.subject import Subject
from headlens.model.heads import Site
from headlens.model.seam import Block


def observing(subject: Subject) -> Outcome:
    """Logits are the same while someone observes, and afterwards."""
    lens, fed, plain = subject.lens, subject.alone[-1].fed, subject.plain_logits
    with lens.observe(_nobody):
        during = apart([plain], [subject.logits(fed)])
    after = apart([plain], [subject.logits(fed)])
    said = f"logits change by {during:.2g} under observation and by {after:.2g} after it"
    return within(largest([during, after]), subject.rounding, said)


def no_op(subject: Subject) -> Outcome:
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
