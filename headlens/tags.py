"""From scores to tags: the margins in force, and the tags of each head."""

from __future__ import annotations

from collections.abc import Mapping

import pandas as pd

from headlens.errors import InputError
from headlens.scorers import SCORERS
from headlens.util.files import TAGS, HeadScores


def margins_in_force(given: Mapping[str, float]) -> dict[str, float]:
    """Put given margins in the place of the defaults.

    Args:
        given: margins by name, such as ``mass``, ``special`` or ``syntactic``.

    Returns:
        The margin of every rule of every scorer.

    Raises:
        InputError: there is no rule of that name, or its margin is no share.
    """
    rules = {name: rule for scorer in SCORERS.values() for name, rule in scorer.rules.items()}
    margins = {name: rule.margin for name, rule in rules.items() if rule.ground}
    for name, share in given.items():
        if name not in margins:
            raise InputError(f"There is no margin {name!r}.", f"Choose one of: {', '.join(margins)}.")
        if not 0 <= share <= 1:
            raise InputError(
                f"Expected a share from 0 to 1 for the margin {name}, found {share}.",
                f"Its default is {margins[name]}.",
            )
    return {**margins, **given}


def tag_table(scores: HeadScores) -> pd.DataFrame:
    """Collect the tags of each head.

    Args:
        scores: the table of `scores.csv`.

    Returns:
        One row per head, columns as in `headlens.util.files.TAGS`: its tags joined by ``;``, that with the
        strongest evidence (the highest lower end of an interval) first, and that evidence in words.
    """
    rows = []
    for (stack, layer, head), mine in scores.groupby(["stack", "layer", "head"], sort=False):
        proven = mine[mine["tagged"]].sort_values("ci_low", ascending=False, kind="stable")
        best = proven.drop_duplicates("tag")
        evidence = "; ".join(
            f"{row.tag}: {row.measure} {row.score:.2f} against {row.baseline:.2f} (n={row.n})"
            for row in best.itertuples()
        )
        rows.append((stack, layer, head, ";".join(best["tag"]), evidence))
    return pd.DataFrame(rows, columns=TAGS)
