"""Semantic heads: known answers and plain loops."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
import torch

from headlens.scoring.scorers.semantic import BUCKETS, FARTHEST, SHUFFLES, Relations, Semantic
from support.handmade import item, one_batch, random_pattern, site, tally


def relations(words: str, *pairs: str, shuffled: bool = False) -> Relations:
    """A relation of words, pairs written as "cat-dog", and shuffled copies."""
    numbers = {word: index for index, word in enumerate(words.split())}
    rng = np.random.default_rng(0)
    codes: list[int] = []
    for pair in pairs:
        a, b = (numbers[word] for word in pair.split("-"))
        codes += [a * len(numbers) + b, b * len(numbers) + a]
    moved = np.tile(np.arange(len(numbers)), (SHUFFLES, 1))
    moved = rng.permuted(moved, axis=1) if shuffled else moved
    return Relations(numbers, np.unique(np.array(codes, dtype=np.int64)), moved)


def sentence(text: str, unit: int = 0, pieces=None):
    """Words in capitals are no content words."""
    forms = text.split()
    made = item([(form, -1, "root") for form in forms], pieces or list(range(len(forms))), unit)
    words = tuple(
        replace(word, upos="DET" if form.isupper() else "NOUN")
        for word, form in zip(made.words, forms, strict=True)
    )
    return replace(made, words=words)


def pattern(length: int, weights: dict[tuple[int, int], float], n_inputs: int = 1) -> torch.Tensor:
    """One head [input, 1, query, key] with some weights, the rest of a row on itself."""
    made = torch.zeros(length, length)
    for (query, key), weight in weights.items():
        made[query, key] = weight
    made += torch.diag(1 - made.sum(1))
    return made.expand(n_inputs, 1, -1, -1)


def summed(scorer, items, weights, causal=False):
    found = tally(scorer, site(weights.shape[1], causal), one_batch(items), weights, causal)
    (summary,) = scorer.summarise(found)
    return summary


WORDS = "bird cat dog fish horse"


class TestKnownAnswers:
    def test_related_pairs_against_unrelated_at_the_same_distance(self):
        # cat(0) THE(1) dog(2) THE(3) fish(4): cat-dog are related; dog-fish have the same distances
        scorer = Semantic(relations(WORDS, "cat-dog"))
        items = [sentence("cat THE dog THE fish", unit) for unit in range(2)]
        weights = pattern(5, {(0, 2): 0.6, (2, 0): 0.2, (2, 4): 0.3, (4, 2): 0.1, (0, 4): 0.35}, 2)
        found = summed(scorer, items, weights)
        assert found.n[:, 0].tolist() == [2, 2]
        assert found.score[:, 0] == pytest.approx([0.8, 0.8])
        assert found.baseline[:, 0] == pytest.approx([0.4, 0.4])  # +2: 0.3, -2: 0.1

    def test_neighbours_and_equal_lemmas_are_never_counted(self):
        scorer = Semantic(relations(WORDS, "cat-dog", "cat-cat"))
        items = [sentence("cat dog THE cat")]
        found = tally(scorer, site(1), one_batch(items), pattern(4, {(0, 3): 0.9, (0, 1): 0.1}))
        counts = dict(zip(scorer.measures, found.n[0, :, 0].tolist(), strict=True))
        assert counts["related"] == 2  # the dog and the second cat, both ways
        assert sum(n for name, n in counts.items() if name.startswith("unrelated")) == 0

    def test_words_without_content_are_never_counted(self):
        scorer = Semantic(relations(WORDS, "cat-dog"))
        found = tally(scorer, site(1), one_batch([sentence("cat THE DOG A dog")]), pattern(5, {}))
        counts = dict(zip(scorer.measures, found.n[0, :, 0].tolist(), strict=True))
        assert (counts["related"], counts["unrelated@+2" if "unrelated@+2" in counts else "unrelated@2"]) == (
            2,
            0,
        )

    def test_the_baseline_of_each_half_comes_from_the_other(self):
        scorer = Semantic(relations(WORDS, "cat-dog"))
        items = [sentence("cat THE dog THE fish", unit) for unit in range(4)]
        weights = pattern(5, {(0, 2): 0.5}, 4).clone()
        for unit, (there, back) in enumerate([(0.1, 0.2), (0.3, 0.0), (0.3, 0.0), (0.5, 0.1)]):
            weights[unit, 0, 2, 4], weights[unit, 0, 4, 2] = there, back
        found = summed(scorer, items, weights)
        even, odd = (0.1 + 0.2 + 0.3) / 2, (0.3 + 0.5 + 0.1) / 2
        assert found.baseline[:, 0] == pytest.approx([odd, even, odd, even])

    def test_a_distance_that_the_other_half_lacks_is_taken_from_all(self):
        scorer = Semantic(relations(WORDS, "cat-dog"))
        items = [sentence("cat THE dog THE fish", 0), sentence("cat THE dog THE A", 1)]
        found = summed(scorer, items, pattern(5, {(2, 4): 0.3, (4, 2): 0.1}, 2))
        assert found.baseline[:, 0] == pytest.approx([0.4, 0.4])

    def test_far_distances_share_a_bucket(self):
        scorer = Semantic(relations(WORDS, "cat-dog"))
        text = " ".join(["cat", *["THE"] * 30, "dog", *["THE"] * 40, "fish"])
        found = tally(scorer, site(1), one_batch([sentence(text)]), pattern(73, {}))
        assert found.baseline[0, 0, 0].nonzero().flatten().tolist() == [0, BUCKETS - 1]
        assert found.n[0, [1, BUCKETS], 0].tolist() == [2, 2]
        assert BUCKETS == 2 * FARTHEST + 1

    def test_no_related_pair_is_not_measured(self):
        found = summed(Semantic(relations(WORDS)), [sentence("cat THE dog THE fish")], pattern(5, {}))
        assert found.n.sum() == 0
        assert np.isnan(found.beaten).all()


def listed(batch, weights, left) -> list[tuple[int, int, frozenset[int], np.ndarray]]:
    """Unit, distance, numbers of the lemmas and weight by head of every pair that counts."""
    pairs = []
    for index, thing in enumerate(batch.items):
        start = weights.shape[2] - len(thing.encoded) if left else 0
        own = {
            word: [start + i for i, owner in enumerate(thing.encoded.words) if owner == word]
            for word in range(len(thing.words))
        }
        for a, one in enumerate(thing.words):
            for b, other in enumerate(thing.words):
                if {one.upos, other.upos} != {"NOUN"} or abs(a - b) < 2 or one.lemma == other.lemma:
                    continue
                each = [sum(weights[index, :, q, k] for k in own[b]) for q in own[a]]
                numbers = frozenset("abcdef".index(word.lemma) for word in (one, other))
                distance = max(-FARTHEST, min(FARTHEST, b - a))
                pairs.append((thing.unit, distance, numbers, (sum(each) / len(each)).numpy()))
    return pairs


def made_up(left):
    rng = np.random.default_rng(1)
    items = []
    for unit, length in enumerate([5, 9, 26, 12, 7]):
        forms = [form.upper() if rng.random() < 0.3 else form for form in rng.choice(list("abcdef"), length)]
        pieces = [None, *sorted([*range(length), *rng.integers(0, length, 2).tolist()]), None]
        items.append(sentence(" ".join(forms), unit, pieces))
    return one_batch(items, left)


@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize("left", [False, True])
@pytest.mark.parametrize("size", [1, 4, None])
def test_against_plain_loops(causal, left, size):
    batch = made_up(left)
    weights = random_pattern(batch, 3, causal)
    scorer = Semantic(relations("a b c d e f", "a-b", "c-d", "a-e", "f-f", shuffled=True))
    (found,) = scorer.summarise(tally(scorer, site(3, causal), batch, weights, causal, size))
    pairs, nothing = listed(batch, weights, left), np.zeros(3)
    true = {frozenset(pair) for pair in ((0, 1), (2, 3), (0, 4))}

    def usual(distance, units):
        """Mean weight of unrelated pairs at a distance, in some units, else in all."""
        for among in (units, range(5)):
            at = [w for unit, d, n, w in pairs if d == distance and unit in among and n not in true]
            if at:
                return np.mean(at, axis=0)
        return nothing

    for unit in range(5):
        mine = [(d, w) for u, d, n, w in pairs if u == unit and n in true]
        others = [other for other in range(5) if other % 2 != unit % 2]
        assert found.n[unit].tolist() == [len(mine)] * 3
        assert found.score[unit] == pytest.approx(sum((w for _, w in mine), nothing), abs=1e-5)
        expected = sum((usual(d, others) for d, _ in mine), nothing)
        assert found.baseline[unit] == pytest.approx(expected, abs=1e-5)

    gains = []
    for moved in scorer.relations.permutations:
        chosen = [(d, w) for _, d, n, w in pairs if frozenset(int(moved[x]) for x in n) in true]
        if chosen:
            gains.append(np.mean([w - usual(d, range(5)) for d, w in chosen], axis=0))
    limit = np.percentile(gains, 99, axis=0)
    assert (limit > 0).all()
    expected = found.baseline.sum(0) / found.n.sum(0) + limit
    assert found.beaten[:, 0] == pytest.approx(expected, abs=1e-5)
