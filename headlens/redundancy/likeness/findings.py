"""What a comparison of heads found, in sentences."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import pandas as pd
from markupsafe import Markup

from headlens.redundancy.likeness.divergence import LARGEST
from headlens.redundancy.likeness.tables import has_several, names_of
from headlens.report.similar_looks import sizes_told

TWIN = 0.05  # nats: heads nearer than this look at nearly the same
NAMED = 3  # pairs
MOST = 0.8  # of the heads: a cluster that holds more says little


def findings(
    distances: pd.DataFrame,
    clusters: pd.DataFrame,
    stacks: Mapping[str, Mapping[str, Any]],
    link: Callable[[str], str] = str,
) -> list[Markup]:
    """Say how heads fall into clusters, which look most alike, and which write most alike.

    Args:
        distances: columns as in `headlens.redundancy.likeness.tables.DISTANCES`.
        clusters: columns as in `headlens.redundancy.likeness.tables.CLUSTERS`.
        stacks: what `run.json` says of each stack.
        link: what writes the name of a head.

    Returns:
        Sentences, stack by stack.
    """
    said: list[Markup] = []
    several = has_several(clusters)
    for stack in dict.fromkeys(clusters["stack"]):
        heads = clusters[clusters["stack"] == stack]
        pairs = distances[distances["stack_a"] == stack]
        if len(heads) == 1:
            said.append(Markup("There is one head, and nothing to compare it with."))
            continue
        facts = stacks.get(stack, {})
        of = f" of the {stack}" if several else ""
        said += [
            _clusters(heads, facts, of),
            *_pairs(pairs, several, link),
            _twins(heads),
            _spread(pairs, facts),
        ]
    return said


def _clusters(heads: pd.DataFrame, facts: Mapping[str, Any], of: str) -> Markup:
    sizes = heads["cluster"].value_counts(sort=False).sort_values(ascending=False, kind="stable").tolist()
    silhouette = facts.get("silhouette")
    quality = ""
    if silhouette is not None and not np.isnan(silhouette):
        quality = f"; mean silhouette {silhouette:.2f} (1: far apart, 0: no clusters to speak of)"
    what = f"{len(sizes)} clusters ({sizes_told(sizes)})" if len(sizes) > 1 else "one cluster"
    said = Markup("{} heads{} fall into {} by what they look at{}.").format(
        f"{len(heads):,}", of, what, quality
    )
    if 1 < len(sizes) < len(heads) and sizes[0] > MOST * len(heads):
        said += Markup(" Nearly all are in one cluster: --clusters K cuts it finer.")
    return said


def _pairs(pairs: pd.DataFrame, several: bool, link: Callable[[str], str]) -> list[Markup]:
    near = pairs.sort_values("js", kind="stable").head(NAMED)
    said = [Markup("The closest pairs: {}.").format(Markup("; ").join(_told(near, several, link)))]
    written = pairs[pairs["cka"].notna()].sort_values("cka", ascending=False, kind="stable").head(NAMED)
    if len(written):
        told = Markup("; ").join(_told(written, several, link))
        said.append(Markup("What they write is most alike for: {}.").format(told))
    return said


def _told(pairs: pd.DataFrame, several: bool, link: Callable[[str], str]) -> list[Markup]:
    names = zip(names_of(pairs, several, "_a"), names_of(pairs, several, "_b"), strict=True)
    values = zip(pairs["js"], pairs["cka"], strict=True)
    return [
        Markup("{} and {} ({:.3f} nats, {})").format(
            link(one), link(other), js, "no CKA" if np.isnan(cka) else f"CKA {cka:.2f}"
        )
        for (one, other), (js, cka) in zip(names, values, strict=True)
    ]


def _twins(heads: pd.DataFrame) -> Markup:
    twins = int((heads["nearest_js"] < TWIN).sum())
    same = int((heads["nearest_js"] == 0).sum())
    exact = f", {same:,} of them at distance 0" if same else ""
    have = "has" if twins < 2 else "have"
    return Markup("{} of {} heads {} a twin, another head less than {} nats away{}.").format(
        f"{twins:,}" if twins else "None", f"{len(heads):,}", have, TWIN, exact
    )


def _spread(pairs: pd.DataFrame, facts: Mapping[str, Any]) -> Markup:
    over = f", over {facts['queries']:,} queries" if "queries" in facts else ""
    tokens = f" CKA rests on {facts['cka_tokens']:,} tokens." if "cka_tokens" in facts else ""
    return Markup(
        "Half of all pairs are less than {:.3f} nats apart (0: the same; ln 2 = {:.3f}: no common key){}.{}"
    ).format(pairs["js"].median(), LARGEST, over, tokens)
