"""The page of a ``headlens similar``."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pandas as pd

from headlens.report.page.section import CARRIED, Column, Evidence, PageSection, Table, is_carried
from headlens.report.words import RunPlace
from headlens.runs.read import at
from headlens.similarity.similar import DISTANCES, Similarity, findings, has_several, names_of
from headlens.util.formatting import visible

FILES = ("clusters.csv", "distances.csv")
PAIRS = 300  # that the table shows
CAPTIONS: Mapping[str, str] = {
    "clustermap": "How far apart all pairs of heads are",
    "clustermap-": "How far apart all pairs of heads are",
    "embedding": "The heads laid out in a plane",
    "embedding-": "The heads laid out in a plane",
}
_NEAR = [Column("js", "divergence", "value", "divergence"), Column("cka", "CKA", "share", "cka")]
_CLUSTER = [
    Column("cluster", "cluster", "number", "cluster"),
    Column("nearest", "nearest head", "head", "nearest"),
    Column("nearest_js", "divergence", "value", "divergence"),
]
_TAGS = Column("tags", "tags", "tags", "tags")


def section(found: Similarity, place: RunPlace) -> PageSection:
    """Put a comparison of heads into words, for its place in the page."""
    distances, run = found.distances, found.run
    several = has_several(found.clusters)
    clusters = found.clusters.assign(name=names_of(found.clusters, several))
    carried = is_carried(distances, DISTANCES, CARRIED)
    shown = [_CLUSTER[0], Column("nearest", "nearest head", "text", "nearest"), _CLUSTER[2]]
    tagged = [_TAGS] if clusters["tags"].any() else []
    return PageSection(
        title=visible(f"Which heads of {found.model or 'a model'} do the same"),
        findings=list(findings(found, place.link)),
        tables=[_pairs(distances, several, carried), _heads(clusters, tagged)],
        heads=clusters["name"].tolist(),
        evidence=[Evidence("Its cluster and its nearest head", FILES[0], "head", [*shown, *tagged])],
        notes=_notes(run, carried),
        unmeasured=_unmeasured(run),
        files=FILES if carried else FILES[:1],
        tags=dict(zip(clusters["name"], clusters["tags"], strict=True)),
        captions=CAPTIONS,
    )


def _pairs(distances: pd.DataFrame, several: bool, carried: bool) -> Table:
    near = distances.sort_values("js", kind="stable")
    note = "Closest first."
    if len(near) > PAIRS:
        note += f" These are the closest {PAIRS:,} of {len(near):,} pairs; distances.csv of the run has all."
        near = near.head(PAIRS)
    near = near.assign(one=names_of(near, several, "_a"), other=names_of(near, several, "_b"))
    columns = [Column("one", "head", "head", "head"), Column("other", "other head", "head", "head"), *_NEAR]
    return Table("The closest pairs", columns, near, FILES[1] if carried else "", note)


def _heads(clusters: pd.DataFrame, tagged: list[Column]) -> Table:
    ordered = clusters.sort_values("cluster", kind="stable")
    note = "Cluster by cluster; they are counted from 0 in the order of their first heads."
    return Table(
        "Every head and its cluster",
        [Column("name", "head", "head", "head"), *_CLUSTER, *tagged],
        ordered,
        FILES[0],
        note,
    )


def _notes(run: Mapping[str, Any], carried: bool) -> list[str]:
    found = [str(note) for note in at(run, "notes", default=())]
    if at(run, "options", "texts") == []:
        found.append("These are results for the small English sample of headlens: no --text was given.")
    if smoothing := at(run, "options", "smoothing", default=0):
        found.append(f"Rows are smoothed: {smoothing:g} of each is the uniform row over its visible keys.")
    if not carried:
        found.append("distances.csv is too large for this page: it stands in the directory of the run.")
    if missing := at(run, "model", "missing_weights", default=()):
        found.append(
            f"The checkpoint lacks these weights, so they are random: {', '.join(map(str, missing))}."
        )
    return [visible(text) for text in found]


def _unmeasured(run: Mapping[str, Any]) -> list[str]:
    found = [
        "Whether the model can do without one of two close heads: headlens ablate measures that.",
        "Heads that look at the same can write different things, and the other way round: see both numbers.",
    ]
    for unit, facts in at(run, "inputs", default={}).items():
        for reason in at(facts, "left_out", default={}):
            found.append(f"{unit}: {at(facts, 'left_out', reason, default=0):,} left out ({reason}).")
    return [visible(text) for text in found]
