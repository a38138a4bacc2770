"""Which heads do the same: distances, clusters, a plane, and what they say."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from markupsafe import Markup
from numpy.typing import NDArray
from scipy.cluster.hierarchy import leaves_list, linkage
from scipy.spatial.distance import squareform
from sklearn.manifold import smacof  # type: ignore[import-untyped]
from sklearn.metrics import silhouette_score  # type: ignore[import-untyped]

from headlens.corpus.corpus import Corpus
from headlens.corpus.inputs import Inputs, sentence_inputs
from headlens.corpus.read import corpus_facts, read_corpus
from headlens.errors import CorpusError, InputError
from headlens.model.heads import Head, link_name
from headlens.model.lens import Lens, check_ids
from headlens.runs.read import TableForm, at, tags_of
from headlens.runs.result import Clock, Examples, Result, record
from headlens.scoring.passes import RunOptions, because
from headlens.similarity.measure import LARGEST, Array, Compared, by_head, compare_heads
from headlens.util.formatting import listing

DISTANCES = ["stack_a", "layer_a", "head_a", "stack_b", "layer_b", "head_b", "js", "cka"]
CLUSTERS = ["stack", "layer", "head", "cluster", "x", "y", "nearest", "nearest_js", "tags"]
_HEAD = ["stack", "layer", "head"]


@dataclass(frozen=True, slots=True)
class SimilarOptions:
    """How heads are compared.

    Args:
        heads: only these, a selector such as ``2.*,3.0-5`` or heads; by default all (of encoder-decoder
            models all of the encoder).
        smoothing: how much of every row is mixed with the uniform row over its visible keys: rows become
            ``(1 - S) A + S / n_visible``. Clark et al. (2019) took 0.001.
        clusters: how many clusters; by default the number with the best mean silhouette.
        tags: a finished run of ``headlens classify`` whose tags are put beside the clusters.
    """

    heads: str | Head | Sequence[Head] | None = None
    smoothing: float = 0.0
    clusters: int | None = None
    tags: str | Path | None = None


@dataclass(frozen=True, eq=False, repr=False)
class Similarity(Result):
    """How alike heads are.

    Args:
        distances: one row per pair, columns as in `distances.csv`.
        clusters: one row per head, columns as in `clusters.csv`.
        run: what `run.json` says: the model, the corpus, the sample, the clusters, what was left out.
        examples: none.
    """

    command = "similar"
    forms = (
        TableForm("distances", DISTANCES, ("stack_a", "stack_b")),
        TableForm("clusters", CLUSTERS, ("stack", "nearest", "tags")),
    )
    distances: pd.DataFrame
    clusters: pd.DataFrame
    run: Mapping[str, Any]
    examples: Examples | None = None


def similar(
    lens: Lens | str,
    text: str | Path | Sequence[str | Path] | Corpus | None = None,
    *,
    options: SimilarOptions | None = None,
    reading: RunOptions | None = None,
) -> Similarity:
    """Compare all pairs of heads of a model over a corpus, and cluster them.

    `js` is the Jensen-Shannon divergence of two heads' rows of attention in nats (0: the same, ln 2: no key
    in common), the mean over all real queries that may see two keys or more; `cka` is the linear CKA of what
    they write after W_O (Kornblith et al. 2019; it misleads where tokens are few, see `linear_cka` in
    `headlens.similarity.measure`). Rows are scaled to sum to 1 first: where a model has sinks, what they take
    is not compared. A small distance says that two heads look at the same on these texts, not that the model
    can do without one of them.

    Args:
        lens: a model under the lens, or what `headlens.load` takes.
        text: files or folders, all that `headlens.classify` reads as corpus, or a corpus already read; the
            bundled English sample by default. Every sentence is one input.
        options: which heads, smoothing, how many clusters, whose tags.
        reading: batch size, lengths and so on; none of it changes a number.

    Returns:
        Distances, clusters and facts about the run.

    Raises:
        CorpusError: a file cannot be read, or no sentence can be used.
        InputError: options that cannot be, or a model without a tokenizer.
        SelectorError: a head does not exist.
        RunError: the tags are of another model.
    """
    clock = Clock.start()
    options, reading = options or SimilarOptions(), reading or RunOptions()
    _check(options)
    lens = Lens.load(lens) if isinstance(lens, str) else lens
    corpus = text if isinstance(text, Corpus) else read_corpus(text)
    if lens.tokenizer is None:
        raise InputError(
            "This model came without a tokenizer.", "Give one: headlens.load(model, tokenizer=...)."
        )
    chosen = _chosen(lens, options)
    tags = None if options.tags is None else tags_of(lens, Path(options.tags))
    inputs = _inputs(lens, corpus, reading)
    stacks = []
    for stack in dict.fromkeys(head.stack for head in chosen):
        heads = by_head(lens.anatomy.sites, [head for head in chosen if head.stack == stack])
        compared = compare_heads(lens, heads, inputs.items, options.smoothing, reading)
        if compared.n_rows == 0:
            raise CorpusError(
                f"No token of {corpus.paths[0]} can look at two others.", "Give longer sentences."
            )
        stacks.append((compared, cluster(compared.js, options.clusters), layout(compared.js)))
    several = len(lens.anatomy.stacks) > 1
    asked = {"text": None if isinstance(text, Corpus) else text, **asdict(options), **reading.asked}
    facts = {
        "corpus": corpus_facts(corpus),
        "inputs": {"sentences": {"read": len(inputs.items), "left_out": dict(inputs.left_out)}},
        "stacks": {found[0].heads[0].stack: _facts(*found) for found in stacks},
        "notes": _notes(lens, [compared for compared, _, _ in stacks]),
    }
    return Similarity(
        pd.concat([distance_table(compared) for compared, _, _ in stacks], ignore_index=True),
        pd.concat([cluster_table(*found, several, tags) for found in stacks], ignore_index=True),
        record("similar", lens, asked, facts, clock),
    )


def _check(options: SimilarOptions) -> None:
    """Refuse options that cannot be, before a model is loaded."""
    if not 0 <= options.smoothing < 1:
        raise InputError(
            f"Expected a smoothing from 0 to below 1, found {options.smoothing:g}.",
            "Clark et al. took 0.001.",
        )
    if options.clusters is not None and options.clusters < 1:
        raise InputError(f"Expected 1 cluster or more, found {options.clusters}.", "Give a larger number.")


def _chosen(lens: Lens, options: SimilarOptions) -> tuple[Head, ...]:
    anatomy = lens.anatomy
    served = [h for h in anatomy.heads if h.stack == "encoder" or not lens.model.config.is_encoder_decoder]
    chosen = anatomy.select(served if options.heads is None else options.heads)
    for head in chosen:
        if head not in served:
            raise InputError(
                f"Of encoder-decoder models only the encoder's heads are compared, not {head}.",
                "Write for example --heads encoder.*.*",
            )
    for stack in dict.fromkeys(head.stack for head in chosen):
        n_heads = sum(head.stack == stack for head in chosen)
        if options.clusters is not None and options.clusters > n_heads:
            raise InputError(
                f"{n_heads} heads do not make {options.clusters} clusters.", f"Type --clusters {n_heads}."
            )
    return chosen


def _inputs(lens: Lens, corpus: Corpus, reading: RunOptions) -> Inputs:
    made = sentence_inputs(corpus, lens.tokenizer, reading.longest(lens, "sentences"))
    if not made.items:
        raise CorpusError(
            f"No sentence of {corpus.paths[0]} can be used: {because(made)}.",
            "Allow longer inputs with --max-length, or give another text.",
        )
    check_ids(lens, (item.encoded.inputs["input_ids"] for item in made.items))
    return made


def _facts(compared: Compared, found: _Clusters, places: Array) -> dict[str, Any]:
    """What `run.json` says of one stack."""
    return {
        "heads": len(compared.heads),
        "queries": compared.n_rows,
        "cka_tokens": compared.n_tokens,
        "clusters": found.count,
        "silhouette": found.silhouette,
        "plane_correlation": faithfulness(compared.js, places),
    }


def _notes(lens: Lens, stacks: Sequence[Compared]) -> list[str]:
    """What was not compared."""
    notes = [
        f"W_O is no plain layer at {', '.join(map(str, compared.unknown))}, so what its heads write is not "
        "compared (no CKA)."
        for compared in stacks
        if compared.unknown
    ]
    served = [compared.heads[0].stack for compared in stacks]
    if unserved := [stack for stack in lens.anatomy.stacks if stack not in served]:
        notes.append(f"Not compared: the heads of {' and '.join(unserved)}.")
    return notes


# ---- Clusters of heads by average linkage, and how many there are


MOST_CLUSTERS = 20  # clusters that are tried
SIZES_NAMED = 4  # clusters whose sizes are named


@dataclass(frozen=True, eq=False)
class _Clusters:
    """Heads put together.

    Args:
        labels: the cluster of each head, counted from 0 in the order of their first heads, [head].
        silhouette: mean silhouette, -1..1: 1 for clusters far apart, 0 for none to speak of; NaN where it is
            not defined (one cluster, or each head alone).
    """

    labels: NDArray[np.int64]
    silhouette: float

    @property
    def count(self) -> int:
        """How many clusters there are."""
        return int(self.labels.max()) + 1


def tree(distances: Array) -> Array:
    """Join two heads or more to a tree by average linkage: merges as scipy's `linkage` writes them."""
    return np.asarray(linkage(squareform(distances, checks=False), "average"), dtype=np.float64)


def leaves(distances: Array) -> list[int]:
    """Order heads as they stand at the foot of their tree."""
    return [0] if len(distances) == 1 else [int(leaf) for leaf in leaves_list(tree(distances))]


def cluster(distances: Array, count: int | None = None) -> _Clusters:
    """Cut the tree of heads into clusters.

    Args:
        distances: symmetric [head, head].
        count: how many clusters; by default the number from 2 to 20 (and below that of the heads) with the
            best mean silhouette, the fewer where two are as good. Heads at distance 0 always share one, so
            there can be fewer.

    Returns:
        The clusters.
    """
    n_heads = len(distances)
    if n_heads == 1:
        return _Clusters(np.zeros(1, dtype=np.int64), np.nan)
    merges = tree(distances)
    if count is not None:
        return _scored(distances, _cut(merges, count))
    tried = [_scored(distances, _cut(merges, k)) for k in range(2, min(MOST_CLUSTERS, n_heads - 1) + 1)]
    best = None
    for clusters in tried:
        defined = not np.isnan(clusters.silhouette)
        if defined and (best is None or clusters.silhouette > best.silhouette + 1e-12):
            best = clusters
    return best or _scored(distances, _cut(merges, n_heads))  # two heads, or all alike: as many as differ


def _cut(merges: Any, count: int) -> NDArray[np.int64]:
    """Undo the last merges but those at height 0; number what is left by its first heads."""
    n_heads = len(merges) + 1
    member = np.arange(2 * n_heads - 1)  # of each node, the node that it belongs to
    for number, (one, other, height, _) in enumerate(merges):
        if number < n_heads - count or height == 0:
            member[[int(one), int(other)]] = n_heads + number
    roots = np.arange(n_heads)
    while (member[roots] != roots).any():
        roots = member[roots]
    order = {root: label for label, root in enumerate(dict.fromkeys(roots.tolist()))}
    return np.array([order[root] for root in roots.tolist()], dtype=np.int64)


def _scored(distances: Array, labels: NDArray[np.int64]) -> _Clusters:
    defined = 2 <= labels.max() + 1 < len(labels)
    score = silhouette_score(distances, labels, metric="precomputed") if defined else np.nan
    return _Clusters(labels, float(score))


# ---- Heads laid out in a plane so that distances there come close to their distances


def layout(distances: Array) -> Array:
    """Lay heads out by metric multidimensional scaling, as Clark et al. (2019) did.

    It begins with classical scaling, so nothing is drawn at random. The plane is turned so that x has the
    greatest spread, and flipped so that on each axis the head farthest out is on the positive side. A plane
    cannot hold all distances: heads that are near each other in it may be far apart.

    Args:
        distances: symmetric [head, head].

    Returns:
        Coordinates [head, 2], in the unit of the distances, with the mean at 0.
    """
    n_heads = len(distances)
    if not distances.any():
        return np.zeros((n_heads, 2))
    start = _classical(distances)
    if n_heads > 2:
        start, _ = smacof(
            distances, n_components=2, init=start, n_init=1, random_state=0, normalized_stress=False
        )
    return _turned(np.asarray(start, dtype=np.float64))


def _classical(distances: Array) -> Array:
    """Classical scaling: the two largest directions of the doubly centred squares."""
    squares = distances**2
    centred = -(squares - squares.mean(0) - squares.mean(1)[:, None] + squares.mean()) / 2
    values, vectors = np.linalg.eigh(centred)
    found: Array = vectors[:, ::-1][:, :2] * np.sqrt(values[::-1][:2].clip(min=0))
    return found


def _turned(places: Array) -> Array:
    places = places - places.mean(0)
    _, _, axes = np.linalg.svd(places, full_matrices=False)
    places = places @ axes.T
    farthest = places[np.abs(places).argmax(0), [0, 1]]
    turned: Array = places * np.where(farthest < 0, -1, 1) + 0.0
    return turned


def faithfulness(distances: Array, places: Array) -> float:
    """Measure how well a plane shows distances.

    Args:
        distances: symmetric [head, head].
        places: coordinates [head, 2].

    Returns:
        Pearson correlation of the distances in the plane with the true ones, over pairs; NaN where one of
        them does not vary.
    """
    pairs = np.triu_indices(len(distances), 1)
    true = distances[pairs]
    shown = np.sqrt(((places[pairs[0]] - places[pairs[1]]) ** 2).sum(1))
    if len(true) < 2 or np.ptp(true) == 0 or np.ptp(shown) == 0:
        return float("nan")
    return float(np.corrcoef(true, shown)[0, 1])


# ---- The tables of a comparison of heads


def distance_table(compared: Compared) -> pd.DataFrame:
    """Write a row for every pair of heads, each once, in model order."""
    first, second = np.triu_indices(len(compared.heads), 1)
    stacks = np.array([head.stack for head in compared.heads], dtype=object)
    layers, numbers = np.array([(head.layer, head.head) for head in compared.heads]).T
    sides = {
        f"{name}_{side}": values[rows]
        for side, rows in (("a", first), ("b", second))
        for name, values in (("stack", stacks), ("layer", layers), ("head", numbers))
    }
    values = {"js": compared.js[first, second], "cka": compared.cka[first, second]}
    return pd.DataFrame({**sides, **values}, columns=DISTANCES)


def cluster_table(
    compared: Compared,
    found: _Clusters,
    places: Array,
    several: bool,
    tags: Mapping[Head, Sequence[str]] | None = None,
) -> pd.DataFrame:
    """Write a row for every head."""
    rows = []
    for number, head in enumerate(compared.heads):
        others = compared.js[number].copy()
        others[number] = np.inf
        near = int(others.argmin())  # the first of several
        alone = len(others) == 1
        rows.append(
            (
                head.stack, head.layer, head.head, int(found.labels[number]), *places[number].tolist(),
                "" if alone else link_name(compared.heads[near], several),
                np.nan if alone else others[near],
                ";".join((tags or {}).get(head, ())),
            )
        )  # fmt: skip
    return pd.DataFrame(rows, columns=CLUSTERS)


def matrix_of(distances: pd.DataFrame, heads: pd.DataFrame, value: str = "js") -> Array:
    """Lay one column of the table of pairs out as a matrix.

    Args:
        distances: columns as in `DISTANCES`.
        heads: rows of `CLUSTERS` of one stack, in model order.
        value: "js" or "cka".

    Returns:
        Symmetric [head, head], 0 on the diagonal.
    """
    numbers = {head: n for n, head in enumerate(heads[_HEAD].itertuples(index=False, name=None))}
    matrix = np.zeros((len(heads), len(heads)))
    sides = [distances[[f"{name}_{side}" for name in _HEAD]] for side in "ab"]
    rows, columns = (
        np.array([numbers.get(head, -1) for head in side.itertuples(index=False, name=None)], dtype=int)
        for side in sides
    )
    mine = (rows >= 0) & (columns >= 0)
    matrix[rows[mine], columns[mine]] = distances[value].to_numpy(float)[mine]
    return matrix + matrix.T


def has_several(clusters: pd.DataFrame) -> bool:
    """Whether heads are named with their stack, as the column `nearest` does."""
    return bool(clusters["nearest"].astype(str).str.count(r"\.").max() > 1)


def names_of(table: pd.DataFrame, several: bool, side: str = "") -> list[str]:
    """Write the heads of a table.

    Args:
        table: columns as in `CLUSTERS`, or as in `DISTANCES`.
        several: whether names need their stack.
        side: "_a" or "_b" for a table of pairs.

    Returns:
        ``4.11`` or ``encoder.4.11``, one per row.
    """
    columns = [table[f"{name}{side}"] for name in _HEAD]
    return [link_name(Head(str(s), int(x), int(h)), several) for s, x, h in zip(*columns, strict=True)]


# ---- What a comparison of heads found, in sentences


TWIN = 0.05  # nats: heads nearer than this look at nearly the same
NAMED = 3  # pairs
LARGE_CLUSTER = 0.8  # of the heads: a cluster that holds more says little


def findings(found: Similarity, link: Callable[[str], str] = str) -> list[Markup]:
    """Say how heads fall into clusters, which look most alike, and which write most alike.

    Args:
        found: the comparison.
        link: what writes the name of a head.

    Returns:
        Sentences, stack by stack.
    """
    sentences: list[Markup] = []
    several = has_several(found.clusters)
    for stack, heads in found.clusters.groupby("stack", sort=False):
        if len(heads) == 1:
            sentences.append(Markup("There is one head, and nothing to compare it with."))
            continue
        pairs = found.distances[found.distances["stack_a"] == stack]
        facts = at(found.run, "stacks", default={}).get(stack)
        of = f" of the {stack}" if several else ""
        sentences += [
            _clusters(heads, at(facts, "silhouette", default=np.nan), of),
            *_pairs(pairs, several, link),
            _twins(heads),
            _spread(pairs, facts),
        ]
    return sentences


def _clusters(heads: pd.DataFrame, silhouette: float, of: str) -> Markup:
    sizes = heads["cluster"].value_counts(sort=False).sort_values(ascending=False, kind="stable").tolist()
    quality = f"; mean silhouette {silhouette:.2f} (1: far apart, 0: no clusters to speak of)"
    what = f"{len(sizes)} clusters ({sizes_told(sizes)})" if len(sizes) > 1 else "one cluster"
    sentence = Markup("{} heads{} fall into {} by what they look at{}.").format(
        f"{len(heads):,}", of, what, "" if np.isnan(silhouette) else quality
    )
    if 1 < len(sizes) < len(heads) and sizes[0] > LARGE_CLUSTER * len(heads):
        sentence += Markup(" Nearly all are in one cluster: --clusters K cuts it finer.")
    return sentence


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


def _spread(pairs: pd.DataFrame, facts: Any) -> Markup:
    queries, n_tokens = (at(facts, name, default=0) for name in ("queries", "cka_tokens"))
    over = f", over {queries:,} queries" if queries else ""
    tokens = f" CKA rests on {n_tokens:,} tokens." if n_tokens else ""
    return Markup(
        "Half of all pairs are less than {:.3f} nats apart (0: the same; ln 2 = {:.3f}: no common key){}.{}"
    ).format(pairs["js"].median(), LARGEST, over, tokens)


def sizes_told(sizes: Sequence[int]) -> str:
    """Write the sizes of clusters, largest first: ``71 and 1 heads``."""
    told = [f"{size:,}" for size in sizes[:SIZES_NAMED]]
    if len(sizes) > SIZES_NAMED:
        told.append(f"{len(sizes) - SIZES_NAMED} smaller ones")
        return listing(told)
    return f"{listing(told)} heads"
