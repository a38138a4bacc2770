from __future__ import annotations

import numpy as np
import pandas as pd
import pytest

from headlens.ablation.importance import agreement, ranked
from headlens.model.heads import Head


def test_agreement_of_methods():
    heads = [Head("encoder", 0, i) for i in range(4)]
    table = pd.concat(
        [
            ranked(heads, "taylor", np.array([1.0, 2, 3, 4])),
            ranked(heads, "each", np.array([10.0, 30, 20, np.nan])),
            ranked(heads, "flat", np.array([1.0, 1, 1, 1])),
            ranked(heads[:2], "few", np.array([1.0, 2])),
        ]
    )
    made = agreement(table)
    assert list(zip(made["method_a"], made["method_b"], made["n"], strict=True)) == [
        ("taylor", "each", 3),
        ("taylor", "flat", 4),
        ("taylor", "few", 2),
        ("each", "flat", 3),
        ("each", "few", 2),
        ("flat", "few", 2),
    ]
    assert made["rho"].iloc[0] == pytest.approx(0.5)  # of 1, 2, 3 and 1, 3, 2
    assert made["rho"].iloc[1:].isna().all()
