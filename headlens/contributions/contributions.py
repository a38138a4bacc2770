"""What each head writes for one input: measured, in tables."""

from __future__ import annotations

import inspect
import warnings
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd
import torch

from headlens.contributions.measure import (
    Parts,
    PredictedToken,
    measure_writing,
    position_of,
    predicted,
    reaches_logits,
    slopes_of,
    token_id,
)
from headlens.contributions.stream import BY_TOKEN, Array, joints_of
from headlens.corpus.batches import Axis, ModelInput, read
from headlens.errors import InputError
from headlens.model.finite import holds_none
from headlens.model.heads import Head, Site, head_name
from headlens.model.lens import Lens
from headlens.view.maps import title_of

if TYPE_CHECKING:
    from matplotlib.figure import Figure


def contributions(
    lens: Lens,
    text: str,
    pair: str | None = None,
    target: str | None = None,
    *,
    heads: str | Head | Sequence[Head] | None = None,
    token: str | None = None,
    position: int | None = None,
    max_length: int | None = None,
) -> Contributions:
    """Measure what each head writes for one input.

    Args:
        lens: the model and its tokenizer.
        text: what the model reads.
        pair: a second text, for models that read two.
        target: what an encoder-decoder model writes (teacher forcing).
        heads: a selector such as ``2.8,3.*``, or heads; all by default.
        token: the token whose logit is looked at; by default the one that the model ranks first.
        position: where it is predicted, from 0 (in the target of an encoder-decoder model); by default the
            last token, and the first mask token for a model that fills masks in.
        max_length: refuse inputs of more tokens; by default what the model takes.

    Returns:
        What the heads write; see `Contributions`.

    Raises:
        InputError: the text, the token or the position cannot be used.
        SelectorError: a head does not exist.
        ModelError: what heads write does not add up to what W_O puts out, or a W_O is not known.
    """
    chosen = lens.anatomy.heads if heads is None else lens.anatomy.select(heads)
    reading = read(lens, text, pair, target, max_length)
    taken = inspect.signature(lens.model.forward).parameters
    inputs = {name: value for name, value in reading.inputs.items() if name in taken}
    place, why = position_of(lens, inputs, position)
    wanted = None if token is None else token_id(lens, token)
    joints = joints_of(lens)
    parts, answer = measure_writing(lens, inputs, joints, place)
    seen = None if place is None else predicted(lens, answer, place, wanted)
    del answer
    notes = [] if why is None else [why]
    homeless = [site for site in lens.anatomy.sites if site not in joints]
    half = torch.finfo(lens.model.dtype).eps > 1e-5
    if homeless:
        notes.append(
            f"Where {_places(homeless)} adds what it writes to the residual stream was not found: its "
            "stream_share and logit are empty." + " Try --dtype float32: half precision may hide it." * half
        )
    effects = _effects(lens, inputs, parts, seen, homeless)
    notes += _remarks(lens, effects, homeless) if seen is not None else []
    read_as = text + (f" | {pair}" if pair else "") + (f" \u2192 {target}" if target else "")
    values = {site: part.values for site, part in parts.items()}
    axes = _axes(lens, reading)
    return Contributions(
        title_of(lens), lens.anatomy.sites, axes, values, effects, chosen, seen, tuple(notes), read_as
    )


def _effects(
    lens: Lens,
    inputs: Mapping[str, Any],
    parts: Mapping[Site, Parts],
    seen: PredictedToken | None,
    homeless: Sequence[Site],
) -> dict[Site, Array]:
    effects = {site: np.full(_count(part), np.nan) for site, part in parts.items()}
    if seen is None:
        return effects
    slopes = slopes_of(lens, inputs, seen.position, seen.id)
    for site, slope in slopes.by_site.items():
        if site not in homeless:
            written = parts[site].written
            effects[site] = (written @ slope.to(written)).double().numpy()
            if not np.isfinite(effects[site]).all():
                raise holds_none(f"The derivative of the logit by what {site} writes")
    return effects


def _count(part: Parts) -> int:
    return len(part.values["written_norm"])


def _remarks(lens: Lens, effects: Mapping[Site, Array], homeless: Sequence[Site]) -> list[str]:
    """Say which effects are not there."""
    notes = []
    silent = [site for site in effects if not reaches_logits(lens, site)]
    if silent:
        notes.append(
            "The encoder's heads write to no stream that the language head reads: their logit is empty."
        )
    lost = [
        site
        for site, values in effects.items()
        if np.isnan(values).all() and site not in homeless and site not in silent
    ]
    if lost:
        notes.append(
            f"No path along the residual stream from {_places(lost)} to the logit was found: its logit is "
            "empty."
        )
    return notes


def _places(sites: Sequence[Site]) -> str:
    shown = ", ".join(map(str, sites[:3]))
    return shown + (f" and {len(sites) - 3} more" if len(sites) > 3 else "")


def _axes(lens: Lens, reading: ModelInput) -> dict[str, Axis]:
    return {stack: reading.axes(stack)[0] for stack in lens.anatomy.stacks}


# ---- What each head writes for one input: its size, its share of the branch and of the stream, its logit


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
    predicted: PredictedToken | None
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
        """One row per head: columns as in `headlens.contributions.contributions.CONTRIBUTIONS`.

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
        from headlens.report.contribution_figures import draw_map, draw_tokens

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
        from headlens.report.contribution_figures import save

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


# ---- What heads write as a table


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
