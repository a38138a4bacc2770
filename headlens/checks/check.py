"""Self-checks of a model; `CHECKS` names them in order."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import asdict, replace
from typing import Any

import torch
from tqdm import tqdm

from headlens.checks.inputs import Check, CheckOptions, CheckOutcome, Finding, Subject, does_not_apply
from headlens.checks.of_attention import (
    ablation,
    batch,
    causality,
    evenness,
    left_padding,
    no_op,
    numbers,
    observing,
    padding,
    rows,
)
from headlens.checks.of_model import backends, heads, own_patterns, tokens, weights, windows, words
from headlens.errors import HeadlensError, InputError, is_out_of_memory
from headlens.model.lens import Lens

SPOILED = f"not made: it needs numbers, and the check {numbers.name} failed"


def check(
    lens: Lens | str, *, only_cheap: bool = False, options: CheckOptions | None = None, quiet: bool = True
) -> list[Finding]:
    """Check the measuring itself on a model: padding, causality, rows, ablation, backends and so on.

    Args:
        lens: a model under the lens, or what `headlens.load` takes.
        only_cheap: make only those checks that take a few short passes.
        options: how the model is run.
        quiet: show no progress bar.

    Returns:
        What was found, one `Finding` for each check, in order: name, passed (None where it does not apply),
        said, figure, allowed, meaning. ``pandas.DataFrame(headlens.check(lens))`` is a table of it.

    Raises:
        ModelError: the model cannot be loaded, or neither way of capture can serve it.
        InputError: it is being observed or edited.
    """
    lens = Lens.load(lens, allow_random_weights=True) if isinstance(lens, str) else lens
    if lens.seam.is_open:
        raise InputError(
            "The model is being observed or edited, so it is not itself.",
            "Check it outside of with lens.observe(...) and lens.ablate(...).",
        )
    subject = Subject(lens, options)
    chosen = [one for one in CHECKS.values() if one.cheap or not only_cheap]
    findings: list[Finding] = []
    with torch.no_grad(), lens.seam.alone(), tqdm(total=len(chosen), desc="Checking", disable=quiet) as bar:
        for one in chosen:
            bar.set_postfix_str(one.name)
            if any(found.name == numbers.name and found.passed is False for found in findings):
                # what comes after would blame what it looks at
                one = replace(one, does=lambda _: does_not_apply(SPOILED), meaning="")
            findings.append(finding_of(one, subject))
            bar.update()
    return findings


def as_record(findings: Sequence[Finding]) -> dict[str, Any]:
    """Put findings as `run.json` has them.

    Args:
        findings: from `check`.

    Returns:
        By the name of each check: passed (None where it does not apply), figure, allowed, and both in words;
        what it means, where it failed.
    """
    record = {one.name: asdict(one) for one in findings}
    for facts in record.values():
        del facts["name"]
        if facts["passed"] is not False:
            del facts["meaning"]
    return record


def finding_of(one: Check, subject: Subject) -> Finding:
    """Make one check; whatever goes wrong is what it finds.

    Args:
        one: the check.
        subject: the model.

    Returns:
        What was found.
    """
    try:
        found = one.does(subject)
    except HeadlensError as error:
        found = CheckOutcome(False, str(error))
    except Exception as error:  # a family's own code may fail in any way: that is what was found
        if is_out_of_memory(error):
            raise
        found = CheckOutcome(False, f"the model fails ({type(error).__name__}: {error})".replace("\n", " "))
    figure = found.figure if found.figure is not None and math.isfinite(found.figure) else None
    return Finding(one.name, found.passed, found.said, figure, found.allowed, one.meaning)


# ---- Self-checks: whether what headlens measures on a model can be believed


CHECKS: dict[str, Check] = {
    one.name: one
    for one in (
        weights,
        heads,
        windows,
        tokens,
        words,
        numbers,
        rows,
        causality,
        evenness,
        observing,
        no_op,
        padding,
        left_padding,
        batch,
        own_patterns,
        backends,
        ablation,
    )
}
"""The checks by their names, in the order in which they are made."""
