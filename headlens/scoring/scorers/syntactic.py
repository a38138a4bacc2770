"""Syntactic heads: those whose words look at their head in the dependency tree, or the other way round."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from typing import ClassVar, Literal

import torch
from torch import Tensor

from headlens.corpus.batches import Batch, pad
from headlens.corpus.corpus import Sentence
from headlens.scoring.base import Context, Counts, Gold, Rule, Scorer, WordView, unique_argmax

FARTHEST = 64  # the best single offset is looked for up to this many words away
NO_GROUND = frozenset({"punct", "root", "dep", "goeswith", "orphan", "reparandum"})
"""Relations that are scored but are no ground for the tag."""


@dataclass(frozen=True, slots=True)
class Syntactic(Scorer):
    """For every relation, the share of dependents that the head of attention connects with their head.

    ``nsubj:dependent->head``: the word that the dependent attends to most, itself and special tokens aside,
    is its head. ``nsubj:head->dependent``: the word that attends to the dependent most is its head
    (Clark et al. 2019, both directions). Ties and rows of zeros are abstentions and count as wrong, and so
    do heads that a causal model cannot see. Dependents of ROOT are not counted. Baseline: the best single
    offset of that relation, since a head that only looks a fixed way to the left is not syntactic. For the
    tag a head must beat by the margin, besides, what it would get if the heads of its sentence were dealt out
    anew: a head that looks at the main verb, whoever asks, is not syntactic either.

    Args:
        relations: the relations to score, without subtypes.
    """

    relations: tuple[str, ...]
    tag: ClassVar[str] = "syntactic"
    rules: ClassVar[Mapping[str, Rule]] = {"syntactic": Rule("effect", 0.10)}
    level: ClassVar[Literal["words"]] = "words"
    needs: ClassVar[tuple[str, ...]] = ("trees",)
    n_baselines: ClassVar[int] = 2 * FARTHEST + 1
    beats_chance: ClassVar[bool] = True
    colour: ClassVar[str] = "#117733"
    letter: ClassVar[str] = "S"
    meaning: ClassVar[str] = (
        "For some relation of the dependency tree, the word that the dependent attends to most (or that "
        "attends to it most) is its head, 10 points more often than both the best fixed offset for that "
        "relation and what looking at the same words would give if arcs were dealt out anew."
    )
    held_against: ClassVar[str] = "the best baseline"
    axis: ClassVar[str] = "share of dependents whose head is found (0 to 1)"
    baseline: ClassVar[str] = "best single offset"
    row: ClassVar[str] = "relation"

    @classmethod
    def in_words(cls, measure: str) -> str:
        """Say from where to where a relation is looked along."""
        relation, _, direction = measure.partition(":")
        source, arrow, target = direction.partition("->")
        return f"{relation}, from {source} to {target}" if arrow else measure

    @classmethod
    def make(cls, context: Context) -> Syntactic:
        """Score all relations that occur in the corpus."""
        return cls.of(sentence for _, sentence in context.corpus.sentences)

    @classmethod
    def of(cls, sentences: Iterable[Sentence]) -> Syntactic:
        """Score all relations that occur in some sentences."""
        found = {
            word.deprel for s in sentences for word in s.words if word.head is not None and word.head >= 0
        }
        return cls(tuple(sorted(found - {"", "root"})))

    @property
    def measures(self) -> tuple[str, ...]:
        """Both directions of every relation."""
        return (
            *(f"{relation}:dependent->head" for relation in self.relations),
            *(f"{relation}:head->dependent" for relation in self.relations),
        )

    def rule(self, measure: str) -> tuple[str, Rule]:
        """Find the rule of a relation; some are no ground for the tag."""
        rule = self.rules[self.tag]
        return self.tag, replace(rule, ground=measure.partition(":")[0] not in NO_GROUND)

    def gold(self, batch: Batch) -> Gold:
        """Count dependents by relation, and how many of them each offset gets right."""
        heads, relations = batch.once(self._tree)  # [input, word], [input, word, relation]
        offset = heads - torch.arange(heads.shape[1])
        offsets = torch.arange(-FARTHEST, FARTHEST + 1)
        hits = ((offset[..., None] == offsets) & (heads >= 0)[..., None]).float()  # [input, word, offset]
        right = relations.transpose(1, 2) @ hits  # [input, relation, offset]
        return Gold(relations.sum(1).repeat(1, 2), right.repeat(1, 2, 1))

    def __call__(self, view: WordView) -> Counts:
        """Score one site."""
        heads, relations = view.batch.on(view.weights.device, self._tree)
        others = view.weights.clone()
        others.diagonal(dim1=-2, dim2=-1).fill_(-1)  # a word does not choose itself
        popular = _popularity(heads)[:, None].expand(-1, others.shape[1], -1)  # [input, head, word]
        scores, chances = [], []
        for dim in (-1, -2):  # the word that each looks at most, and the word that looks at each most
            chosen = unique_argmax(others, dim)  # [input, head, word]
            right = ((chosen == heads[:, None]) & (chosen >= 0)).to(relations.dtype)
            chance = popular.gather(2, chosen.clamp(min=0)) * (chosen >= 0)
            scores.append((right @ relations).transpose(1, 2))
            chances.append((_other_arcs(chance, right, heads) @ relations).transpose(1, 2))
        return Counts(score=torch.cat(scores, dim=1), chance=torch.cat(chances, dim=1))

    def _tree(self, batch: Batch) -> tuple[Tensor, Tensor]:
        """Index of each word's head, -1 where there is none to score; its relation as 0 and 1."""
        index = {relation: number for number, relation in enumerate(self.relations)}
        heads, relations = [], []
        for item in batch.items:
            scored = [w.head is not None and w.head >= 0 and w.deprel in index for w in item.words]
            heads.append([w.head if ok else -1 for w, ok in zip(item.words, scored, strict=True)])
            relations.append(
                [index[w.deprel] if ok else -1 for w, ok in zip(item.words, scored, strict=True)]
            )
        numbers = pad(relations, -1, torch.long)
        return pad(heads, -1, torch.long), (numbers[..., None] == torch.arange(len(index))).float()


def _popularity(heads: Tensor) -> Tensor:
    """How many scored words of its sentence have each word as their head, [input, word]."""
    scored = (heads >= 0).float()
    return torch.zeros_like(scored).scatter_add_(1, heads.clamp(min=0), scored)


def _other_arcs(popular: Tensor, right: Tensor, heads: Tensor) -> Tensor:
    """The share of the sentence's other arcs that end in the chosen word, [input, head, word]."""
    others = (heads >= 0).sum(1)[:, None, None] - 1
    return (popular - right) / others.clamp(min=1)
