"""Sentences that say what a result shows."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any
from urllib.parse import quote

import numpy as np
import pandas as pd
from markupsafe import Markup

from headlens.ablation.result import SIGNIFICANT
from headlens.report.canvas import style_of
from headlens.scoring.scorers import SCORERS
from headlens.util.formatting import apart, counted, per_cent, visible

ENOUGH_DRAWS = round(1 / SIGNIFICANT) - 1  # random sets; with fewer, no p of at most 0.05 can come out


def clearest(scores: pd.DataFrame, tag: str) -> pd.DataFrame:
    """Find the heads that carry a tag, each by the row that shows it most clearly.

    Args:
        scores: columns as in `headlens.util.files.SCORES`.
        tag: a value of the column `tag`.

    Returns:
        One row per head, that with the highest lower end of an interval first.
    """
    proven = scores[(scores["tag"] == tag) & scores["tagged"]]
    ordered = proven.sort_values("ci_low", ascending=False, kind="stable")
    return ordered.drop_duplicates(["stack", "layer", "head"])


def was_tested(scores: pd.DataFrame, tag: str) -> bool:
    """Tell whether any head had enough decisions for a test of a tag."""
    return bool(scores.loc[scores["tag"] == tag, "q_value"].notna().any())


def unscored_stacks(scores: pd.DataFrame) -> list[str]:
    """List the stacks of an encoder-decoder of which nothing was read: the decoder's, without targets."""
    read = scores.groupby("stack")["n"].max()
    return [str(stack) for stack in read.index[read == 0]] if len(read) > 1 and read.any() else []


def with_losses(rows: pd.DataFrame, larger_is_better: bool) -> pd.DataFrame:
    """Add a column `loss` to rows of one metric, the change, positive where worse; the largest first."""
    sign = -1 if larger_is_better else 1
    return rows.assign(loss=sign * rows["delta"]).sort_values("loss", ascending=False, kind="stable")


def judged(rows: pd.DataFrame) -> pd.DataFrame:
    """Take the rows of which it can be told whether something changes: with a change and a q-value.

    Args:
        rows: of one metric.

    Returns:
        The others aside: the metric was not defined there, or could not be tested.
    """
    known: pd.DataFrame = rows[np.isfinite(rows["delta"].astype(float)) & rows["q_value"].notna()]
    return known


def effects(rows: pd.DataFrame) -> tuple[pd.DataFrame, pd.DataFrame]:
    """Take the rows whose change is claimed to be an effect (q < 0.05).

    Args:
        rows: from `with_losses`.

    Returns:
        Those that are worse, and those that are better.
    """
    claimed = rows[rows["q_value"] < SIGNIFICANT]
    return claimed[claimed["loss"] > 0], claimed[claimed["loss"] < 0]


def last_without_loss(rows: pd.DataFrame, share: float) -> pd.DataFrame:
    """Find the last step of a *cumulative* sweep before the first significant loss.

    Args:
        rows: of the primary metric, random sets aside.
        share: of heads that can go, from `headlens.ablation.result.headline`.

    Returns:
        One row, or none where already the first step loses.
    """
    kept: pd.DataFrame = rows[rows["n_removed"] <= round(share * rows["n_removed"].max())]
    return kept.tail(1)


def beyond_random(controls: pd.DataFrame) -> pd.DataFrame:
    """Take the sets of heads that are worse than random ones (p of at most 0.05, of each alone).

    It misleads where fewer than `ENOUGH_DRAWS` random sets were drawn: no set can then be among them.

    Args:
        controls: columns as in `headlens.util.files.CONTROLS`, of one metric.

    Returns:
        Their rows.
    """
    found: pd.DataFrame = controls[controls["at_least_as_bad"].astype(float) <= SIGNIFICANT]
    return found


def one_head_kept(best: pd.DataFrame, larger_is_better: bool) -> Mapping[str, pd.DataFrame]:
    """Judge layers of which one head is kept.

    A loss or a gain is claimed where q < 0.05. That nothing significant is lost goes by the p-value as it is
    (p of at least 0.05, or no loss at all): a correction for many layers would make it easier to claim. It
    does not show that one head is enough.

    Args:
        best: columns as in `headlens.ablation.result.BEST`.
        larger_is_better: of the metric.

    Returns:
        "worse" and "better": the rows whose change is claimed; "unsure": those of a loss by p alone;
        "no loss": those that lose nothing significant, "better" among them; "undefined": the others.
    """
    rows = with_losses(best, larger_is_better)
    known = judged(rows)
    worse, better = effects(known)
    lost = (known["loss"] > 0) & (known["p_value"] < SIGNIFICANT)
    return {
        "worse": worse,
        "better": better,
        "unsure": known[lost & ~(known["q_value"] < SIGNIFICANT)],
        "no loss": known[~lost],
        "undefined": rows.drop(known.index),
    }


# ---- Sentences that a figure, a page and the screen share, so that they say the same of the same numbers


def too_few_draws(controls: pd.DataFrame) -> str:
    """Say where no set can be shown to be worse than random ones.

    Args:
        controls: columns as in `headlens.util.files.CONTROLS`, of one metric.

    Returns:
        Words; none where every set that was judged has `ENOUGH_DRAWS` random ones.
    """
    draws = controls.loc[controls["at_least_as_bad"].notna(), "draws"].astype(int)
    if draws.empty or draws.min() >= ENOUGH_DRAWS:
        return ""
    found = counted(int(draws.min()), "random set")
    return f"with {found} a p of at most {SIGNIFICANT} cannot come out: it takes {ENOUGH_DRAWS}"


def one_head(best: pd.DataFrame, larger_is_better: bool) -> str:
    """Say in how many layers keeping one head loses something, and in how many nothing significant.

    Args:
        best: columns as in `headlens.ablation.result.BEST`.
        larger_is_better: of the metric.

    Returns:
        A sentence without its full stop.
    """
    found = {name: len(rows) for name, rows in one_head_kept(best, larger_is_better).items()}
    said = (
        f"With one head kept, {found['worse'] or 'none'} of {counted(len(best), 'layer')} "
        f"{'is' if found['worse'] == 1 else 'are'} significantly worse (q < {SIGNIFICANT}) and "
        f"{found['no loss'] or 'none'} {'loses' if found['no loss'] == 1 else 'lose'} nothing significant "
        f"(p of at least {SIGNIFICANT}), which does not show that one head is enough"
    )
    if found["better"]:
        said += f"; {found['better']} of those {'is' if found['better'] == 1 else 'are'} significantly better"
    if found["unsure"]:
        lose = "loses" if found["unsure"] == 1 else "lose"
        said += f"; {found['unsure']} {lose} by p alone, so neither is claimed"
    return said + (f"; {found['undefined']} could not be judged" if found["undefined"] else "")


def can_go(rows: pd.DataFrame, share: float, of_model: int | None, metric: str = "") -> str:
    """Say how many heads can go without a significant loss.

    Args:
        rows: of the primary metric of a *cumulative* sweep, random sets aside.
        share: of the heads in question, from `headlens.ablation.result.headline`.
        of_model: heads of the whole model; None where a run does not say.
        metric: what is not lost; not named by default.

    Returns:
        A sentence without its full stop.
    """
    in_question, of = int(rows["n_removed"].max()), f" of {metric}" * bool(metric)
    if share > 0:
        heads = going(round(share * in_question), in_question, of_model)
        return f"{heads} can go without a significant loss{of}"
    first = rows.sort_values("n_removed", kind="stable").iloc[0]
    if pd.isna(first["delta"]):
        return "It cannot be told what can go: the metric is not defined at the first step"
    n_first = int(first["n_removed"])
    whole = of_model is None or of_model == in_question
    which = f"{in_question:,}" if whole else f"the {in_question:,} in question"
    return (
        f"No step goes without a significant loss{of}: already {counted(n_first, 'head')} of {which} "
        f"cost{'s' * (n_first == 1)} something"
    )


def going(count: int, in_question: int, of_model: int | None) -> str:
    """Say how many heads can go, and of which.

    Args:
        count: heads that can go.
        in_question: heads that might have gone.
        of_model: heads of the whole model; None where a run does not say.

    Returns:
        Words such as ``50% of the heads (4 of 8)``, or, where only some of the model's heads were in
        question, ``8 of the 12 heads in question (11% of the model's 72)``.
    """
    if of_model is None or of_model == in_question:
        return f"{per_cent(count / in_question)}% of the heads ({count:,} of {in_question:,})"
    share = per_cent(count / of_model)
    return f"{count:,} of the {in_question:,} heads in question ({share}% of the model's {of_model:,})"


def among(judged: int, total: int, what: str, how: str = "") -> str:
    """Say how many were judged, and how many could not be.

    Args:
        judged: of which something can be told.
        total: all of them.
        what: one of them, such as "head".
        how: what was done to them, such as " removed alone".

    Returns:
        ``72 heads``, or ``71 heads that could be judged (1 could not)``.
    """
    if judged == total:
        return counted(total, what) + how
    return f"{counted(judged, what)}{how} that could be judged ({total - judged:,} could not)"


def as_number(value: float, form: str) -> str:
    """Write a number; one that is not defined as such, an infinite one as inf."""
    return "not defined" if np.isnan(value) else format(value, form)


def interval(low: float, high: float) -> str:
    """Write the 95 % interval of a change: ``95 % interval +0.1000 to +0.3000``, or ``no interval``."""
    known = not np.isnan([low, high]).any()
    return f"95 % interval {low:+.4f} to {high:+.4f}" if known else "no interval"


def tested(name: str, value: float) -> str:
    """Write a p- or q-value: ``q = 0.03``, or ``no q-value``."""
    return f"no {name}-value" if np.isnan(value) else f"{name} = {value:.2g}"


# ---- What tags and columns mean, in a sentence each, for readers of a report


COLUMNS: Mapping[str, str] = {
    "head": "layer.head, both counted from 0: 2.8 is head 8 of layer 2. A click shows the head.",
    "tags": "What the head was found to do, that with the strongest evidence first.",
    "evidence": "For each tag the measure that shows it most clearly, with its score and its baseline.",
    "measure": "The one quantity in this row: an offset, a kind of token, a relation with its direction.",
    "score": "A share of decisions or of weight, from 0 to 1.",
    "baseline": "What the score is held against. What had to be chosen was chosen on one half of the "
    "documents and counted on the other.",
    "effect": "Score minus baseline.",
    "interval": "The 95 % interval of the effect, from a bootstrap over documents (over sentences where "
    "there are fewer than 10 documents).",
    "p": "p-value of this row alone.",
    "q": "q-value: of all rows with a value up to this one, the expected share of false findings (Benjamini "
    "and Hochberg). Effects are claimed where it is below 0.05. Empty: not tested.",
    "n": "How many decisions, queries or examples the number rests on.",
    "tagged": "Whether this row carries the tag: its effect reaches the margin, its interval lies above 0, "
    "and q is below 0.05.",
    "taken out": "Which heads were taken out together.",
    "heads": "How many heads were taken out.",
    "metric": "What was measured; importance is about the first metric of the benchmark.",
    "value": "The metric without these heads.",
    "all heads": "The metric with all heads.",
    "change": "The metric without these heads minus the metric with all heads, in the metric's own "
    "direction.",
    "change interval": "The 95 % interval of the change, from a bootstrap over examples.",
    "importance": "How much the head matters by this method: positive where the model is worse without it.",
    "method": "How importance was estimated. each: measured by taking the head out alone; gradient: the "
    "mean size of the loss's derivative by the head's gate, which has no sign; taylor: the same with its "
    "sign; integrated: integrated gradients; shapley: mean effect over random orders of removal; gates: "
    "learned.",
    "rank": "1 is the most important.",
    "random sets": "The mean of the metric without random sets of as many heads of each layer.",
    "random interval": "Where 95 % of the random sets lie.",
    "at least as bad": "(1 + random sets without which the model is as bad or worse) / (1 + all drawn): a "
    "p-value of \u201cthis set is like a random one\u201d.",
    "gate": "The probability that the head's learned gate stays open, under pressure to close or to open.",
    "role": "What the two gates come to: facilitating, irrelevant or interfering.",
    "kept": "The head of the layer that does best alone, chosen on one half of the examples.",
    "gained": "Tags that the head carries in the second run only.",
    "lost": "Tags that the head carries in the first run only.",
    "kappa": "Cohen's kappa: agreement beyond chance; 1 is full agreement, 0 that of chance. Empty: not "
    "defined.",
    "correlation": "Correlation over heads of the scores of the two runs. Empty: not defined.",
    "divergence": "Jensen-Shannon divergence of what two heads look at, in nats, the mean over queries: 0 is "
    "the same, ln 2 = 0.693 no key in common.",
    "cka": "Linear CKA of what two heads write: 1 is the same up to a rotation and a scale. It is too high "
    "where tokens are few. Empty: a head writes nothing that varies, or its W_O is no plain layer.",
    "cluster": "By average linkage on the divergence.",
    "output_norm": "The Euclidean length of a head's output before W_O.",
    "written_norm": "The Euclidean length of what a head writes: its output times its rows of W_O.",
    "branch_share": "How much of what a layer's attention writes lies along one head; the shares of a "
    "layer's heads and of W_O's bias add up to 1, and are negative for a head that writes against the rest.",
    "cosine": "The cosine of what a head writes and what its layer's attention writes together.",
    "stream_share": "How much of the residual stream, with the layer's attention added, lies along what one "
    "head writes.",
    "logit": "How much what a head writes raises the logit through the residual stream alone, with all other "
    "branches held fixed and norms at their scale.",
    "nearest": "The head with the smallest divergence; of several the first in the model.",
}
"""The meaning of each column, by the key that `headlens.report.page.section.Column` names."""


def tag_definition(tag: str) -> str:
    """Say what a tag means: its scorer's meaning, or the first line of that one's docstring.

    Margins in it are those that headlens has by default; run.json has those in force.

    Args:
        tag: any tag.

    Returns:
        A text; nothing where there is no scorer, or it says nothing of itself.
    """
    scorer = SCORERS.get(tag)
    return scorer.meaning or (scorer.__doc__ or "").strip().partition("\n")[0] if scorer else ""


# ---- Numbers, heads and tags as the sentences and tables of a page write them


_WRITTEN = {
    "number": "{:.4g}",
    "value": "{:.4f}",
    "change": "{:+.4f}",
    "share": "{:.3f}",
    "p": "{:.2g}",
    "count": "{:,.0f}",
}


@dataclass(frozen=True, slots=True)
class RunPlace:
    """Where a run stands in a page.

    Args:
        number: of the run, from 0.
        alone: whether it is the only one, so that links need not say which run they mean.
    """

    number: int = 0
    alone: bool = True

    @property
    def name(self) -> str:
        """Of the run's section, and the beginning of every name in it."""
        return f"run-{self.number}"

    def address(self, head: str) -> str:
        """The fragment that opens a head."""
        return f"#{'' if self.alone else f'run={self.number}&'}head={quote(head, safe='.')}"

    def link(self, head: str) -> Markup:
        """A link that opens a head."""
        return Markup('<a class="head" href="{}">{}</a>').format(self.address(head), visible(head))

    def chip(self, tag: str) -> Markup:
        """A tag with its colour and letter, as a link to what it means."""
        return chip(tag)


class Screen:
    """A terminal, where sentences have neither links nor colours."""

    def link(self, head: str) -> str:
        """A head."""
        return head

    def chip(self, tag: str) -> str:
        """A tag."""
        return tag


def number(value: Any, kind: str) -> str:
    """Write a number.

    Args:
        value: the number.
        kind: as in `headlens.report.page.section.Column`.

    Returns:
        Rounded as suits its kind; whole numbers as they are.
    """
    if kind == "number" and float(value).is_integer() and abs(float(value)) < 1e9:
        return f"{int(value):,}"
    return _WRITTEN[kind].format(float(value))


def percent(share: float) -> str:
    """Write a share as per cent, with one decimal below 10 %."""
    return f"{per_cent(share, 0 if abs(share) >= 0.0995 else 1)} %"


def level(share: float, low: float, high: float) -> tuple[str, str]:
    """Write a share and its own interval as per cent, with one decimal where whole ones hide the interval.

    Args:
        share: 0..1.
        low: lower end of its 95 % interval.
        high: its upper end.

    Returns:
        The share, such as ``90.3 %``, and the interval, such as ``90.1 to 90.5 %``.
    """
    decimals = apart([100 * one for one in (low, share, high)], 0, 1)
    said = [per_cent(one, decimals) for one in (share, low, high)]
    return f"{said[0]} %", f"{said[1]} to {said[2]} %"


def points(low: float, high: float) -> str:
    """Write an interval of a difference of shares in percentage points."""
    decimals = 0 if min(abs(low), abs(high)) >= 0.0995 else 1
    return f"{100 * low:+.{decimals}f} to {100 * high:+.{decimals}f} points"


def only_stack(stacks: Iterable[str]) -> str:
    """Name the stack that all heads are in; nothing where there are several, or none."""
    found = set(stacks)
    return found.pop() if len(found) == 1 else ""


def term_id(key: str) -> str:
    """Name the place of a definition, by its key: a name that an address can hold, whatever the key."""
    return "def-" + re.sub(r"[^a-z0-9-]", lambda found: f"_{ord(found[0]):x}_", key)


def chip(tag: str) -> Markup:
    """Write a tag with its colour and letter, as a link to what it means."""
    look, key = style_of(tag), visible(f"tag {tag}")
    return Markup(
        '<a class="tag" href="#{}" data-term="{}"><span class="chip" style="background:{};color:{}" '
        'aria-hidden="true">{}</span>{}</a>'
    ).format(term_id(key), key, look.colour, look.ink, visible(look.letter), visible(tag))


def chips(tags: Iterable[str]) -> Markup:
    """Write several tags."""
    return Markup(" ").join(chip(tag) for tag in tags if tag)
