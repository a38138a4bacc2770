"""The largest weight of a row, if it is the only one: three ways of asking agree."""

from __future__ import annotations

import hypothesis.extra.numpy as arrays
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from headlens.scoring.base import is_unique_max, unique_argmax, unique_max

ROWS = arrays.arrays("float32", (3, 5, 4), elements=st.sampled_from([0.0, 0.25, 0.5, 1.0]))


@settings(max_examples=200, deadline=None)
@given(ROWS)
def test_by_plain_loops(rows):
    weights = torch.from_numpy(rows)
    found = is_unique_max(weights, weights[..., [3, 0, 3]])
    places, largest = unique_argmax(weights), unique_max(weights)
    for index in range(3):
        for row in range(5):
            values = weights[index, row].tolist()
            top = max(values)
            alone = top > 0 and values.count(top) == 1
            assert places[index, row] == (values.index(top) if alone else -1)
            assert (largest[index, row] == top) == alone
            expected = [alone and values[key] == top for key in (3, 0, 3)]
            assert found[index, row].tolist() == expected
