"""Attention weights as one long table."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
import pandas as pd
from torch import Tensor

from headlens.corpus.batches import Axis
from headlens.model.heads import Site


def long_table(
    patterns: Mapping[Site, Tensor],
    numbers: Mapping[Site, Sequence[int]],
    axes: Mapping[str, tuple[Axis, Axis]],
) -> pd.DataFrame:
    """Write one row for every weight.

    Args:
        patterns: for each site its weights [head, query, key].
        numbers: for each site the numbers of its heads.
        axes: for each stack what its queries and keys are.

    Returns:
        Columns ``stack,layer,head,query,key,query_token,key_token,weight``, in model order.
    """
    columns: dict[str, list[np.ndarray]] = {}
    for site, pattern in patterns.items():
        queries, keys = (np.array(axis.tokens, dtype=object) for axis in axes[site.stack])
        head, query, key = (index.ravel() for index in np.indices(pattern.shape))
        values = {
            "stack": np.full(head.shape, site.stack, dtype=object),
            "layer": np.full(head.shape, site.layer),
            "head": np.array(numbers[site])[head],
            "query": query,
            "key": key,
            "query_token": queries[query],
            "key_token": keys[key],
            "weight": pattern.numpy().ravel(),
        }
        for name, column in values.items():
            columns.setdefault(name, []).append(column)
    return pd.DataFrame({name: np.concatenate(parts) for name, parts in columns.items()})
