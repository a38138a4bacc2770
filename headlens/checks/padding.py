"""Checks that what stands beside an input changes nothing: padding on either side, and other inputs."""

from __future__ import annotations

from headlens.checks.base import Outcome, does_not_apply, largest, within, worst
from headlens.checks.fed import feed
from headlens.checks.seen import Gap, gap, look
from headlens.checks.subject import Subject
from headlens.checks.texts import Pair, bare

N_OTHERS = 3


def padding(subject: Subject) -> Outcome:
    """Inputs alone are what they are beside longer ones, padded on the right."""
    return _outcome(subject, _gaps(subject, left=False), "beside longer ones")


def left_padding(subject: Subject) -> Outcome:
    """Inputs alone are what they are beside longer ones, padded on the left."""
    found = _outcome(subject, _gaps(subject, left=True), "padded on the left")
    if not found.passed and "position_ids" not in subject.lens.arguments:
        return does_not_apply(
            "this model cannot be told the positions of its tokens, so it is padded on the right (on the "
            f"left they change by {found.figure:.2g})"
        )
    return found


def batch(subject: Subject) -> Outcome:
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


def _outcome(subject: Subject, gaps: list[Gap], how: str) -> Outcome:
    weights = {head: largest(one.weights[head] for one in gaps) for head in gaps[0].weights}
    states = largest(one.states for one in gaps)
    said = f"an input {how}: weights differ by {worst(subject.lens, weights)}, states by {states:.2g}"
    return within(largest([states, *weights.values()]), subject.rounding, said)
