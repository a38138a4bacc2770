"""The section of a classification."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

import pandas as pd
from markupsafe import Markup

from headlens.report.canvas import head_names
from headlens.report.page.section import Column, Evidence, PageSection, Table
from headlens.report.words import (
    RunPlace,
    chip,
    clearest,
    level,
    only_stack,
    percent,
    points,
    unscored_stacks,
    was_tested,
)
from headlens.runs.read import at, failed_checks
from headlens.scoring.base import Scorer
from headlens.scoring.classify import Classification
from headlens.scoring.scorers import SCORERS
from headlens.util.formatting import counted, listing, visible

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


def section(found: Classification, place: RunPlace) -> PageSection:
    """Put a classification into words, for its place in the page."""
    scores = found.scores.assign(name=head_names(found.scores))
    tags = found.tags.assign(name=head_names(found.tags))
    run = found.run
    return PageSection(
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


# ---- What a run of ``headlens classify`` found, in sentences


def findings(
    scores: pd.DataFrame, tags: pd.DataFrame, run: Mapping[str, Any], place: RunPlace
) -> list[str | Markup]:
    """Say what was read, and what the heads were found to do.

    Args:
        scores: `scores.csv` with the column `name`.
        tags: `tags.csv` with the column `name`.
        run: `run.json`.
        place: of the run in the page.

    Returns:
        A sentence about the corpus, one for each tag, that of the most heads first, and one about the rest.
    """
    counts = {tag: len(clearest(scores, tag)) for tag in dict.fromkeys(scores["tag"])}
    found = [tag for tag in sorted(counts, key=lambda tag: -counts[tag]) if counts[tag]]
    sentences = [_read(run, len(tags)), *(_tag(scores, tag, len(tags), place) for tag in found)]
    none = [tag for tag, count in counts.items() if not count and was_tested(scores, tag)]
    if none:
        sentences.append(
            Markup("No head reaches what is asked of {}.").format(Markup(" or ").join(map(chip, none)))
        )
    several = int(tags["tags"].str.contains(";").sum())
    untagged = int((tags["tags"] == "").sum())
    sentences.append(
        f"{counted(several, 'head')} carr{'ies' if several == 1 else 'y'} several tags, {untagged or 'none'} "
        f"no tag. That a head has no tag shows that nothing here was proven of it, not that it does nothing."
    )
    return sentences


def notes(run: Mapping[str, Any]) -> list[str]:
    """Say what the reader should know before believing it.

    Args:
        run: `run.json`.

    Returns:
        Sentences.
    """
    found = [*failed_checks(run), *(str(note) for note in at(run, "notes", default=()))]
    if at(run, "options", "corpora") == [] and at(run, "corpus", "files"):
        found.append("These are results for the small English sample of headlens: no --corpus was given.")
    if at(run, "lens") == "norms":
        found.append(
            "Scores are shares of norms, not of weights: each weight times the length of what the key hands "
            "over, rows scaled to add up to 1 (Kobayashi et al. 2020). Examples show weights."
        )
    if count := at(run, "inputs", "documents", "read", default=0):
        whole = listing([tag for tag, scorer in SCORERS.items() if scorer.anywhere]).capitalize()
        found.append(f"{whole} heads were scored on whole documents ({counted(count, 'input')}).")
    if parser := at(run, "corpus", "parser"):
        found.append(f"Trees are silver: a parse by {parser}, not checked by people.")
    if missing := at(run, "model", "missing_weights", default=()):
        found.append(
            f"The checkpoint lacks these weights, so they are random: {', '.join(map(str, missing))}."
        )
    return [visible(text) for text in found]


def unmeasured(scores: pd.DataFrame, run: Mapping[str, Any]) -> list[str]:
    """Say what the run says nothing about.

    Args:
        scores: `scores.csv`.
        run: `run.json`.

    Returns:
        Sentences.
    """
    found = [
        "Whether the model needs these heads: a head can look at a word and carry nothing from it. "
        "headlens ablate measures that."
    ]
    tags = list(dict.fromkeys(scores["tag"]))
    if absent := [tag for tag in SCORERS if tag not in tags]:
        found.append(f"Not looked for: {', '.join(absent)}.")
    if vague := [tag for tag in tags if not was_tested(scores, tag)]:
        found.append(f"Too little to test: {', '.join(vague)}.")
    found += [f"The {stack} stack was not scored: give --targets." for stack in unscored_stacks(scores)]
    least = at(run, "evidence", "min_n", default=30)
    few = scores.loc[(scores["n"] > 0) & (scores["n"] < least), "measure"].unique()
    if len(few):
        found.append(f"Scored but not tested, with fewer than {least} decisions: {_listed(list(few))}.")
    for unit, facts in at(run, "inputs", default={}).items():
        for reason in at(facts, "left_out", default={}):
            found.append(f"{unit}: {at(facts, 'left_out', reason, default=0):,} left out ({reason}).")
    if count := at(run, "inputs", "windows", "mentions", "without an antecedent in their window", default=0):
        found.append(f"{counted(count, 'mention')} had no earlier mention to find, and count nowhere.")
    return [visible(text) for text in found]


def _read(run: Mapping[str, Any], n_heads: int) -> str:
    corpus = at(run, "corpus", default={})
    counts = {name: at(corpus, name, default=0) for name in ("documents", "sentences", "words")}
    sizes = [counted(count, name[:-1]) for name, count in counts.items() if count]
    read = f" on {', '.join(map(str, at(corpus, 'files', default=())))}: {', '.join(sizes)}" if sizes else ""
    architecture = at(run, "model", "architecture", default="the model")
    return visible(f"{counted(n_heads, 'head')} of {architecture} were scored{read}.")


def _tag(scores: pd.DataFrame, tag: str, n_heads: int, place: RunPlace) -> Markup:
    """How many heads carry a tag, and how sure that is of the clearest."""
    rows = clearest(scores, tag)
    best: Any = next(rows.itertuples())
    carried = Markup("{:,} of {} {} tagged {}").format(
        len(rows), counted(n_heads, "head"), "is" if len(rows) == 1 else "are", chip(tag)
    )
    measure = f"{SCORERS.get(tag, Scorer).in_words(best.measure)} ({best.measure})"
    score, proof = _held(best, tag)
    return Markup("{}; the clearest is {}, for {}: {} ({}, n = {:,.0f}).").format(
        carried, place.link(best.name), visible(measure), score, proof, best.n
    )


def _held(best: Any, tag: str) -> tuple[str, str]:
    """A score with what it is held against, and its interval: of a level, or of the difference."""
    known = not (math.isnan(best.ci_low) or math.isnan(best.ci_high))
    against = SCORERS.get(tag, Scorer).held_against
    if not against:
        score, ends = level(best.score, best.ci_low, best.ci_high) if known else (percent(best.score), "")
        return f"{score} of what it could be", f"95 % interval {ends}" if known else "no interval"
    held = not math.isnan(best.baseline)
    rest = f" against {percent(best.baseline)} for {against}" if held else ", no baseline"
    proof = f"95 % interval of the difference {points(best.ci_low, best.ci_high)}" if known else "no interval"
    return f"{percent(best.score)}{rest}", proof


def _listed(names: Sequence[str], most: int = 8) -> str:
    more = f" and {len(names) - most} more" if len(names) > most else ""
    return ", ".join(names[:most]) + more
