"""Induction and duplicate-token heads on repeated random tokens."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import replace

import pytest
import torch

from headlens.corpus.inputs import Item
from headlens.model.seam import Block
from headlens.scoring.base import TokenView
from headlens.scoring.scorers.copying import DuplicateToken, Induction
from support.handmade import baselines, item, one_batch, random_pattern, shares, site, tally, visibility

CLS, SEP = 1, 2


def repeated(length: int, times: int, special: bool = True) -> list[int]:
    """Ids of a block of different tokens, several times, with [CLS] and [SEP] around it."""
    block = list(range(10, 10 + length)) * times
    return [CLS, *block, SEP] if special else block


def coded(ids: list[int], unit: int = 0) -> Item:
    made = item([], [None] * len(ids), unit)
    special = tuple(token in (CLS, SEP) for token in ids)
    return replace(made, encoded=replace(made.encoded, inputs={"input_ids": ids}, special=special))


def on(ids: list[int], step: int | None, share=None) -> torch.Tensor:
    """A head [1, 1, query, key] on what stands `step` after earlier copies of the query's token.

    Rows without such a place look at themselves. `share` weighs the places, first to last; None: evenly.
    """
    pattern = torch.eye(len(ids))
    for query, token in enumerate(ids):
        places = [k + step for k in range(query) if ids[k] == token and k + step >= 0 and token > SEP]
        if places:
            weights = torch.tensor(share(len(places)) if share else [1.0] * len(places))
            pattern[query] = 0
            pattern[query, places] = weights / weights.sum()
    return pattern[None, None]


def both(ids: list[int], pattern: torch.Tensor, causal: bool = True, size: int | None = None):
    """Prefix matching and duplicate-token score of the one head of a pattern."""
    batch = one_batch([coded(ids)])
    return tuple(
        shares(tally(scorer, site(1, causal), batch, pattern, causal, size), measure)[0]
        for scorer, measure in ((Induction(), "prefix-matching"), (DuplicateToken(), "duplicate-token"))
    )


SPLITS = {
    "evenly": None,
    "on the first copy": lambda n: [1.0] + [0.0] * (n - 1),
    "on the last copy": lambda n: [0.0] * (n - 1) + [1.0],
    "somehow": lambda n: [1.0 + i for i in range(n)],
}


@pytest.mark.parametrize("times", [2, 3, 5])
@pytest.mark.parametrize("split", SPLITS)
class TestIdealHeads:
    def test_induction(self, times, split):
        ids = repeated(6, times)
        assert both(ids, on(ids, 1, SPLITS[split])) == pytest.approx((1, 0), abs=1e-6)

    def test_duplicate_token(self, times, split):
        ids = repeated(6, times)
        assert both(ids, on(ids, 0, SPLITS[split])) == pytest.approx((0, 1), abs=1e-6)

    def test_the_position_before_copies_is_neither(self, times, split):
        ids = repeated(6, times)
        assert both(ids, on(ids, -1, SPLITS[split])) == pytest.approx((0, 0), abs=1e-6)


def test_the_previous_token_is_neither():
    ids = repeated(6, 3)
    pattern = torch.eye(len(ids)).roll(-1, dims=1)
    pattern[0] = torch.eye(len(ids))[0]
    assert both(ids, pattern[None, None]) == (0, 0)


def test_almost_all_on_the_sink():
    ids = repeated(6, 3)
    sink = torch.zeros(1, 1, len(ids), len(ids))
    sink[..., 0] = 1
    assert both(ids, 0.99 * sink + 0.01 * on(ids, 1)) == pytest.approx((0.01, 0))
    assert both(ids, sink) == (0, 0)


@pytest.mark.parametrize("size", [1, 5, None])
@pytest.mark.parametrize("causal", [False, True])
def test_baseline_is_uniform_and_blocks_change_nothing(size, causal):
    ids = repeated(4, 3, special=False)
    batch = one_batch([coded(ids)])
    pattern = visibility(batch, causal).float()
    pattern = pattern / pattern.sum(-1, keepdim=True)
    copies = [query // 4 for query in range(4, 12)]  # as many places after them
    expected = sum(n / (q + 1 if causal else 12) for q, n in enumerate(copies, 4)) / 8
    for scorer in (Induction(), DuplicateToken()):
        found = tally(scorer, site(1, causal), batch, pattern, causal, size)
        measure = scorer.measures[0]
        assert baselines(found, measure) == pytest.approx([expected])
        assert shares(found, measure) == pytest.approx([expected])
        assert found.n[0, 0].sum() == 8


def test_special_tokens_are_no_copies():
    found = tally(
        DuplicateToken(), site(1), one_batch([coded([CLS, 10, SEP, CLS, 11, SEP])]), torch.ones(1, 1, 6, 6)
    )
    assert found.n.sum() == 0


def test_copying_is_not_measured_without_a_way_to_the_logits():
    ids = repeated(6, 2)
    found = tally(Induction(), site(1), one_batch([coded(ids)]), on(ids, 1))
    assert found.n[0, 1].sum() == 0


def test_what_a_window_hides_is_not_counted():
    ids = repeated(4, 3, special=False)
    batch = one_batch([coded(ids)])
    near = visibility(batch, True) & torch.ones(12, 12, dtype=torch.bool).triu(-4)  # itself and 4 before
    pattern = near.float() / near.sum(-1, keepdim=True)
    counts = {}
    for scorer in (Induction(), DuplicateToken()):
        block = Block(pattern, near, 0, 12, 12, 12)
        counts[scorer.tag] = scorer(TokenView(site(1, True), block, batch))
    # of each row only the last copy, 4 before, or what came after it, 3 before, can be seen
    for found in counts.values():
        assert found.gold.n[0, 0] == 8
        torch.testing.assert_close(found.score[0, 0], torch.tensor([8 / 5]))
        torch.testing.assert_close(found.gold.baseline[0, 0], torch.tensor([8 / 5]))
    narrow = near.triu(-3)
    block = Block(narrow.float() / narrow.sum(-1, keepdim=True), narrow, 0, 12, 12, 12)
    assert DuplicateToken()(TokenView(site(1, True), block, batch)).gold.n.sum() == 0
    assert Induction()(TokenView(site(1, True), block, batch)).gold.n[0, 0] == 8


ITEMS = [
    coded(repeated(5, 3), unit=0),
    coded([CLS, 10, 11, 10, 10, 12, 11, SEP], unit=1),  # a copy just before: the place after it is the token
    coded([10, 11, 12], unit=1),  # nothing is repeated
]


@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize("left", [False, True])
@pytest.mark.parametrize("size", [1, 5, None])
def test_against_plain_loops(causal, left, size):
    batch = one_batch(ITEMS, left)
    pattern = random_pattern(batch, 3, causal)
    sums = defaultdict(lambda: [[0.0] * 3, 0, 0.0])
    for index, thing in enumerate(batch.items):
        ids = thing.encoded.inputs["input_ids"]
        start = batch.real.shape[1] - len(ids) if left else 0
        for q in range(len(ids)):
            keys = [k for k in range(len(ids)) if k <= q or not causal]
            same = [k for k in range(q) if ids[k] == ids[q] and ids[q] not in (CLS, SEP)]
            for measure, places in (("prefix-matching", [k + 1 for k in same]), ("duplicate-token", same)):
                if places:
                    entry = sums[measure, thing.unit]
                    for h in range(3):
                        entry[0][h] += sum(float(pattern[index, h, start + q, start + k]) for k in places)
                    entry[1] += 1
                    entry[2] += len(places) / len(keys)
    for scorer in (Induction(), DuplicateToken()):
        found = tally(scorer, site(3, causal), batch, pattern, causal, size)
        for unit in (0, 1):
            score, n, baseline = sums[scorer.measures[0], unit]
            torch.testing.assert_close(found.score[unit, 0], torch.tensor(score).double(), atol=1e-5, rtol=0)
            assert found.n[unit, 0, 0] == n
            assert float(found.baseline[unit, 0, 0, 0]) == pytest.approx(baseline, abs=1e-5)
