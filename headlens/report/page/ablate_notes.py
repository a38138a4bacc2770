"""What a reader of a run of ``headlens ablate`` should know, and what the run says nothing about."""

from __future__ import annotations

from headlens.ablation.result import SIGNIFICANT
from headlens.report.page.ablation_run import Ablation
from headlens.runs.read import at, failed_checks
from headlens.util.formatting import counted, visible


def notes(found: Ablation) -> list[str]:
    """Say what the reader should know before believing it."""
    said = [*failed_checks(found.run), *(str(note) for note in at(found.run, "notes", default=()))]
    if at(found.run, "bundled_sample"):
        said.append("These are results for the small sample of headlens: no --benchmark was given.")
    if missing := at(found.run, "model", "missing_weights", default=()):
        said.append(
            f"The checkpoint lacks these weights, so they are random: {', '.join(map(str, missing))}."
        )
    n = int(found.table["n"].max())
    said.append(
        f"Effects are claimed where q < {SIGNIFICANT}. With {counted(n, 'example')} even a real loss may not "
        "be significant: look at the intervals."
    )
    return [visible(text) for text in said]


def unmeasured(found: Ablation) -> list[str]:
    """Say what the run says nothing about."""
    mode = visible(str(found.table["mode"].iloc[0]))
    said = [f"Any other benchmark, and what stands in a head's place by any --mode but {mode}."]
    if undefined := int(found.rows["delta"].isna().sum()):
        said.append(f"{visible(found.metric)} is not defined under {counted(undefined, 'condition')}.")
    measured = int((found.importance["method"] == "each").sum())
    if found.kind == "each" and measured > len(found.rows):
        left = counted(measured - len(found.rows), "head")
        said.append(f"{left} did not rank high enough to be taken out (--screen); q-values count them all.")
    if found.kind == "each":
        said.append("Heads that stand in for each other: --sweep cumulative, only and tags take several out.")
    return said
