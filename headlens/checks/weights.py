"""The check that the weights are those of a checkpoint, and numbers."""

from __future__ import annotations

from collections.abc import Sequence

from headlens.checks.base import Outcome
from headlens.checks.subject import Subject
from headlens.model.finite import broken_parameter
from headlens.model.lens import body_weights
from headlens.model.load import in_order, surplus_weights
from headlens.util.formatting import counted


def weights(subject: Subject) -> Outcome:
    """No weight of the embeddings and blocks is missing, none is left over, and none holds NaN."""
    lens = subject.lens
    lacking = body_weights(lens)
    if lacking:
        n = len(lacking)
        return Outcome(False, f"the checkpoint lacks {n} weights, such as {lacking[0]}", n, 0)
    surplus = surplus_weights(lens.model, lens.unused)
    if surplus:
        n = len(surplus)
        problem = f"the files hold {counted(n, 'weight')} of layers that the model does not have, such as "
        return Outcome(False, problem + surplus[0], n, 0)
    broken = broken_parameter(lens.model.named_parameters())
    if broken:
        return Outcome(False, f"the weight {broken} holds NaN or an infinite number")
    n = sum(name not in lens.missing for name, _ in lens.model.named_parameters())
    where = "are numbers" if lens.source is None else "are there, and numbers"
    return Outcome(True, f"all {n} weights {where}{_made_up(lens.missing)}{_unused(lens.unused)}", 0, 0)


def _made_up(names: Sequence[str]) -> str:
    """A remark on a pooler or a task's head that is random: what needs it refuses the model."""
    if not names:
        return ""
    also = f" and {len(names) - 1} more" if len(names) > 1 else ""
    return f" (but {names[0]}{also}, which no head looks through: random)"


def _unused(names: Sequence[str]) -> str:
    """A remark on what is in the files and serves another task, say."""
    if not names:
        return ""
    return f" (the files hold {counted(len(names), 'other')}, not used, such as {in_order(names)[0]})"
