"""What single checks say of a model."""

from __future__ import annotations

import torch

import headlens
from headlens.checks.check import CHECKS, finding_of
from headlens.checks.inputs import CheckOptions, Subject


def found(model, *names: str, **options) -> list:
    """What some checks say of a model, or of a lens."""
    lens = model if isinstance(model, headlens.Lens) else headlens.load(model)
    subject = Subject(lens, CheckOptions(**options))
    with torch.no_grad(), lens.seam.alone():
        return [finding_of(CHECKS[name], subject) for name in names]


def failed(model, name: str) -> str:
    (finding,) = found(model, name)
    assert finding.passed is False, finding
    return finding.said


def ok(model, name: str) -> str:
    (finding,) = found(model, name)
    assert finding.passed is True, finding
    return finding.said
