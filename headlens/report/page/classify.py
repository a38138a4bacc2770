"""The page of a run of ``headlens classify``."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pandas as pd

from headlens.findings import clearest
from headlens.report.page.classify_words import findings, notes, unmeasured
from headlens.report.page.parts import Column, Evidence, Section, Table
from headlens.report.page.words import Place, only_stack
from headlens.report.pages import head_names
from headlens.runs.read import read_finished

CAPTIONS: Mapping[str, str] = {
    "tags": "What every head is tagged",
    "best-": "The clearest heads of the tag",
    "offsets": "Which relative offsets positional heads look at",
    "entropy": "How widely the heads of each layer look",
}
_HEAD = Column("name", "head", "head", "head")
_PROOF = [
    Column("measure", "measure", "text", "measure"),
    Column("score", "score", "share", "score"),
    Column("baseline", "baseline", "share", "baseline"),
    Column("effect", "effect", "change", "effect"),
    Column("ci_low", "95 % from", "change", "interval"),
    Column("ci_high", "to", "change", "interval"),
    Column("q_value", "q", "p", "q"),
    Column("n", "n", "count", "n"),
]


def section(path: Path, run: Mapping[str, Any], place: Place) -> Section:
    """Read a run and put it into words.

    Args:
        path: its directory.
        run: its run.json.
        place: of the run in the page.

    Returns:
        The section.

    Raises:
        RunError: the run is not whole.
    """
    found = read_finished(path)
    scores = found.scores.assign(name=head_names(found.scores))
    tags = found.tags.assign(name=head_names(found.tags))
    return Section(
        title=f"What the heads of {found.model or 'a model'} look at",
        findings=findings(scores, tags, run, place),
        tables=[_heads(tags), _clearest(scores)],
        heads=tags["name"].tolist(),
        evidence=[
            Evidence(
                "Every measure of this head",
                "scores.csv",
                "head",
                [
                    Column("tag", "tag", "tags"),
                    *_PROOF,
                    Column("tagged", "carries the tag", "text", "tagged"),
                ],
                ("-tagged", "q_value"),
            )
        ],
        notes=notes(run),
        unmeasured=unmeasured(scores, run),
        files=["tags.csv", "scores.csv"],
        tags=dict(zip(tags["name"], tags["tags"], strict=True)),
        speaks_of=list(dict.fromkeys(scores["tag"])),
        captions=CAPTIONS,
        stack=only_stack(tags["stack"]),
    )


def _heads(tags: pd.DataFrame) -> Table:
    columns = [
        _HEAD,
        Column("tags", "tags", "tags", "tags"),
        Column("evidence", "strongest evidence", "text", "evidence"),
    ]
    return Table("Every head and its tags", columns, tags, "tags.csv")


def _clearest(scores: pd.DataFrame) -> Table:
    """For each head and tag the row that shows it most clearly."""
    parts = [clearest(scores, tag) for tag in dict.fromkeys(scores["tag"])]
    note = "For each head and each of its tags, the measure that shows it most clearly."
    return Table(
        "The evidence",
        [_HEAD, Column("tag", "tag", "tags", "tags"), *_PROOF],
        pd.concat(parts),
        "scores.csv",
        note,
    )
