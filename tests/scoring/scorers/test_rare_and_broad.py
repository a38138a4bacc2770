"""Rare-token and broad heads: known answers and plain loops."""

from __future__ import annotations

import math
from collections import defaultdict

import numpy as np
import pytest
import torch

from headlens.scoring.evidence import Settings, score_table
from headlens.scoring.scorers.broad import Broad
from headlens.scoring.scorers.copying import DuplicateToken, Induction
from headlens.scoring.scorers.delimiter import Delimiter
from headlens.scoring.scorers.positional import Positional
from headlens.scoring.scorers.rare_token import RareToken
from headlens.scoring.scorers.syntactic import Syntactic
from support.handmade import item, one_batch, random_pattern, shares, site, tally, visibility


def words(text: str) -> list[tuple[str, int, str]]:
    return [(form, -1, "root") for form in text.split()]


FREQUENCY = {"the": 100.0, "of": 50.0, "cat": 3.0, "dog": 2.0, "hums": 2.0, "axolotl": 1.0}


SENTENCE = words("the cat of the axolotl of")  # [CLS] the cat of the axolotl of [SEP]: 2 and 5 are rare


def looking(targets: list[int | dict[int, float]]) -> torch.Tensor:
    pattern = torch.zeros(1, 1, len(targets), len(targets))
    for query, keys in enumerate(targets):
        for key, weight in ({keys: 1.0} if isinstance(keys, int) else keys).items():
            pattern[0, 0, query, key] = weight
    return pattern


def scored(pattern: torch.Tensor, causal: bool = False, rare_share=(1.0,) * 10, sentence=SENTENCE):
    """Score, chance and n of one head."""
    found = tally(
        RareToken(FREQUENCY, rare_share), site(1, causal), one_batch([item(sentence)]), pattern, causal
    )
    n = float(found.n[0, 0, 0])
    return float(found.score[0, 0, 0]), float(found.chance[0, 0, 0]), n


class TestRareToken:
    def test_known_answers(self):
        assert scored(looking([0, 2, 2, 5, 5, 5, 2, 7])) == pytest.approx((6, 6 * 2 / 6, 6))
        assert scored(looking([2, 1, 1, 1, 1, 1, 1, 2])) == pytest.approx((0, 6 * 2 / 6, 6))

    def test_most_on_special_tokens_leaves_the_rest_to_decide(self):
        assert scored(looking([{0: 0.9, 5: 0.1}] * 8)) == pytest.approx((6, 2, 6))

    def test_abstentions_are_wrong_and_have_no_chance(self):
        tie = {2: 0.5, 5: 0.5}
        assert scored(looking([0, 0, 7, tie, tie, 5, 5, 7])) == pytest.approx((2, 2 * 2 / 6, 6))
        assert scored(torch.full((1, 1, 8, 8), 1 / 8)) == (0, 0, 6)

    def test_sentences_that_tell_nothing(self):
        assert scored(torch.eye(6)[None, None], sentence=words("the the cat of")) == (0, 0, 0)
        batch = one_batch([item(words("the the cat of"))])
        found = tally(RareToken(FREQUENCY), site(1), batch, torch.eye(6)[None, None])
        assert math.isnan(shares(found, "rare-token")[0])

    def test_chance_goes_by_position(self):
        # six words are in tenths 0 1 3 5 6 8; rare words stand in 6 and 1 only, three to one
        usual = (0.0, 1.0, 0.0, 0.0, 0.0, 0.0, 3.0, 0.0, 0.0, 0.0)
        assert scored(looking([5] * 8), rare_share=usual) == pytest.approx((6, 6 * min(1, 2 * 3 / 4), 6))
        assert scored(looking([2] * 8), rare_share=usual) == pytest.approx((6, 6 * 2 * 1 / 4, 6))
        assert scored(looking([3] * 8), rare_share=usual) == (0, 0, 6)

    @pytest.mark.parametrize("ratio", [0.1, 1.0, 3.0])
    def test_a_row_that_sees_one_word_gains_nothing(self, ratio):
        usual = (ratio, *(1.0,) * 9)
        text = words("axolotl cat the of the of")
        assert scored(looking([0, 1, *[7] * 6]), True, usual, text) == pytest.approx((1, 1, 6))
        # every row on the first word: right, and as likely as the two rare words of those in sight make it
        chances = [min(1, min(2, seen) * ratio / (seen - 1 + ratio)) for seen in range(1, 7)]
        assert scored(looking([1] * 8), True, usual, text) == pytest.approx((6, sum(chances), 6))

    def test_against_plain_loops(self):
        rng = np.random.default_rng(0)
        vocabulary = [*FREQUENCY, "zyzzyva"]
        items = []
        for unit, length in enumerate([4, 6, 9, 12, 7]):
            forms = rng.choice(vocabulary, length)
            pieces = [None, *sorted([*range(length), *rng.integers(0, length, 3).tolist()]), None]
            items.append(item(words(" ".join(forms)), pieces, unit))
        usual = tuple(rng.random(10).tolist())
        for causal in (False, True):
            for left in (False, True):
                for size in (1, 4, None):
                    self.compare(one_batch(items, left), usual, causal, left, size)

    def compare(self, batch, usual, causal, left, size):
        pattern = random_pattern(batch, 3, causal)
        seen = visibility(batch, causal)
        found = tally(RareToken(FREQUENCY, usual), site(3, causal), batch, pattern, causal, size)
        for index, thing in enumerate(batch.items):
            count = [FREQUENCY.get(word.form, 0) for word in thing.words]
            limit = sorted(count)[1]
            rare = [c <= limit for c in count]
            telling = len(count) >= 5 and sum(rare) <= len(count) / 2
            owners = thing.encoded.words
            start = pattern.shape[2] - len(owners) if left else 0
            tokens = [i for i, word in enumerate(owners) if word is not None]
            expected, n = [[0.0, 0.0] for _ in range(3)], 0
            for q in tokens if telling else []:
                keys = [k for k in tokens if seen[index, 0, start + q, start + k]]
                likely = {k: usual[owners[k] * 10 // len(count)] for k in keys}
                n += 1
                for h in range(3):
                    best = max(keys, key=lambda k, h=h: float(pattern[index, h, start + q, start + k]))
                    expected[h][0] += rare[owners[best]]
                    among = sum(rare[owners[k]] for k in keys)
                    expected[h][1] += min(1, among * likely[best] / sum(likely.values()))
            assert found.n[thing.unit, 0, 0] == n
            for h in range(3):
                assert float(found.score[thing.unit, 0, h]) == pytest.approx(expected[h][0], abs=1e-5)
                assert float(found.chance[thing.unit, 0, h]) == pytest.approx(expected[h][1], abs=1e-5)


class TestBroad:
    def test_uniform_rows_are_one_and_one_hot_rows_are_nought(self):
        batch = one_batch([item(SENTENCE), item(SENTENCE[:3])])
        uniform = visibility(batch, False).float()
        uniform = (uniform / uniform.sum(-1, keepdim=True)).expand(-1, 1, 8, 8)
        assert shares(tally(Broad(), site(1), batch, uniform), "entropy") == pytest.approx([1], abs=1e-7)
        one_hot = torch.zeros(2, 1, 8, 8)
        one_hot[..., 1] = 1
        assert shares(tally(Broad(), site(1), batch, one_hot), "entropy") == [0]

    def test_a_row_that_sees_one_key_is_not_counted(self):
        batch = one_batch([item(SENTENCE)])
        uniform = visibility(batch, True).float()
        uniform = uniform / uniform.sum(-1, keepdim=True)
        found = tally(Broad(), site(1, True), batch, uniform, True)
        assert shares(found, "entropy") == pytest.approx([1], abs=1e-6)
        assert found.n[0, 0, 0] == 7

    @pytest.mark.parametrize("causal", [False, True])
    @pytest.mark.parametrize("left", [False, True])
    @pytest.mark.parametrize("size", [1, 3, None])
    def test_against_plain_loops(self, causal, left, size):
        batch = one_batch([item(SENTENCE, unit=0), item(SENTENCE[:3], unit=1)], left)
        pattern, seen = random_pattern(batch, 3, causal), visibility(batch, causal)
        found = tally(Broad(), site(3, causal), batch, pattern, causal, size)
        sums = defaultdict(lambda: [0.0] * 3)
        counts = defaultdict(int)
        for index, thing in enumerate(batch.items):
            start = 8 - len(thing.encoded) if left else 0
            for q in range(start, start + len(thing.encoded)):
                keys = [k for k in range(8) if seen[index, 0, q, k]]
                if len(keys) > 1:
                    counts[thing.unit] += 1
                    for h in range(3):
                        row = [float(pattern[index, h, q, k]) for k in keys]
                        sums[thing.unit][h] -= sum(p * math.log(p) for p in row if p) / math.log(len(keys))
        for unit in (0, 1):
            assert found.n[unit, 0, 0] == counts[unit]
            assert found.score[unit, 0].tolist() == pytest.approx(sums[unit], abs=1e-4)


def test_uniform_weights_get_no_tag_but_broad():
    tree = [
        ("the", 1, "det"),
        ("cat", 2, "nsubj"),
        ("sees", -1, "root"),
        ("the", 4, "det"),
        ("dog", 2, "obj"),
    ]
    batch = one_batch([item([*tree, (".", 2, "punct")], unit=unit) for unit in range(40)])
    pattern = torch.full((40, 1, 8, 8), 1 / 8)
    scorers = [
        Positional(),
        Delimiter(),
        Syntactic(("det", "nsubj", "obj")),
        Induction(),
        DuplicateToken(),
        RareToken(FREQUENCY),
        Broad(),
    ]
    tallies = [tally(scorer, site(1), batch, pattern) for scorer in scorers]
    table = score_table(tallies, {}, Settings())
    assert table.loc[table["tagged"], "tag"].tolist() == ["broad"]
    assert table.loc[table["tag"] == "broad", "score"].tolist() == pytest.approx([1])
