"""Coreference heads: those whose mentions look at an earlier mention of the same entity."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar, Literal

import torch
from torch import Tensor

from headlens.corpus.batches import Batch
from headlens.corpus.inputs import Item
from headlens.scoring.base import Counts, Gold, Rule, Scorer, WordView, unique_max

KINDS = ("pronoun", "proper", "nominal")


@dataclass(frozen=True, slots=True)
class _Decisions:
    """The mentions of a batch that have an antecedent inside their window.

    Args:
        inputs: index of the input, [mention].
        heads: head word of the mention, [mention].
        candidates: head words of earlier mentions, bool [mention, word].
        antecedents: those of the same entity, bool [mention, word].
        kinds: index into `KINDS`, [mention].
        baselines: whether the nearest mention, and the nearest with the same head word, is right,
            [mention, 2].
    """

    inputs: Tensor
    heads: Tensor
    candidates: Tensor
    antecedents: Tensor
    kinds: Tensor
    baselines: Tensor

    def by_measure(self, values: Tensor, n_inputs: int) -> Tensor:
        """Sum [mention, x] into [input, measure, x]: all mentions, then each kind."""
        groups = torch.zeros(
            n_inputs, 1 + len(KINDS), values.shape[1], dtype=values.dtype, device=values.device
        )
        groups.index_put_((self.inputs, torch.zeros_like(self.kinds)), values, accumulate=True)
        groups.index_put_((self.inputs, self.kinds + 1), values, accumulate=True)
        return groups


@dataclass(frozen=True, slots=True)
class Coreference(Scorer):
    """Share of mentions whose head word attends most to a mention of the same entity.

    ``antecedent``: among the head words of earlier mentions in the same window (Clark et al. 2019);
    ``antecedent@words``: among all earlier words. Both also by the kind of the mention. Mentions without
    an earlier mention of their entity in the window are not counted. Baselines, and the head must beat
    both: the nearest earlier mention, and the nearest with the same head word.
    """

    tag: ClassVar[str] = "coreference"
    rules: ClassVar[Mapping[str, Rule]] = {"coreference": Rule("effect", 0.05)}
    reads: ClassVar[Literal["windows"]] = "windows"
    level: ClassVar[Literal["words"]] = "words"
    needs: ClassVar[tuple[str, ...]] = ("entities",)
    n_baselines: ClassVar[int] = 2
    beats_all: ClassVar[bool] = True
    colour: ClassVar[str] = "#CC6677"
    letter: ClassVar[str] = "C"
    meaning: ClassVar[str] = (
        "The earlier mention that a mention attends to most is of the same entity, 5 points more often "
        "than both the nearest mention and the nearest with the same head word."
    )
    held_against: ClassVar[str] = "the best baseline"
    axis: ClassVar[str] = "share of mentions whose antecedent is found (0 to 1)"
    baseline: ClassVar[str] = "better of nearest mention and same head word"
    words: ClassVar[Mapping[str, str]] = {
        "antecedent": "mentions with an earlier one",
        "antecedent@words": "mentions with an earlier one, among all earlier words",
    }
    measures = tuple(
        f"antecedent{among}{kind}"
        for among in ("", "@words")
        for kind in ("", *(f":{kind}" for kind in KINDS))
    )

    def gold(self, batch: Batch) -> Gold:
        """Count the mentions with an antecedent, and what the two baselines get right."""
        found = batch.once(_decisions)
        n = found.by_measure(torch.ones(len(found.heads), 1), len(batch.items))[..., 0]
        baseline = found.by_measure(found.baselines, len(batch.items))
        return Gold(n.repeat(1, 2), baseline.repeat(1, 2, 1))

    def __call__(self, view: WordView) -> Counts:
        """Score one site."""
        found = view.batch.on(view.weights.device, _decisions)
        rows = view.weights[found.inputs, :, found.heads]  # [mention, head, word]
        earlier = torch.arange(rows.shape[-1], device=rows.device) < found.heads[:, None]
        scores = []
        for candidates in (found.candidates, earlier):
            largest = unique_max(rows.masked_fill(~candidates[:, None], -1))  # [mention, head]
            right = (rows == largest[..., None]) & (candidates & found.antecedents)[:, None]
            right = right.any(-1)
            scores.append(found.by_measure(right.to(rows.dtype), len(view.batch.items)))
        return Counts(score=torch.cat(scores, dim=1))


def _decisions(batch: Batch) -> _Decisions:
    n_words = batch.n_words
    inputs, heads, candidates, antecedents, kinds, baselines = [], [], [], [], [], []
    for index, item in enumerate(batch.items):
        for mention in item.mentions:
            before = [other for other in item.mentions if other.head < mention.head]
            same = {other.head for other in before if other.entity == mention.entity}
            if not same:
                continue
            inputs.append(index)
            heads.append(mention.head)
            candidates.append(_mask({other.head for other in before}, n_words))
            antecedents.append(_mask(same, n_words))
            kinds.append(KINDS.index(mention.kind))
            alike = [o.head for o in before if _lemma(item, o.head) == _lemma(item, mention.head)]
            baselines.append([before[-1].head in same, bool(alike) and alike[-1] in same])
    mask = torch.zeros(0, n_words, dtype=torch.bool)
    return _Decisions(
        torch.tensor(inputs, dtype=torch.long),
        torch.tensor(heads, dtype=torch.long),
        torch.stack(candidates) if candidates else mask,
        torch.stack(antecedents) if antecedents else mask,
        torch.tensor(kinds, dtype=torch.long),
        torch.tensor(baselines, dtype=torch.float32).reshape(-1, 2),
    )


def _mask(places: set[int], length: int) -> Tensor:
    mask = torch.zeros(length, dtype=torch.bool)
    mask[list(places)] = True
    return mask


def _lemma(item: Item, word: int) -> str:
    return (item.words[word].lemma or item.words[word].form).lower()
