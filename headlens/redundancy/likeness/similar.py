"""`similar`: which heads of a model look alike, which write alike, and in which clusters they fall."""

from __future__ import annotations

import shlex
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pandas as pd

from headlens.corpus.corpus import Corpus
from headlens.corpus.inputs import Inputs, sentence_inputs
from headlens.corpus.read import corpus_facts, read_corpus
from headlens.errors import CorpusError, InputError, RunError
from headlens.model.heads import Head
from headlens.model.lens import Lens, check_ids, load
from headlens.redundancy.likeness.clusters import Clusters, cluster
from headlens.redundancy.likeness.measuring import Compared, compare_heads
from headlens.redundancy.likeness.outputs import by_head
from headlens.redundancy.likeness.plane import faithfulness, layout
from headlens.redundancy.likeness.tables import cluster_table, distance_table
from headlens.scoring.passes import Reading, because


@dataclass(frozen=True, slots=True)
class Options:
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


@dataclass(frozen=True, slots=True)
class Similarity:
    """How alike heads are.

    Args:
        distances: one row per pair, columns as in `distances.csv`.
        clusters: one row per head, columns as in `clusters.csv`.
        facts: what `run.json` says of the corpus, the sample, the clusters and what was left out.
    """

    distances: pd.DataFrame
    clusters: pd.DataFrame
    facts: dict[str, Any] = field(repr=False)


def similar(
    lens: Lens | str,
    text: str | Path | Sequence[str | Path] | Corpus | None = None,
    *,
    options: Options | None = None,
    reading: Reading | None = None,
) -> Similarity:
    """Compare all pairs of heads of a model over a corpus, and cluster them.

    `js` is the Jensen-Shannon divergence of two heads' rows of attention in nats (0: the same, ln 2: no key
    in common), the mean over all real queries that may see two keys or more; `cka` is the linear CKA of what
    they write after W_O (Kornblith et al. 2019; it misleads where tokens are few, see
    `cka.linear_cka`). Rows are scaled to sum to 1 first: where a model has sinks, what they take is not
    compared. A small distance says that two heads look at the same on these texts, not that the model can do
    without one of them.

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
    options = options or Options()
    check(options)
    lens = load(lens) if isinstance(lens, str) else lens
    corpus = text if isinstance(text, Corpus) else read_corpus(text)
    if lens.tokenizer is None:
        raise InputError(
            "This model came without a tokenizer.", "Give one: headlens.load(model, tokenizer=...)."
        )
    chosen = _chosen(lens, options)
    tags = read_tags(lens, options.tags)
    reading = reading or Reading()
    made = _inputs(lens, corpus, reading)
    stacks = dict.fromkeys(head.stack for head in chosen)
    compared, found = [], []
    for stack in stacks:
        heads = by_head(lens.anatomy.sites, [head for head in chosen if head.stack == stack])
        compared.append(compare_heads(lens, heads, made.items, options.smoothing, reading))
        if compared[-1].n_rows == 0:
            raise CorpusError(
                f"No token of {corpus.paths[0]} can look at two others.", "Give longer sentences."
            )
        found.append(cluster(compared[-1].js, options.clusters))
    return _tables(lens, corpus, made, list(zip(compared, found, strict=True)), tags)


def check(options: Options) -> None:
    """Refuse options that cannot be.

    Args:
        options: to be checked before a model is loaded.

    Raises:
        InputError: the smoothing is no share, or there would be no cluster.
    """
    if not 0 <= options.smoothing < 1:
        raise InputError(
            f"Expected a smoothing from 0 to below 1, found {options.smoothing:g}.",
            "Clark et al. took 0.001.",
        )
    if options.clusters is not None and options.clusters < 1:
        raise InputError(f"Expected 1 cluster or more, found {options.clusters}.", "Give a larger number.")


def _chosen(lens: Lens, options: Options) -> tuple[Head, ...]:
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


def read_tags(lens: Lens, run: str | Path | None) -> dict[Head, tuple[str, ...]] | None:
    """Read the tags of a run of classify.

    Args:
        lens: the model that the run must be about.
        run: its directory; None for none.

    Returns:
        The tags of every head, strongest first.

    Raises:
        RunError: it holds no tags, or those of another model.
    """
    from headlens.report.marks import read_marks

    if run is None:
        return None
    tags = read_marks([run], lens).tags
    if tags is None:
        raise RunError(
            f"Expected the --out of a headlens classify; {run} has no tags.csv.",
            f"Type first: headlens classify MODEL --out {shlex.quote(str(run))}",
        )
    return {head: tuple(mine) for head, mine in tags.items()}


def _inputs(lens: Lens, corpus: Corpus, reading: Reading) -> Inputs:
    made = sentence_inputs(corpus, lens.tokenizer, reading.longest(lens, "sentences"))
    if not made.items:
        raise CorpusError(
            f"No sentence of {corpus.paths[0]} can be used: {because(made)}.",
            "Allow longer inputs with --max-length, or give another text.",
        )
    check_ids(lens, (item.encoded.inputs["input_ids"] for item in made.items))
    return made


def _tables(
    lens: Lens,
    corpus: Corpus,
    made: Inputs,
    found: Sequence[tuple[Compared, Clusters]],
    tags: dict[Head, tuple[str, ...]] | None,
) -> Similarity:
    several = len(lens.anatomy.stacks) > 1
    distances, clusters, by_stack, notes = [], [], {}, []
    for compared, grouped in found:
        places = layout(compared.js)
        distances.append(distance_table(compared))
        clusters.append(cluster_table(compared, grouped, places, several, tags))
        by_stack[compared.heads[0].stack] = {
            "heads": len(compared.heads),
            "queries": compared.n_rows,
            "cka_tokens": compared.n_tokens,
            "clusters": grouped.count,
            "silhouette": grouped.silhouette,
            "plane_correlation": faithfulness(compared.js, places),
        }
        if compared.unknown:
            named = ", ".join(map(str, compared.unknown))
            notes.append(
                f"W_O is no plain layer at {named}, so what its heads write is not compared (no CKA)."
            )
    if unserved := [stack for stack in lens.anatomy.stacks if stack not in by_stack]:
        notes.append(f"Not compared: the heads of {' and '.join(unserved)}.")
    facts = {
        "corpus": corpus_facts(corpus),
        "inputs": {"sentences": {"read": len(made.items), "left_out": dict(made.left_out)}},
        "stacks": by_stack,
        "notes": notes,
    }
    return Similarity(pd.concat(distances, ignore_index=True), pd.concat(clusters, ignore_index=True), facts)
