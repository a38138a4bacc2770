"""What each head writes for one input: its size, its share of the branch and of the stream, its logit."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import pandas as pd

from headlens.corpus.batches import Axis
from headlens.errors import InputError
from headlens.model.heads import Head, Site, head_name
from headlens.redundancy.contributions.predicted import Predicted
from headlens.redundancy.contributions.sums import BY_TOKEN, Array
from headlens.redundancy.contributions.tabling import long_table

if TYPE_CHECKING:
    from matplotlib.figure import Figure

MEASURES = (*BY_TOKEN, "logit")


@dataclass(frozen=True, slots=True, eq=False)
class Contributions:
    """What the heads of a model write for one input.

    At query position q head i puts out z_i(q) before W_O and writes c_i(q) = z_i(q) W_i^O, its rows of W_O
    applied. W_O's bias belongs to no head and is a part of its own. The branch b(q), what W_O puts out, is
    the sum of these parts; that is checked in the same pass. The measures:

    - `output_norm`: |z_i(q)|, from 0 on.
    - `written_norm`: |c_i(q)|, from 0 on, in the units of the residual stream.
    - `branch_share`: c_i.b / |b|^2. The shares of all parts add up to 1; one is negative where a head writes
      against the rest.
    - `cosine`: cos(c_i, b), -1..1.
    - `stream_share`: c_i.r / |r|^2, where r = x + b is the residual stream with the branch added and x the
      stream that it is added to. Where a norm stands between W_O and the addition (Gemma 3), c_i and b pass
      it as a linear map at its observed scale, and where they are multiplied by a number (Granite), by it.
      Over all parts it adds up to b.r / |r|^2.
    - `logit`: the direct effect on one token's logit at one position, see
      `direct.slopes_of`. It counts what moves the logits of all tokens alike, too; the difference between
      two tokens does not.

    A share says how much of a vector lies along a head, not how much would be lost without it: what a head
    writes may be undone, or done by another. Directions that are large in every token (of the first token,
    often) take much of a stream share.

    Args:
        model: the model's name, for titles.
        sites: all sites of the model.
        axes: for each stack its query tokens.
        values: for each site the measures by token, [part, token]; the heads first, then the bias if there
            is one.
        effects: for each site the logit effects [part], NaN where there is none.
        heads: the heads that are asked for, in model order.
        predicted: the token whose logit it is; None where there is none.
        notes: what is not measured, and why.
        text: what was read.
    """

    model: str
    sites: tuple[Site, ...]
    axes: Mapping[str, Axis]
    values: Mapping[Site, Mapping[str, Array]]
    effects: Mapping[Site, Array]
    heads: tuple[Head, ...]
    predicted: Predicted | None
    notes: tuple[str, ...]
    text: str = ""

    @property
    def token(self) -> str | None:
        """The token whose logit the effects are on."""
        return None if self.predicted is None else self.predicted.token

    @property
    def position(self) -> int | None:
        """Where that token is predicted."""
        return None if self.predicted is None else self.predicted.position

    @property
    def logit(self) -> float:
        """The logit itself; NaN where there is none."""
        return float("nan") if self.predicted is None else self.predicted.logit

    @property
    def table(self) -> pd.DataFrame:
        """One row per head: columns as in `headlens.redundancy.contributions.tabling.CONTRIBUTIONS`.

        Measures by token are means over all tokens of the input, special ones included, where they are
        defined; shares still add up. `logit` belongs to its position alone. `position` and `token` are
        empty. Where all heads are there, W_O's bias has a row with an empty `head`.
        """
        return long_table(self, per_token=False)

    @property
    def per_token(self) -> pd.DataFrame:
        """The same with one row per head and token; `logit` only where it is looked at."""
        return long_table(self, per_token=True)

    def name(self, head: Head) -> str:
        """Write a head as users do: ``4.11``, or ``cross.4.11`` where the model has several stacks."""
        return head_name(head, self.sites)

    def heatmap(
        self, measure: str = "branch_share", per_token: bool = False, title: str | None = None
    ) -> Figure:
        """Draw one measure: a map of layers and heads, or of heads and tokens.

        Args:
            measure: one of `MEASURES`.
            per_token: rows are heads and columns are tokens.
            title: instead of one that says what was found.

        Returns:
            The figure.

        Raises:
            InputError: there is no such measure, or it has no value here.
        """
        from headlens.report.contributions import draw_map
        from headlens.report.contributions_tokens import draw_tokens

        check_measure(self, measure, per_token)
        return draw_tokens(self, measure, title) if per_token else draw_map(self, measure, title)

    def save(self, path: str | Path, measure: str = "branch_share", per_token: bool = False) -> None:
        """Write a file whose ending says of what kind: ``.csv`` the table, ``.png .svg .pdf`` the heatmap.

        Args:
            path: the file.
            measure: for a picture; a table has all of them.
            per_token: see `per_token` and `heatmap`.

        Raises:
            InputError: the ending names no format, or the measure has no value here.
            RunError: the file cannot be written.
        """
        from headlens.report.contributions import save

        save(self, path, measure, per_token)


def check_measure(found: Contributions, measure: str, per_token: bool) -> None:
    """Refuse a measure that cannot be drawn.

    Raises:
        InputError: there is no such measure, or it has no value here.
    """
    if measure not in MEASURES:
        raise InputError(f"There is no measure {measure!r}.", f"There is {', '.join(MEASURES)}.")
    if measure == "logit" and per_token:
        raise InputError(
            "The effect on a logit belongs to one position, so it cannot be drawn token by token.",
            "Leave --per-token out, or take another measure.",
        )
    if found.table[measure].isna().all():
        why = " ".join(found.notes) or "Every head writes nothing."
        raise InputError(f"There is no {measure} to draw. {why}".rstrip(), "Or take another measure.")
