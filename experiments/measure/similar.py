"""What comparing all pairs of heads costs, against the loop that is published for it."""

from __future__ import annotations

from dataclasses import replace
from itertools import accumulate
from typing import Any

import numpy as np
import pandas as pd
import torch

from headlens.corpus.corpus import Corpus
from headlens.corpus.inputs import sentence_inputs
from headlens.lens import Lens
from headlens.similarity.similar import SimilarOptions
from headlens.similarity.similar import similar as compare
from measure.setting import Setting, forward
from measure.timing import Row, least


def similar(setting: Setting) -> list[Row]:
    """All pairs of heads on some sentences."""
    lens, corpus = setting.lens, setting.corpus
    sizes = list(accumulate(len(document.sentences) for document in corpus.documents))
    documents = 1 if setting.small else next((i for i, n in enumerate(sizes, 1) if n >= 40), len(sizes))
    corpus = replace(corpus, documents=corpus.documents[:documents])
    items = sentence_inputs(corpus, lens.tokenizer, 512).items
    inputs = [{name: torch.tensor([ids]) for name, ids in item.encoded.inputs.items()} for item in items]
    found: dict[str, Any] = {}
    works = {
        "similar": lambda: found.update(ours=compare(lens, corpus, options=SimilarOptions(smoothing=0.0))),
        "the plain loop over heads": lambda: found.update(loop=plain_loop(lens, corpus)),
        "an eager pass": lambda: forward(lens, inputs),
    }
    times = least(works, 1)
    part = f"similar: {len(items)} sentences, {len(lens.anatomy.heads)} heads"
    others = ("the plain loop over heads", "an eager pass")
    rows = [Row(part, "similar", times["similar"] / times[other], other) for other in others]
    distances = found["ours"].distances
    return [*rows, Row(part, "largest difference from the loop", apart(distances, found["loop"]), "nats")]


def plain_loop(lens: Lens, corpus: Corpus) -> np.ndarray:
    """Keep all patterns of a sentence, and hold each head against all: mean divergence, [head, head]."""
    total, n_rows = np.zeros(2 * (len(lens.anatomy.heads),)), 0
    own = lens.model.config._attn_implementation
    lens.model.set_attn_implementation("eager")
    for item in sentence_inputs(corpus, lens.tokenizer, 512).items:
        inputs = {name: torch.tensor([ids]) for name, ids in item.encoded.inputs.items()}
        with torch.inference_mode():
            kept = lens.model(**inputs, output_attentions=True).attentions
        maps = torch.cat(kept, dim=1)[0].double().numpy()  # [head, query, key]
        maps /= maps.sum(-1, keepdims=True)
        for number, mine in enumerate(maps):
            mixed = (maps + mine) / 2
            total[number] += (entropy(mixed) - (entropy(maps) + entropy(mine)) / 2).sum(-1)
        n_rows += maps.shape[1]
    lens.model.set_attn_implementation(own)
    return total / n_rows


def entropy(rows: np.ndarray) -> np.ndarray:
    """Entropy of rows in nats, [..., query]."""
    return -(rows * np.log(rows + 1e-300)).sum(-1)


def apart(distances: pd.DataFrame, loop: np.ndarray) -> float:
    """The largest difference between a table of distances and a matrix of them, both in model order."""
    return float(np.abs(distances["js"].to_numpy() - loop[np.triu_indices(len(loop), 1)]).max())
