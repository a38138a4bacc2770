"""Distances between rows made by hand."""

import math

import numpy as np
import pytest
import torch
from scipy.spatial.distance import jensenshannon

from headlens.model.seam import Block
from headlens.similarity import measure as divergence
from headlens.similarity.measure import Patterns, add_pairs, cells_of, mean_divergence, spans
from support.handmade import item, one_batch, random_pattern, site, visibility

CPU = torch.device("cpu")


def divergences(weights, n_rows=1):
    rows = torch.tensor(weights, dtype=torch.float64)
    sums = torch.zeros(len(rows), len(rows), dtype=torch.float64)
    add_pairs(rows, sums)
    return mean_divergence(sums, n_rows).numpy()


def test_equal_rows_and_rows_without_a_common_key():
    found = divergences([[0.3, 0.7, 0, 0], [0.3, 0.7, 0, 0], [0, 0, 0.1, 0.9]])
    assert found[0, 1] == 0
    assert found[0, 2] == pytest.approx(math.log(2), abs=1e-15)
    assert found.max() <= math.log(2)
    assert (found == found.T).all()


def test_a_case_by_hand():
    # (1, 0) and (1/2, 1/2): H(3/4, 1/4) - (0 + ln 2) / 2
    expected = -0.75 * math.log(0.75) - 0.25 * math.log(0.25) - math.log(2) / 2
    assert divergences([[1, 0], [0.5, 0.5]])[0, 1] == pytest.approx(expected, abs=1e-15)
    assert expected == pytest.approx(0.2157616, abs=1e-7)
    two_rows = divergences([[1, 0, 1, 0], [0.5, 0.5, 1, 0]], n_rows=2)  # the second row is the same
    assert two_rows[0, 1] == pytest.approx(expected / 2, abs=1e-15)


@pytest.mark.parametrize(("cells", "at_once"), [(7, 14), (64, 64), (4096, 2**18)])
def test_blocks_change_nothing(monkeypatch, cells, at_once):
    monkeypatch.setattr(divergence, "CELLS", cells)
    monkeypatch.setattr(divergence, "AT_ONCE", at_once)
    rng = np.random.default_rng(0)
    rows = rng.dirichlet([0.3] * 10, size=(9, 12))  # [head, row, key]
    found = divergences(rows.reshape(9, -1), 12)
    for a in range(9):
        for b in range(9):
            assert found[a, b] == pytest.approx((jensenshannon(rows[a].T, rows[b].T) ** 2).mean(), abs=1e-12)


def patterns_of(batch, pattern, causal, span=None, size=None, smoothing=0.0):
    where = site(pattern.shape[1], causal)
    length = pattern.shape[2]
    seen = visibility(batch, causal)
    held = Patterns({where: list(range(where.n_heads))}, batch, span or (0, length), smoothing, CPU)
    for start in range(0, length, size or length):
        stop = min(start + (size or length), length)
        reach = stop if causal else length
        held.see(
            where,
            Block(
                pattern[:, :, start:stop, :reach], seen[:, :, start:stop, :reach], start, stop, length, length
            ),
        )
    return held


def words(count):
    return item([("x", -1, "root")] * count)


@pytest.mark.parametrize("left", [False, True])
@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize("smoothing", [0.0, 0.1])
def test_padding_blocks_and_spans(left, causal, smoothing):
    """Against a loop over real queries and visible keys."""
    batch = one_batch([words(5), words(2), words(0)], left)  # 7, 4 and 2 tokens
    pattern = random_pattern(batch, 4, causal)
    seen = visibility(batch, causal)[:, 0]
    total, n = np.zeros((4, 4)), 0
    for row, query in batch.real.nonzero().tolist():
        keys = seen[row, query]
        if keys.sum() > 1:
            rows = pattern[row, :, query, keys].double().numpy()
            rows = (1 - smoothing) * rows / rows.sum(-1, keepdims=True) + smoothing / int(keys.sum())
            total += jensenshannon(rows[:, None], rows[None], axis=-1) ** 2
            n += 1
    assert n == (6 + 3 + 1 if causal else 7 + 4 + 2)
    for cut in ([(0, 7)], [(0, 3), (3, 4), (4, 7)]):
        for size in (None, 2):
            sums, n_rows = torch.zeros(4, 4, dtype=torch.float64), 0
            for span in cut:
                held = patterns_of(batch, pattern, causal, span, size, smoothing)
                add_pairs(held.weights, sums)
                n_rows += held.n_rows
            assert n_rows == n
            np.testing.assert_allclose(mean_divergence(sums, n_rows), total / n, atol=1e-12)


def test_smoothing_mixes_with_the_uniform_row():
    batch = one_batch([words(2)])  # 4 tokens
    pattern = torch.eye(4)[None, None]
    held = patterns_of(batch, pattern, True, smoothing=0.2)
    rows = {1: [0.1, 0.9], 2: [0.2 / 3, 0.2 / 3, 0.8 + 0.2 / 3], 3: [0.05, 0.05, 0.05, 0.85]}
    expected = [1.0, *rows[1], *rows[2], *rows[3]]
    np.testing.assert_allclose(held.weights[0], expected, atol=1e-15)
    assert held.n_rows == 3  # the first query sees itself alone


def test_spans_cover_all_queries_and_stay_small(monkeypatch):
    batch = one_batch([words(8), words(4)])
    where = {site(3, True): [0, 1, 2]}
    assert list(spans(batch, where)) == [(0, 10)]
    monkeypatch.setattr("headlens.similarity.measure.KEPT", 8 * 3 * 25)
    cut = list(spans(batch, where))
    assert len(cut) > 2
    assert [stop for _, stop in cut[:-1]] == [start for start, _ in cut[1:]]
    assert (cut[0][0], cut[-1][1]) == (0, 10)
    cells = cells_of(batch, where)
    assert all(cells[start:stop].sum() <= 25 for start, stop in cut)
