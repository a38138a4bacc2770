"""The check that the weights are those of a checkpoint, and numbers."""

from __future__ import annotations

from headlens.checks.base import Outcome
from headlens.checks.subject import Subject
from headlens.numeric import broken_parameter
from headlens.opening import body_weights


def weights(subject: Subject) -> Outcome:
    """No weight of the embeddings and blocks is missing, and none holds NaN."""
    lens = subject.lens
    lacking = body_weights(lens)
    if lacking:
        n = len(lacking)
        return Outcome(False, f"the checkpoint lacks {n} weights, such as {lacking[0]}", n, 0)
    broken = broken_parameter(lens.model.named_parameters())
    if broken:
        return Outcome(False, f"the weight {broken} holds NaN or an infinite number")
    n = sum(1 for _ in lens.model.parameters())
    where = "are numbers" if lens.source is None else "are there, and numbers"
    return Outcome(True, f"all {n} weights {where}", 0, 0)
