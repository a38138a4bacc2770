"""The best head of each relation or other measure, held against its baseline (Clark et al. 2019, table 1)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import pandas as pd
from matplotlib.axes import Axes

from headlens.errors import InputError
from headlens.report.figures import InchFigure
from headlens.report.fonts import text_size
from headlens.report.links import link_rows
from headlens.report.pages import INSIDE, TWO_COLUMNS, count_heads, head_names, page
from headlens.report.parts import MARGIN, label
from headlens.report.tag_styles import style_of
from headlens.util.formatting import counted

ROW = 0.165  # inches
ABOVE, BELOW, GAP = 0.44, 0.4, 0.14  # inches
SIZE = 7  # points


@dataclass(frozen=True, slots=True)
class Meaning:
    """How a tag's scores are put into words.

    Args:
        axis: what the score is, with its unit.
        baseline: what it is held against.
        one: what one row is.
    """

    axis: str
    baseline: str
    one: str = "measure"


MEANINGS: Mapping[str, Meaning] = {
    "syntactic": Meaning(
        "share of dependents whose head is found (0 to 1)", "best single offset", "relation"
    ),
    "coreference": Meaning(
        "share of mentions whose antecedent is found (0 to 1)",
        "better of nearest mention and same head word",
    ),
    "delimiter": Meaning("mean attention weight on these tokens (0 to 1)", "uniform attention"),
    "semantic": Meaning(
        "mean attention weight on related words (0 to 1)", "unrelated words at the same distances"
    ),
    "induction": Meaning("score (attention weights: 0 to 1)", "uniform attention"),
    "duplicate-token": Meaning("mean attention weight on earlier copies (0 to 1)", "uniform attention"),
    "rare-token": Meaning("share of queries (0 to 1)", "chance at the same positions"),
}
_OTHER = Meaning("score (0 to 1)", "baseline")


def best_heads(scores: pd.DataFrame, tag: str) -> pd.DataFrame:
    """Find the best head for each relation, or for each measure of another tag.

    Heads that the row gave the tag come first, then those with the larger effect: an effect that rests on
    little does not displace one that is proven.

    Args:
        scores: columns as in `headlens.util.files.SCORES`.
        tag: which tag.

    Returns:
        The best rows of those that were tested (enough decisions, and a ground for the tag), largest effect
        first, with `row` (the relation, or the measure), `direction` and `name` (of the head) added.
    """
    mine = scores[(scores["tag"] == tag) & scores["q_value"].notna() & scores["baseline"].notna()]
    parts = [measure.partition(":") for measure in mine["measure"]]
    mine = mine.assign(
        row=[before if "->" in after else before + colon + after for before, colon, after in parts],
        direction=[after.replace("->", " \u2192 ") if "->" in after else "" for _, _, after in parts],
        name=head_names(mine),
    )
    best = mine.sort_values(["tagged", "effect"], ascending=False, kind="stable").drop_duplicates("row")
    return best.sort_values("effect", ascending=False, kind="stable").reset_index(drop=True)


def best_heads_figure(scores: pd.DataFrame, tag: str, model: str = "") -> InchFigure:
    """Draw the best head of each relation or measure: score with interval, baseline, n and name.

    Args:
        scores: columns as in `headlens.util.files.SCORES`.
        tag: which tag; one whose measures have a baseline.
        model: its name, for the title.

    Returns:
        The figure.

    Raises:
        InputError: nothing of the tag was tested.
    """
    best = best_heads(scores, tag)
    if best.empty:
        problem = f"No measure of the tag {tag!r} was tested against a baseline."
        raise InputError(problem, "Choose another tag, or classify on a larger corpus.")
    names = [label(row, 30) for row in best["row"]]
    columns = _columns(best)
    meaning = MEANINGS.get(tag, _OTHER)
    height = ABOVE + ROW * len(best) + BELOW
    title = f"{model}: " * bool(model) + _finding(best, tag, meaning)
    caption = _caption(scores, tag, meaning)
    figure, top = page(title, caption, (TWO_COLUMNS, height), names)
    left = text_size(names, SIZE, figure.families)[0] + 0.1
    widths = [text_size([head, *cells], SIZE, figure.families)[0] + GAP for head, cells in columns]
    place = MARGIN + left, top + ABOVE, INSIDE - left - sum(widths), ROW * len(best)
    axes = figure.place(*place)
    _dots(axes, best, tag)
    _frame(figure, axes, best, (names, meaning))
    link_rows(axes, best["name"], 1 + float(sum(widths)) / place[2])
    for (head, cells), right in zip(columns, np.cumsum(widths), strict=True):
        for row, text in enumerate([head, *cells]):
            axes.text(
                1 + right / place[2], row - 1, text, fontsize=SIZE, ha="right", va="center_baseline",
                fontweight="normal" if row else "bold", transform=axes.get_yaxis_transform(), **figure.style,
            )  # fmt: skip
    return figure


def _columns(best: pd.DataFrame) -> list[tuple[str, list[str]]]:
    """The columns beside the picture: heading and cells."""
    columns = [("head", best["name"].tolist())]
    if best["direction"].any():
        columns.append(("direction", best["direction"].tolist()))
    columns += [(name, [f"{value:.2f}" for value in best[name]]) for name in ("score", "baseline")]
    return [*columns, ("n", [f"{n:,.0f}" for n in best["n"]])]


def _dots(axes: Axes, best: pd.DataFrame, tag: str) -> None:
    rows = np.arange(len(best))
    low, high = best["baseline"] + best["ci_low"], best["baseline"] + best["ci_high"]
    tagged = best["tagged"].to_numpy(bool)
    axes.hlines(rows, low, high, color="0.25", linewidth=1.0, label="95 % interval of the gain", zorder=2)
    axes.plot(best["baseline"], rows, "|", color="black", markersize=8, markeredgewidth=1.6, label="baseline")
    colour = style_of(tag).colour
    for chosen, face, what in (
        (tagged, colour, f"head tagged {tag}"),
        (~tagged, "white", "not tagged"),
    ):
        axes.plot(
            best["score"][chosen], rows[chosen], "o", markersize=5, markerfacecolor=face,
            markeredgecolor="black", markeredgewidth=0.7, label=what, zorder=3,
        )  # fmt: skip
    ends = [*low.dropna(), *high.dropna(), *best["score"], *best["baseline"]]
    axes.set_xlim(min(0.0, *ends) - 0.01, max(1.0, *ends) + 0.01)


def _frame(figure: InchFigure, axes: Axes, best: pd.DataFrame, words: tuple[Sequence[str], Meaning]) -> None:
    names, meaning = words
    axes.set_ylim(len(best) - 0.5, -0.5)
    axes.set_yticks(np.arange(len(best)), names, fontsize=SIZE, **figure.style)
    ticks = np.linspace(0, 1, 6)
    axes.set_xticks(ticks, [f"{tick:.1f}" for tick in ticks], fontsize=SIZE, **figure.style)
    axes.set_xlabel(meaning.axis, fontsize=8, labelpad=2, **figure.style)
    axes.tick_params(length=2, pad=2)
    axes.set_axisbelow(True)
    axes.grid(axis="both", color="0.9", linewidth=0.5)
    axes.spines[["top", "right"]].set_visible(False)
    width, height = figure.get_size_inches()
    place = axes.get_position()
    figure.legend(
        *axes.get_legend_handles_labels(), loc="lower left", ncols=4, frameon=False, borderpad=0,
        bbox_to_anchor=(MARGIN / width, place.y1 + 0.24 / height), columnspacing=1.2, handletextpad=0.4,
        prop={"family": list(figure.families), "size": SIZE}, borderaxespad=0,
    )  # fmt: skip


def _finding(best: pd.DataFrame, tag: str, meaning: Meaning) -> str:
    first, tagged = best.iloc[0], int(best["tagged"].sum())
    has = "has" if tagged == 1 or len(best) == 1 else "have"
    which = f"{'an' if tag[:1] in 'aeiou' else 'a'} {tag} head"
    return (
        f"{tagged or 'none'} of {counted(len(best), meaning.one)} {has} {which}; the largest gain is "
        f"{first['row']}: head {first['name']} reaches {first['score']:.2f} against "
        f"{first['baseline']:.2f} of the baseline"
    )


def _caption(scores: pd.DataFrame, tag: str, meaning: Meaning) -> str:
    directed = scores.loc[scores["tag"] == tag, "measure"].str.contains("->", regex=False).any()
    return (
        f"For each {meaning.one} the head with the largest gain over the baseline ({meaning.baseline}), of "
        f"{count_heads(scores):,} heads{' and both directions' * bool(directed)}, tagged ones first. The "
        "interval is that of the gain, placed at the baseline. Heads are chosen on the data that they are "
        "shown on, so the best score is somewhat flattering; q-values count all tests."
    )
