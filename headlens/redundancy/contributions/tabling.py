"""What heads write as a table."""

from __future__ import annotations

import warnings
from typing import TYPE_CHECKING

import numpy as np
import pandas as pd

from headlens.redundancy.contributions.sums import BY_TOKEN, Array

if TYPE_CHECKING:
    from headlens.model.heads import Site
    from headlens.redundancy.contributions.result import Contributions

CONTRIBUTIONS = ["stack", "layer", "head", "position", "token", *BY_TOKEN, "logit"]


def long_table(found: Contributions, per_token: bool) -> pd.DataFrame:
    """Lay contributions out.

    Args:
        found: what heads write.
        per_token: one row per head and token, instead of means over tokens.

    Returns:
        Columns as in `CONTRIBUTIONS`, in model order. `head` is empty for W_O's bias, `position` and `token`
        are empty for means.
    """
    asked = set(found.heads)
    tables = []
    for site, values in found.values.items():
        whole = asked.issuperset(site.heads)
        count = len(values["written_norm"])
        rows = [n for n in range(count) if (whole if n >= site.n_heads else site.heads[n] in asked)]
        if rows:
            tables.append(_per_token(found, site, rows) if per_token else _means(found, site, rows))
    table = pd.concat(tables, ignore_index=True)
    table.insert(0, "stack", table.pop("stack"))
    return table[CONTRIBUTIONS]


def _heads(site: Site, rows: list[int]) -> pd.Series:
    return pd.Series([row if row < site.n_heads else pd.NA for row in rows], dtype="Int64")


def _means(found: Contributions, site: Site, rows: list[int]) -> pd.DataFrame:
    made = pd.DataFrame({"stack": site.stack, "layer": site.layer, "head": _heads(site, rows)})
    made["position"] = pd.Series([pd.NA] * len(rows), dtype="Int64")
    made["token"] = pd.Series([None] * len(rows), dtype=object)
    for name in BY_TOKEN:
        made[name] = _mean(found.values[site][name][rows])
    return made.assign(logit=found.effects[site][rows])


def _mean(values: Array) -> Array:
    """Means over tokens where a value is defined, [part, token] to [part]; NaN where it is nowhere."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", RuntimeWarning)
        return np.asarray(np.nanmean(values, axis=1), dtype=np.float64)


def _per_token(found: Contributions, site: Site, rows: list[int]) -> pd.DataFrame:
    tokens = found.axes[site.stack].tokens
    n_tokens = len(tokens)
    made = pd.DataFrame(
        {
            "stack": site.stack,
            "layer": site.layer,
            "head": _heads(site, [row for row in rows for _ in tokens]),
            "position": pd.Series(list(range(n_tokens)) * len(rows), dtype="Int64"),
            "token": pd.Series(list(tokens) * len(rows), dtype=object),
        }
    )
    for name in BY_TOKEN:
        made[name] = found.values[site][name][rows].reshape(-1)
    logit = np.full((len(rows), n_tokens), np.nan)
    if found.position is not None and not np.isnan(found.effects[site]).all():
        logit[:, found.position] = found.effects[site][rows]
    return made.assign(logit=logit.reshape(-1))
