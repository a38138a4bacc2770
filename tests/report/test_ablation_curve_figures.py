"""The curve of pruning."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from matplotlib.colors import to_hex

from headlens.report.ablation_figures import figures
from headlens.report.ablation_heads import WORSE
from support.pictures import assert_readable, said
from support.sweeps import cumulative, drawn


def curves(figure):
    return {line.get_label(): line for line in figure.axes[0].lines}


def test_the_curve_of_pruning():
    controls = [(0.1, 0.3), (0.3, 0.5), (0.5, 0.7), (0.9, 0.9)]
    sweep = cumulative([0.0, 0.1, 0.4, 0.9], [1, 0.5, 0.01, 0.01], 0.5, controls)
    assert [name for name, _ in figures(sweep)] == ["pruning", "importance-gradient"]
    figure = drawn(sweep)
    axes, found = figure.axes[0], curves(figure)
    path = found["the least important by gradient first"]
    assert path.get_xdata().tolist() == [0, 0.25, 0.5, 0.75, 1]
    assert path.get_ydata().tolist() == [1, 1, 1.1, 1.4, 1.9]
    assert found["no significant loss"].get_xdata().tolist() == [0.25, 0.5]
    assert found["significant loss (p < 0.05)"].get_xdata().tolist() == [0.75, 1]
    assert to_hex(found["significant loss (p < 0.05)"].get_markerfacecolor()) == WORSE
    assert set(found["baseline, all heads kept"].get_ydata()) == {1}
    assert found["largest share without a significant loss: 50%"].get_xdata() == [0.5, 0.5]
    np.testing.assert_allclose(found["2 random sets: mean"].get_ydata(), [1, 1.2, 1.4, 1.6, 1.9])
    band, intervals = axes.collections
    assert band.get_label() == "2 random sets: 2.5\u201397.5 percentile"
    corners = {(round(x, 4), round(y, 4)) for x, y in band.get_paths()[0].vertices}
    assert {(0.0, 1.0), (0.25, 1.105), (0.25, 1.295), (0.75, 1.505), (0.75, 1.695), (1.0, 1.9)} <= corners
    np.testing.assert_allclose(intervals.get_segments()[1], [[0.5, 1.0], [0.5, 1.2]])
    assert axes.get_xlabel() == "share of the heads removed"
    assert axes.get_ylabel() == "loss per token (nats)\n(lower is better)"
    (above,) = axes.child_axes
    assert above.get_xlabel() == "heads removed, of 8"
    figure.canvas.draw()
    assert above.get_xlim() == pytest.approx((-0.16, 8.16))
    assert said(figure).startswith(
        "50% of the heads (4 of 8) can go without a significant loss, the least important by gradient first "
        "The interval of each step is that of the change, placed at the value. Importance was estimated on "
        "one half."
    )
    assert_readable(figure)


def test_pruning_in_a_random_order_without_end_or_without_controls():
    flat = [(0.1, 0.3)] * 4
    figure = drawn(cumulative([0.1, 0.2, 0.3, 0.4], [0.01] * 4, 0.0, flat, method="random"))
    assert {"in a random order", "2 random orders: mean"} <= set(curves(figure))
    assert curves(figure)["largest share without a significant loss: 0%"].get_xdata() == [0, 0]
    assert said(figure).startswith(
        "No step goes without a significant loss: already 2 heads of 8 cost something, in a random order The "
        "interval of each step is that of the change, placed at the value. What can go ends"
    )
    figure = drawn(cumulative([0.1, np.nan, np.nan, 0.4], [0.5, np.nan, np.nan, 0.5], 0.25))
    found = curves(figure)
    assert found["not defined"].get_xdata().tolist() == [0.5, 0.75]
    assert found["no significant loss"].get_xdata().tolist() == [0.25, 1]
    assert not [name for name in found if "random" in name]
    assert_readable(figure)
    undefined = drawn(cumulative([np.nan] * 4, [np.nan] * 4, 0.0, [(np.nan, np.nan)] * 4))
    assert said(undefined).startswith("It cannot be told what can go: the metric is not defined at the first")
    assert_readable(undefined)


def test_pruning_of_some_of_the_heads_says_so():
    sweep = cumulative([0.0, 0.1, 0.4, 0.9], [1, 0.5, 0.01, 0.01], 0.5)
    sweep.run["heads_of_model"] = 72
    figure = drawn(sweep)
    assert said(figure).startswith(
        "4 of the 8 heads in question (6% of the model's 72) can go without a significant loss, the least "
        "important by gradient first"
    )
    assert "largest share of these 8 without a significant loss: 50%" in curves(figure)
    axes = figure.axes[0]
    assert axes.get_xlabel() == "share of the 8 heads in question removed"
    assert axes.child_axes[0].get_xlabel() == "heads removed, of 8 in question (the model has 72)"
    assert_readable(figure)
    none = cumulative([0.3, 0.3, 0.4, 0.9], [0.01] * 4, 0.0)
    none.run["heads_of_model"] = 72
    assert said(drawn(none)).startswith(
        "No step goes without a significant loss: already 2 heads of the 8 in question cost something"
    )


@pytest.mark.parametrize(("count", "share"), [(1, "0.3%"), (319, "99.7%"), (320, "100%"), (160, "50%")])
def test_a_share_reads_0_or_100_per_cent_only_where_it_is(count, share):
    sizes = sorted({1, 160, 319, 320} - {0})
    sweep = cumulative([0.0] * 4, [1] * 4, count / 320, n=320)
    table = sweep.table.assign(n_removed=sizes)
    figure = drawn(replace(sweep, table=table))
    assert said(figure).startswith(f"{share} of the heads ({count} of 320) can go")
    assert f"largest share without a significant loss: {share}" in curves(figure)
