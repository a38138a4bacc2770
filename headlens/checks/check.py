"""Self-checks of a model; `CHECKS` names them in order."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import asdict
from typing import Any

import torch
from tqdm import tqdm

from headlens.checks import of_attention as ablation
from headlens.checks import of_attention as causal
from headlens.checks import of_attention as outputs
from headlens.checks import of_attention as padding
from headlens.checks import of_attention as patterns
from headlens.checks import of_model as backends
from headlens.checks import of_model as shape
from headlens.checks import of_model as text
from headlens.checks import of_model as weights
from headlens.checks.inputs import Check, CheckOptions, CheckOutcome, Finding, Subject, does_not_apply
from headlens.errors import HeadlensError, InputError, is_out_of_memory
from headlens.model.lens import Lens

NUMBERS = "numbers"
SPOILED = f"not made: it needs numbers, and the check {NUMBERS} failed"
AFTER_NUMBERS = Check(lambda _: does_not_apply(SPOILED), "")
"""In the place of all checks after that one: each would blame what it looks at."""


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
    chosen = {name: one for name, one in CHECKS.items() if one.cheap or not only_cheap}
    findings: list[Finding] = []
    with torch.no_grad(), lens.seam.alone(), tqdm(total=len(chosen), desc="Checking", disable=quiet) as bar:
        for name, one in chosen.items():
            bar.set_postfix_str(name)
            spoiled = any(found.name == NUMBERS and found.passed is False for found in findings)
            findings.append(finding_of(name, AFTER_NUMBERS if spoiled else one, subject))
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


def finding_of(name: str, one: Check, subject: Subject) -> Finding:
    """Make one check; whatever goes wrong is what it finds.

    Args:
        name: of the check.
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
    return Finding(name, found.passed, found.said, figure, found.allowed, one.meaning)


# ---- Self-checks: whether what headlens measures on a model can be believed; `CHECKS` names them in order


CHECKS: dict[str, Check] = {
    "weights": Check(
        weights.weights,
        "This is not the trained model: missing weights are random, layers that are left out change what is "
        "computed, and broken weights spoil all numbers.",
    ),
    "heads": Check(
        shape.heads,
        "Heads are counted or grouped otherwise than in the config, so numbers may stand at wrong heads.",
    ),
    "windows": Check(
        shape.windows,
        "Layers are taken to see other tokens than they do, so far-away attention is invented or lost.",
    ),
    "tokens": Check(
        text.tokens,
        "The model reads another text than yours, so tokens and weights do not belong together.",
    ),
    "words": Check(
        text.words,
        "Attention would be added up over the wrong pieces, so scores by words are of other words.",
    ),
    "numbers": Check(
        patterns.numbers,
        "The model computes with what is no number, so nothing that is measured on it means anything; try "
        "--dtype float32.",
    ),
    "rows": Check(
        patterns.rows,
        "What is captured are not attention weights after softmax, so no score of them can be trusted.",
    ),
    "causality": Check(
        causal.causality,
        "Tokens reach others that they should not, or fail to reach those that they should, so the masks are "
        "wrong.",
    ),
    "evenness": Check(
        patterns.evenness,
        "All heads look everywhere alike, as in a model that was never trained, so nothing tells them apart.",
    ),
    "observing": Check(
        outputs.observing,
        "Looking changes what the model computes, so its patterns are not those of the model that is used.",
    ),
    "no-op": Check(
        outputs.no_op,
        "The place where heads are taken out changes the model by itself, so effects of ablation are not "
        "those of the heads.",
    ),
    "padding": Check(
        padding.padding,
        "Scores of a text depend on how long the other texts of its batch are.",
    ),
    "left-padding": Check(
        padding.left_padding,
        "Scores of a text depend on the padding before it: pad this model on the right.",
    ),
    "batch": Check(
        padding.batch,
        "Scores of a text depend on which other texts are in its batch: use --batch-size 1.",
    ),
    "own-patterns": Check(
        backends.own_patterns,
        "What is captured differs from the patterns that transformers itself returns for this model.",
        cheap=False,
    ),
    "backends": Check(
        backends.backends,
        "Patterns are those of eager attention, but under sdpa the model computes other numbers, so its "
        "outputs do not belong to them.",
        cheap=False,
    ),
    "ablation": Check(
        ablation.ablation,
        "Ablation does not reach the model, so a loss of nothing under ablation shows nothing.",
        cheap=False,
    ),
}
"""The checks by their names, in the order in which they are made."""
