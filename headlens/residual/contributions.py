"""What each head writes for one input: measured, in tables."""

from __future__ import annotations

import inspect
import math
import warnings
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd
import torch

from headlens.corpus.batches import read
from headlens.errors import InputError
from headlens.model.finite import holds_none
from headlens.model.heads import Head, Site, link_name
from headlens.model.lens import Lens
from headlens.residual.measure import (
    Parts,
    PredictedToken,
    measure_writing,
    position_of,
    predicted,
    reaches_logits,
    slopes_of,
    token_id,
)
from headlens.residual.stream import BY_TOKEN, Array, joints_of
from headlens.runs.read import TableForm, at
from headlens.runs.record import Clock, record
from headlens.runs.result import Examples, Result
from headlens.util.drawing import artist

if TYPE_CHECKING:
    from matplotlib.figure import Figure

MEASURES = (*BY_TOKEN, "logit")
DEFAULT = "branch_share"
CONTRIBUTIONS = ["stack", "layer", "head", "position", "token", *MEASURES]
FILES = (".csv", ".png", ".svg", ".pdf")
_HEAD = ["stack", "layer", "head"]


@dataclass(frozen=True, eq=False, repr=False)
class Contributions(Result):
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
    - `logit`: the direct effect on one token's logit at one position, see `measure.slopes_of`. It counts what
      moves the logits of all tokens alike, too; the difference between two tokens does not.

    A share says how much of a vector lies along a head, not how much would be lost without it: what a head
    writes may be undone, or done by another. Directions that are large in every token (of the first token,
    often) take much of a stream share.

    Args:
        table: one row per head: columns as in `CONTRIBUTIONS`. Measures by token are means over all tokens of
            the input, special ones included, where they are defined; shares still add up. `logit` belongs to
            its position alone. `position` and `token` are empty. Where all heads of a layer are there, W_O's
            bias has a row with an empty `head`.
        per_token: the same with one row per head and token; `logit` only where it is looked at.
        run: what `run.json` says: the model, the text and its tokens, the token whose logit is looked at, and
            what was not measured.
        examples: none.
    """

    command = "contributions"
    forms = tuple(
        TableForm(name, CONTRIBUTIONS, ("stack", "token"), gaps=("head", "position"), stem=stem)
        for name, stem in (("table", "contributions"), ("per_token", "contributions_by_token"))
    )
    table: pd.DataFrame
    per_token: pd.DataFrame
    run: Mapping[str, Any]
    examples: Examples | None = None

    @property
    def heads(self) -> tuple[Head, ...]:
        """The heads that are asked for, in model order."""
        return heads_in(self.table)

    @property
    def tokens(self) -> Mapping[str, Sequence[str]]:
        """For each stack of the model the tokens that it reads."""
        tokens: Mapping[str, Sequence[str]] = at(self.run, "tokens", default={})
        return tokens

    @property
    def notes(self) -> tuple[str, ...]:
        """What is not measured, and why."""
        return tuple(map(str, at(self.run, "notes", default=())))

    @property
    def predicted(self) -> PredictedToken | None:
        """The token whose logit the effects are on; None where there is none."""
        told = at(self.run, "predicted")
        if told is None:
            return None
        numbers = {name: at(told, name, default=0) for name in ("id", "position", "probability")}
        logit = at(told, "logit", default=-math.inf)  # JSON has no infinite numbers
        return PredictedToken(at(told, "token", default=""), logit=logit, **numbers)

    @property
    def token(self) -> str | None:
        """That token, as people read it."""
        return None if self.predicted is None else self.predicted.token

    @property
    def position(self) -> int | None:
        """Where it is predicted."""
        return None if self.predicted is None else self.predicted.position

    @property
    def logit(self) -> float:
        """Its logit; NaN where there is none."""
        return float("nan") if self.predicted is None else self.predicted.logit

    def name(self, head: Head) -> str:
        """Write a head as users do: ``4.11``, or ``cross.4.11`` where the model has several stacks."""
        return link_name(head, len(self.tokens) > 1)

    def heatmap(self, measure: str = DEFAULT, per_token: bool = False, title: str | None = None) -> Figure:
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
        if measure not in MEASURES:
            raise InputError(f"There is no measure {measure!r}.", f"There is {', '.join(MEASURES)}.")
        if measure == "logit" and per_token:
            raise InputError(
                "The effect on a logit belongs to one position, so it cannot be drawn token by token.",
                "Leave --per-token out, or take another measure.",
            )
        if self.table[measure].isna().all():
            why = " ".join(self.notes) or "Every head writes nothing."
            raise InputError(f"There is no {measure} to draw. {why}".rstrip(), "Or take another measure.")
        return artist().map_contributions(self, measure, per_token, title)

    def save(self, out: str | Path, measure: str = DEFAULT, per_token: bool = False) -> Path:
        """Write a run directory, or a file: ``.csv`` the table, ``.png .svg .pdf`` the heatmap.

        Args:
            out: the directory, see `headlens.runs.result.Result.save`, or a file with one of these endings.
            measure: for a picture; a table has all of them.
            per_token: for a file, see `per_token` and `heatmap`.

        Returns:
            The same.

        Raises:
            InputError: the measure has no value here.
            RunError: it cannot be written.
        """
        if Path(out).suffix.lower() not in FILES:
            return super().save(out)
        artist().save_contributions(self, Path(out), measure, per_token)
        return Path(out)


def heads_in(table: pd.DataFrame) -> tuple[Head, ...]:
    """List the heads of the rows, in order; W_O's biases are none."""
    rows = table[_HEAD].dropna().itertuples(index=False, name=None)
    return tuple(Head(str(stack), int(layer), int(head)) for stack, layer, head in rows)


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
    clock = Clock.start()
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
    tokens = {stack: list(reading.axes(stack)[0].tokens) for stack in lens.anatomy.stacks}
    values = {site: part.values for site, part in parts.items()}
    asked = {"text": text, "pair": pair, "target": target, "heads": heads, "token": token}
    options = {**asked, "position": position, "max_length": max_length}
    facts = {
        "text": text + (f" | {pair}" if pair else "") + (f" \u2192 {target}" if target else ""),
        "tokens": tokens,
        "predicted": seen,
        "notes": notes,
    }
    return Contributions(
        *contribution_tables(values, effects, tokens, chosen, place),
        record("contributions", lens, options, facts, clock),
    )


def _effects(
    lens: Lens,
    inputs: Mapping[str, Any],
    parts: Mapping[Site, Parts],
    seen: PredictedToken | None,
    homeless: Sequence[Site],
) -> dict[Site, Array]:
    effects = {site: np.full(len(part.values["written_norm"]), np.nan) for site, part in parts.items()}
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


# ---- What was measured as tables


def contribution_tables(
    values: Mapping[Site, Mapping[str, Array]],
    effects: Mapping[Site, Array],
    tokens: Mapping[str, Sequence[str]],
    heads: Sequence[Head],
    position: int | None,
) -> tuple[pd.DataFrame, pd.DataFrame]:
    """Lay out what heads write.

    Args:
        values: for each site the measures by token, [part, token]; the heads first, then W_O's bias if there
            is one.
        effects: for each site the effects on the logit [part], NaN where there is none.
        tokens: of the queries of each stack.
        heads: those that are asked for.
        position: where the logit is; None where there is none.

    Returns:
        `Contributions.table` and `Contributions.per_token`, in model order.
    """
    asked, means, by_token = set(heads), [], []
    for site, measures in values.items():
        whole = asked.issuperset(site.heads)
        count = len(measures["written_norm"])
        parts = [n for n in range(count) if (whole if n >= site.n_heads else site.heads[n] in asked)]
        if not parts:
            continue
        mine, n_tokens = tokens[site.stack], len(tokens[site.stack])
        mean = {name: _mean(measures[name][parts]) for name in BY_TOKEN}
        nowhere = [pd.NA] * len(parts), [None] * len(parts)
        means.append(_rows(site, parts, nowhere, mean, effects[site][parts]))
        logit = np.full((len(parts), n_tokens), np.nan)
        if position is not None and not np.isnan(effects[site]).all():
            logit[:, position] = effects[site][parts]
        everywhere = list(range(n_tokens)) * len(parts), list(mine) * len(parts)
        flat = {name: measures[name][parts].reshape(-1) for name in BY_TOKEN}
        repeated = [part for part in parts for _ in mine]
        by_token.append(_rows(site, repeated, everywhere, flat, logit.reshape(-1)))
    return pd.concat(means, ignore_index=True), pd.concat(by_token, ignore_index=True)


def _rows(
    site: Site,
    parts: Sequence[int],
    places: tuple[Sequence[Any], Sequence[Any]],
    measures: Mapping[str, Array],
    logit: Array,
) -> pd.DataFrame:
    """The rows of one site: which part, position and token, and what was measured."""
    numbers = [part if part < site.n_heads else pd.NA for part in parts]
    columns = {
        "layer": site.layer,
        "head": pd.Series(numbers, dtype="Int64"),
        "position": pd.Series(places[0], dtype="Int64"),
        "token": pd.Series(places[1], dtype=object),
    }
    return pd.DataFrame({"stack": site.stack, **columns, **measures, "logit": logit}, columns=CONTRIBUTIONS)


def _mean(values: Array) -> Array:
    """Means over tokens where a value is defined, [part, token] to [part]; NaN where it is nowhere."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", RuntimeWarning)
        return np.asarray(np.nanmean(values, axis=1), dtype=np.float64)
