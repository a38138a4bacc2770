"""Figures of heads removed in groups: whole layers, all but one of a layer, all of a tag."""

from __future__ import annotations

import numpy as np
import pandas as pd

from headlens.ablation.result import Sweep, best_of_layers
from headlens.benchmarks.metrics import Array
from headlens.findings import beyond_random
from headlens.report.ablation_rows import Rows
from headlens.report.ablation_words import losses, measured_on, verdicts
from headlens.report.claims import one_head, too_few_draws
from headlens.report.figures import InchFigure
from headlens.report.parts import label
from headlens.util.formatting import counted


def layers_figure(sweep: Sweep) -> InchFigure:
    """Draw what the primary metric loses without each layer's heads.

    Args:
        sweep: of the kind *layer*.

    Returns:
        The figure, a panel per stack.
    """
    rows, first = sweep.primary, [one.heads[0] for one in sweep.conditions]
    rows = rows.assign(stack=[head.stack for head in first], label=[f"layer {head.layer}" for head in first])
    columns = [("heads", [f"{n:,}" for n in rows["n_removed"]]), ("change", _changes(rows))]
    worse, several = verdicts(sweep.metrics[0], rows).count("worse"), rows["stack"].nunique() > 1
    title = f"The model is significantly worse without the heads of {worse or 'none'} of "
    title += counted(len(rows), "layer")
    title += _largest(sweep, rows, rows["stack"] + " " + rows["label"] if several else rows["label"])
    caption = f"Each bar: all heads in question of a layer are removed together. {measured_on(sweep)}"
    return Rows(rows, sweep.metrics[0], columns).draw(title, caption)


def one_head_figure(sweep: Sweep) -> InchFigure:
    """Draw what the primary metric loses when only the best head of a layer is kept.

    Args:
        sweep: of the kind *only*.

    Returns:
        The figure, a panel per stack.
    """
    best = best_of_layers(sweep)
    parts = [layer.rpartition(".") for layer in best["layer"]]
    best = best.assign(
        stack=[stack for stack, _, _ in parts],
        head=best["kept"],
        label=[
            f"layer {layer}: {kept} kept" for (_, _, layer), kept in zip(parts, best["kept"], strict=True)
        ],
    )
    title = one_head(best, sweep.metrics[0].larger_is_better) + _largest(
        sweep, best, "layer " + best["layer"]
    )
    caption = (
        "Each bar is a layer of which one head is kept: the best on one half of the examples, measured on "
        f"the other half. q-values count all layers shown. {measured_on(sweep)}"
    )
    return Rows(best, sweep.metrics[0], [("change", _changes(best))]).draw(title, caption)


def tags_figure(sweep: Sweep) -> InchFigure:
    """Draw what the primary metric loses without each tag's heads, held against random sets.

    Args:
        sweep: of the kind *tags*.

    Returns:
        The figure.
    """
    metric, rows = sweep.metrics[0], sweep.primary
    names = [label(name.removeprefix("tag "), 40) for name in rows["condition"]]
    labels = [f"{name} ({counted(n, 'head')})" for name, n in zip(names, rows["n_removed"], strict=True)]
    rows = rows.assign(stack="", label=labels)
    mine = sweep.controls[sweep.controls["metric"] == metric.name].set_index("condition")
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
    table = sweep.table[sweep.table["metric"] == sweep.metrics[0].name].set_index("condition")["delta"]
    random = {one.name: one.control_of for one in sweep.conditions if one.control_of}
    found = []
    for name in sweep.primary["condition"]:
        drawn = np.array([table[other] for other, of in random.items() if of == name], dtype=np.float64)
        found.append(drawn[np.isfinite(drawn)])
    return found


def _changes(rows: pd.DataFrame) -> list[str]:
    return [f"{delta:+.4f}" if np.isfinite(delta) else "not defined" for delta in rows["delta"]]


def _largest(sweep: Sweep, rows: pd.DataFrame, names: pd.Series) -> str:
    """The end of a title: where the loss is largest."""
    loss = losses(sweep.metrics[0], rows["delta"])
    if not (loss > 0).any():
        return ""
    first = int(np.nanargmax(loss))
    return f"; the largest loss is that of {names.iloc[first]} ({rows['delta'].iloc[first]:+.4f})"
