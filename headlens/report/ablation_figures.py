"""Figures of a sweep: curves, gates, groups, methods."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import pandas as pd
import seaborn as sns  # type: ignore[import-untyped]
from matplotlib.axes import Axes
from matplotlib.colors import to_hex, to_rgb
from matplotlib.figure import Figure
from matplotlib.patches import Rectangle

from headlens.ablation.result import Sweep, heads_in
from headlens.benchmarks.metrics import Array
from headlens.model.heads import Head
from headlens.report.ablation_heads import (
    BETTER,
    MISSING,
    WORSE,
    Grid,
    HeadCell,
    Rows,
    better_when,
    estimated_on,
    heads_figure,
    importance_figure,
    losses,
    measured_on,
    methods_of,
    ticks_within,
    verdicts,
)
from headlens.report.canvas import (
    BASE,
    INSIDE,
    MARGIN,
    TWO_COLUMNS,
    InchFigure,
    column,
    page,
    text_size,
    wrapped,
)
from headlens.report.heatmaps import label
from headlens.report.words import beyond_random, can_go, one_head, too_few_draws
from headlens.util.formatting import counted, per_cent

LEFT, CURVE_HIGH, ABOVE, CURVE_BELOW, KEY_LINE = 0.68, 2.7, 0.4, 0.38, 0.155  # inches


def pruning_figure(sweep: Sweep) -> InchFigure:
    """Draw the primary metric against the share of heads removed, the least important first.

    Args:
        sweep: of the kind *cumulative*.

    Returns:
        The figure.
    """
    rows = sweep.primary.sort_values("n_removed", kind="stable")
    n_heads = int(rows["n_removed"].max())
    method = str(sweep.importance["method"].iloc[0]) if len(sweep.importance) else "given"
    order = "in a random order" if method == "random" else f"the least important by {method} first"
    share, of_model = sweep.can_go, sweep.heads_of_model or n_heads
    n_keys = 6 + 2 * bool(len(sweep.controls)) + bool(rows["delta"].isna().any())
    key = KEY_LINE * math.ceil(n_keys / 2)
    estimated = f"Importance was estimated on {sweep.estimated_on}. " * (method != "random")
    caption = (
        "The interval of each step is that of the change, placed at the value. "
        f"{estimated}What can go ends before the first significant loss, also where a later step happens to "
        f"be insignificant. {measured_on(sweep)}"
    )
    title = f"{can_go(rows, share, of_model)}, {order}"
    figure, top = page(title, caption, (TWO_COLUMNS, key + ABOVE + CURVE_HIGH + CURVE_BELOW))
    axes = figure.place(MARGIN + LEFT, top + key + ABOVE, INSIDE - LEFT, CURVE_HIGH)
    start = float(rows["baseline"].iloc[0])
    axes.axhline(start, color="black", linewidth=0.8, linestyle=(0, (4, 2)), label="baseline, all heads kept")
    if len(sweep.controls):
        _band(axes, sweep, start, n_heads, "random orders" if method == "random" else "random sets")
    _steps(axes, rows, n_heads, order)
    which = f" of these {n_heads:,}" * (of_model != n_heads)
    largest = f"largest share{which} without a significant loss: {per_cent(share)}%"
    axes.axvline(share, color=BETTER, linewidth=1.0, linestyle=":", label=largest)
    _frame(figure, axes, sweep, n_heads)
    _key(figure, axes, top)
    return figure


def _key(figure: InchFigure, axes: Axes, top: float) -> None:
    width, height = figure.get_size_inches()
    figure.legend(
        *axes.get_legend_handles_labels(), loc="upper left", ncols=2, frameon=False, borderpad=0,
        bbox_to_anchor=(MARGIN / width, 1 - top / height), columnspacing=1.2, handletextpad=0.5,
        labelspacing=0.35, prop={"family": list(figure.families), "size": 7}, borderaxespad=0,
    )  # fmt: skip


def _band(axes: Axes, sweep: Sweep, start: float, n_heads: int, what: str) -> None:
    controls = sweep.primary_controls.set_index("condition")
    removed = sweep.primary.set_index("condition")["n_removed"]
    controls = controls.assign(n_removed=removed).sort_values("n_removed", kind="stable")
    share = [0.0, *(controls["n_removed"] / n_heads)]
    low, high, mean = (
        [start, *controls[name].astype(float)] for name in ("random_low", "random_high", "random_mean")
    )
    drawn = f"{int(controls['draws'].max())} {what}"
    axes.fill_between(share, low, high, color="0.85", linewidth=0, label=f"{drawn}: 2.5\u201397.5 percentile")
    axes.plot(share, mean, color="0.55", linewidth=1.2, label=f"{drawn}: mean")


def _steps(axes: Axes, rows: pd.DataFrame, n_heads: int, order: str) -> None:
    share, value = (rows["n_removed"] / n_heads).to_numpy(), rows["value"].to_numpy(np.float64)
    start = float(rows["baseline"].iloc[0])
    value = np.where(np.isfinite(value), value, np.nan)
    axes.plot([0.0, *share], [start, *value], color="black", linewidth=1.2, label=order)
    low, high = (start + rows[name].to_numpy(np.float64) for name in ("ci_low", "ci_high"))
    axes.vlines(share, low, high, color="black", linewidth=0.9, label="95 % interval", zorder=2.5)
    undefined = np.isnan(value)
    lost = (~rows["no_significant_loss"].astype("boolean").fillna(True)).to_numpy(bool)
    for chosen, face, what in (
        (lost, WORSE, "significant loss (p < 0.05)"),
        (~lost & ~undefined, "white", "no significant loss"),
    ):
        axes.plot(
            share[chosen], value[chosen], "o", markersize=5, markerfacecolor=face, markeredgecolor="black",
            markeredgewidth=0.8, label=what, zorder=3,
        )  # fmt: skip
    if undefined.any():
        axes.plot(
            share[undefined], np.full(undefined.sum(), 0.03), "x", color="black", markersize=5,
            transform=axes.get_xaxis_transform(), label="not defined",
        )  # fmt: skip


def _frame(figure: InchFigure, axes: Axes, sweep: Sweep, n_heads: int) -> None:
    metric = sweep.metric
    ticks = np.linspace(0, 1, 11)
    axes.set_xlim(-0.02, 1.02)
    axes.set_xticks(ticks, [f"{tick:.0%}" for tick in ticks], fontsize=7, **figure.style)
    of_model = sweep.heads_of_model or n_heads
    chosen = of_model != n_heads
    which = f"{n_heads:,} heads in question" if chosen else "heads"
    axes.set_xlabel(f"share of the {which} removed", fontsize=8, labelpad=2, **figure.style)
    axes.set_ylabel(
        f"{label(metric.label, 40)}\n({better_when(metric)})", fontsize=8, labelpad=3, **figure.style
    )
    axes.yaxis.set_ticks(**ticks_within(axes.get_ylim(), 7), fontsize=7, **figure.style)
    scaled = (lambda x: np.multiply(x, n_heads), lambda x: np.divide(x, n_heads))
    above = axes.secondary_xaxis("top", functions=scaled)
    above.xaxis.set_ticks(**ticks_within((0, n_heads), 10, integer=True), fontsize=7, **figure.style)
    total = f" in question (the model has {of_model:,})" * chosen
    above.set_xlabel(f"heads removed, of {n_heads:,}{total}", fontsize=8, labelpad=3, **figure.style)
    for one in (axes, above):
        one.tick_params(length=2, pad=2)
    axes.grid(axis="y", color="0.92", linewidth=0.5)
    axes.set_axisbelow(True)
    axes.spines["right"].set_visible(False)


# ---- Figures of heads removed in groups: whole layers, all but one of a layer, all of a tag


def layers_figure(sweep: Sweep) -> InchFigure:
    """Draw what the primary metric loses without each layer's heads.

    Args:
        sweep: of the kind *layer*.

    Returns:
        The figure, a panel per stack.
    """
    rows = sweep.primary
    first = [heads_in(removed)[0] for removed in rows["removed"]]
    rows = rows.assign(stack=[head.stack for head in first], label=[f"layer {head.layer}" for head in first])
    columns = [("heads", [f"{n:,}" for n in rows["n_removed"]]), ("change", _changes(rows))]
    worse, several = verdicts(sweep.metric, rows).count("worse"), rows["stack"].nunique() > 1
    title = f"The model is significantly worse without the heads of {worse or 'none'} of "
    title += counted(len(rows), "layer")
    title += _largest(sweep, rows, rows["stack"] + " " + rows["label"] if several else rows["label"])
    caption = f"Each bar: all heads in question of a layer are removed together. {measured_on(sweep)}"
    return Rows(rows, sweep.metric, columns).draw(title, caption)


def one_head_figure(sweep: Sweep) -> InchFigure:
    """Draw what the primary metric loses when only the best head of a layer is kept.

    Args:
        sweep: of the kind *only*.

    Returns:
        The figure, a panel per stack.
    """
    best = sweep.best
    parts = [layer.rpartition(".") for layer in best["layer"]]
    best = best.assign(
        stack=[stack for stack, _, _ in parts],
        head=best["kept"],
        label=[
            f"layer {layer}: {kept} kept" for (_, _, layer), kept in zip(parts, best["kept"], strict=True)
        ],
    )
    title = one_head(best, sweep.metric.larger_is_better) + _largest(sweep, best, "layer " + best["layer"])
    caption = (
        "Each bar is a layer of which one head is kept: the best on one half of the examples, measured on "
        f"the other half. q-values count all layers shown. {measured_on(sweep)}"
    )
    return Rows(best, sweep.metric, [("change", _changes(best))]).draw(title, caption)


def tags_figure(sweep: Sweep) -> InchFigure:
    """Draw what the primary metric loses without each tag's heads, held against random sets.

    Args:
        sweep: of the kind *tags*.

    Returns:
        The figure.
    """
    metric, rows = sweep.metric, sweep.primary
    tags = zip(rows["tag"], rows["n_removed"], strict=True)
    labels = [f"{label(tag, 40)} ({counted(n, 'head')})" for tag, n in tags]
    rows = rows.assign(stack="", label=labels)
    mine = sweep.primary_controls.set_index("condition")
    shares = mine["at_least_as_bad"].astype(float).reindex(rows["condition"]).to_numpy()
    said = ["not known" if np.isnan(share) else f"{share:.1%}" for share in shares]
    columns = [("as bad or worse", said), ("change", _changes(rows))]
    worse = np.array(verdicts(metric, rows)) == "worse"
    beyond = int(rows["condition"][worse].isin(beyond_random(mine).index).sum())
    title = (
        f"The model is significantly worse without the heads of {int(worse.sum()) or 'none'} of "
        f"{counted(len(rows), 'tag')}; {beyond or 'none'} of these {'are' if beyond > 1 else 'is'} worse "
        "than random sets"
    )
    title += f" ({few})" if (few := too_few_draws(mine)) else ""
    draws = int(mine["draws"].max()) if len(mine) else 0
    caption = (
        f"Grey: {draws} random sets with as many heads of each layer. As bad or worse: the share of them, "
        "the tag's own heads counted in, without which the model is at least as bad; at 5 % or less the tag "
        "says more than the number of its heads and their layers. A head may have several tags. "
        f"{measured_on(sweep)}"
    )
    return Rows(rows, metric, columns, control_changes(sweep)).draw(title, caption)


def control_changes(sweep: Sweep) -> list[Array]:
    """Find what the primary metric changes by under the random sets of each condition.

    Args:
        sweep: with controls.

    Returns:
        For each condition that is not random, in order: the finite changes, [draw].
    """
    rows = sweep.table[sweep.table["metric"] == sweep.metric.name]
    found = []
    for name in sweep.primary["condition"]:
        drawn = rows.loc[rows["control_of"] == name, "delta"].to_numpy(np.float64)
        found.append(drawn[np.isfinite(drawn)])
    return found


def _changes(rows: pd.DataFrame) -> list[str]:
    return [f"{delta:+.4f}" if np.isfinite(delta) else "not defined" for delta in rows["delta"]]


def _largest(sweep: Sweep, rows: pd.DataFrame, names: pd.Series) -> str:
    """The end of a title: where the loss is largest."""
    loss = losses(sweep.metric, rows["delta"])
    if not (loss > 0).any():
        return ""
    first = int(np.nanargmax(loss))
    return f"; the largest loss is that of {names.iloc[first]} ({rows['delta'].iloc[first]:+.4f})"


# ---- The figures of an ablation sweep


KINDS: Mapping[str, tuple[str, Callable[[Sweep], Figure]]] = {
    "each": ("heads", heads_figure),
    "cumulative": ("pruning", pruning_figure),
    "only": ("one-head-per-layer", one_head_figure),
    "layer": ("layers", layers_figure),
    "tags": ("tags", tags_figure),
}
"""The figure of each kind of sweep and its name; *set* is one change per metric, which needs no figure."""


def figures(sweep: Sweep) -> Iterator[tuple[str, Figure]]:
    """Draw what suits a sweep.

    Args:
        sweep: of any kind.

    Yields:
        Names and figures: that of the kind, a map of every estimate of importance (``importance-METHOD``),
        how methods agree (``methods``), and the roles that gates gave (``gates``).
    """
    if sweep.kind in KINDS:
        name, draw = KINDS[sweep.kind]
        yield name, draw(sweep)
    for method in methods_of(sweep):
        yield f"importance-{method}", importance_figure(sweep, method)
    if len(sweep.agreement):
        yield "methods", methods_figure(sweep)
    if len(sweep.gates):
        yield "gates", gates_figure(sweep)


# ---- The map of roles that learned gates give to heads


STRIP, GATES_HIGH, GAP, STRIP_TOP = (
    0.8,
    0.15,
    0.05,
    0.24,
)  # inches of the key: a strip of shades, what is around it
SIZE = 7  # points


@dataclass(frozen=True, slots=True)
class Role:
    """How a role looks and what it means.

    Args:
        colour: where it is certain; it fades to white as it gets less so.
        letter: written on the cell.
        meaning: what the head does.
    """

    colour: str
    letter: str
    meaning: str


ROLES: Mapping[str, Role] = {
    "facilitating": Role(WORSE, "F", "stays open under pressure to close"),
    "irrelevant": Role("#777777", "", "follows either pressure"),
    "interfering": Role(BETTER, "I", "closes under pressure to open"),
}


def gates_figure(sweep: Sweep) -> InchFigure:
    """Draw the likeliest role of each head and how sure it is: a map of layers and heads.

    Args:
        sweep: with learned gates.

    Returns:
        The figure, a panel per stack.
    """
    table = sweep.gates
    sure = certainty(
        table["open_closing"].to_numpy(np.float64), table["open_opening"].to_numpy(np.float64), table["role"]
    )
    places = zip(table["stack"], table["layer"], table["head"], strict=True)
    heads = [Head(str(stack), int(layer), int(head)) for stack, layer, head in places]
    cells = {
        head: HeadCell(_faded(ROLES[role].colour, share), ROLES[role].letter)
        for head, role, share in zip(heads, table["role"], sure, strict=True)
    }
    counts = {role: int((table["role"] == role).sum()) for role in ROLES}
    title = f"Of {counted(len(table), 'head')} " + ", ".join(
        f"{count or 'none'} {'are' if count > 1 else 'is'} {role}" for role, count in counts.items()
    )
    caption = (
        "Gates were learned twice, with a cost and with a gain for open ones (causal head gating, Nam et al. "
        "2025). How sure: the probability of what the role says about the gate. Where heads stand in "
        f"for each other, it is chance which of them stays open. {estimated_on(sweep)}"
    )
    grid = Grid(cells)
    key = [_key_text(role, grid.width) for role in ROLES]
    heights = [max(high, GATES_HIGH) + GAP for _, high in key]
    figure, top = grid.draw(title, caption, STRIP_TOP + sum(heights) + GAP)
    figure.write(MARGIN, top + 0.1, "unsure", 6.5)
    figure.write(MARGIN + STRIP, top + 0.1, "sure", 6.5, ha="right")
    top += STRIP_TOP
    for role, (text, _), height in zip(ROLES, key, heights, strict=True):
        _strip(figure, top, role)
        figure.write(MARGIN + STRIP + 0.08, top + 0.015, text, SIZE)
        top += height
    return figure


def certainty(closing: Array, opening: Array, roles: Iterable[str]) -> Array:
    """Compute how likely each head's role is.

    Args:
        closing: probability that the gate is open under pressure to close, [head].
        opening: the same under pressure to open, [head].
        roles: names in `ROLES`, [head].

    Returns:
        Probabilities 0..1, [head]: open under pressure to close; closed under pressure to open; or neither.
    """
    likely = {
        "facilitating": closing,
        "irrelevant": opening * (1 - closing),
        "interfering": 1 - opening,
    }
    return np.array([likely[role][place] for place, role in enumerate(roles)])


def _faded(colour: str, share: float) -> str:
    if not np.isfinite(share):
        return MISSING
    red, green, blue = (1 - share * (1 - part) for part in to_rgb(colour))
    return to_hex((red, green, blue))


def _key_text(role: str, width: float) -> tuple[str, float]:
    """What a role means, in lines that fit beside the strips, and their height in inches."""
    look = ROLES[role]
    letter = f" ({look.letter})" if look.letter else ""
    return wrapped(f"{role}{letter}: {look.meaning}", width - 2 * MARGIN - STRIP - 0.08, SIZE, [BASE])


def _strip(figure: InchFigure, top: float, role: str) -> None:
    axes = figure.place(MARGIN, top, STRIP, GATES_HIGH)
    shades = [to_rgb(_faded(ROLES[role].colour, share)) for share in np.linspace(0, 1, 50)]
    axes.imshow([shades], aspect="auto", interpolation="nearest")
    axes.set_axis_off()


# ---- How methods of importance agree on the order of heads


WIDE, METHODS_HIGH, METHODS_BELOW = 0.8, 0.36, 0.3  # inches
Pair = tuple[str, str, float]


def methods_figure(sweep: Sweep) -> InchFigure:
    """Draw the rank correlation of every two methods of importance, blue where they agree.

    Args:
        sweep: with importance by two methods or more.

    Returns:
        The figure.
    """
    pairs = [
        (str(a), str(b), float(rho))
        for a, b, rho in sweep.agreement[["method_a", "method_b", "rho"]].itertuples(index=False, name=None)
    ]
    methods = list(dict.fromkeys(name for a, b, _ in pairs for name in (a, b)))
    below, beside = methods[1:], methods[:-1]
    caption = (
        "Spearman's correlation of the importance of heads by two methods: 1 is the same order, 0 nothing in "
        f"common, -1 the reverse; over {_heads(sweep)}. n/a: not defined (fewer than 3 heads, or all equal). "
        f"{estimated_on(sweep)}"
    )
    left = text_size(below, 7, ("DejaVu Sans",))[0] + 0.12
    width = column(2 * MARGIN + left + WIDE * len(beside))
    figure, top = page(_finding(pairs), caption, (width, METHODS_HIGH * len(below) + METHODS_BELOW), methods)
    axes = figure.place(MARGIN + left, top, WIDE * len(beside), METHODS_HIGH * len(below))
    rho = np.full((len(below), len(beside)), np.nan)  # [method below, method beside]
    for a, b, value in pairs:
        place = methods.index(b) - 1, methods.index(a)  # pairs come in the methods' order
        rho[place] = value + 0.0
        if np.isnan(value):
            axes.add_patch(Rectangle(place[::-1], 1, 1, facecolor=MISSING, edgecolor="white", label="n/a"))
            at = place[1] + 0.5, place[0] + 0.5
            axes.text(*at, "n/a", fontsize=7, ha="center", va="center_baseline", **figure.style)
    sns.heatmap(
        rho, ax=axes, vmin=-1, vmax=1, cmap="RdBu", cbar=False, annot=True, fmt=".2f", linewidths=1,
        annot_kws={"fontsize": 7, **figure.style}, xticklabels=beside, yticklabels=below,
    )  # fmt: skip
    axes.tick_params(length=0, pad=3)
    for text in (*axes.get_xticklabels(), *axes.get_yticklabels()):
        text.set(fontsize=7, rotation=0, **figure.style)
    return figure


def _heads(sweep: Sweep) -> str:
    """Over how many heads, which differs where some were not measured."""
    least, most = int(sweep.agreement["n"].min()), int(sweep.agreement["n"].max())
    return f"{most:,} heads" if least == most else f"{least:,} to {most:,} heads that both know"


def _finding(pairs: Sequence[Pair]) -> str:
    known = sorted((pair for pair in pairs if not np.isnan(pair[2])), key=lambda pair: pair[2])
    if not known:
        return "It is not defined how methods of importance agree on these heads"
    low, high = known[0], known[-1]
    if len(known) == 1:
        return f"Importance by {low[0]} and by {low[1]} correlate by {low[2]:.2f}"
    return (
        f"Methods of importance agree most for {high[0]} and {high[1]} ({high[2]:.2f}) and least for "
        f"{low[0]} and {low[1]} ({low[2]:.2f})"
    )
