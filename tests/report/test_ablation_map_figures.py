"""Maps of layers and heads: what the loss of each head does, importance, gates."""

from __future__ import annotations

from dataclasses import replace

import matplotlib
import numpy as np
import pandas as pd
import pytest
from matplotlib.colors import to_hex

from headlens.ablation.importance import ranked
from headlens.model.heads import Head
from headlens.report.ablation_figures import figures, gates_figure
from headlens.report.ablation_heads import BETTER, MISSING, WORSE, importance_figure
from support.pictures import assert_readable, colours, reddish, said, ticks
from support.sweeps import ACCURACY, LOSS, agreeing, drawn, each, heads_of, with_methods

SMALL, LARGE = (2, 4), (24, 16)


def marks(axes):
    return {(round(t.get_position()[1]), round(t.get_position()[0])): t.get_text() for t in axes.texts}


@pytest.mark.parametrize(("metric", "sign"), [(LOSS, 1), (ACCURACY, -1)])
def test_red_is_worse_whichever_way_the_metric_points(metric, sign):
    heads = heads_of(2, 4)
    losses = np.array([0.4, 0.2, -0.2, 0.01, np.nan])
    sweep = each(sign * losses, [0.01, 0.04, 0.03, 0.5, np.nan], heads[:5], metric, heads)
    figure = drawn(sweep)
    cells = colours(figure.axes[0])
    assert [reddish(cell) for cell in cells[0][:3]] == [1, 1, -1]
    assert int(cells[0][0][3:5], 16) < int(cells[0][1][3:5], 16)  # the larger loss is the stronger red
    assert cells[1] == [MISSING] * 4
    assert marks(figure.axes[0]) == {(0, 2): "+", (0, 3): "\u2022", (1, 0): "\u00d7"}
    assert said(figure).startswith(
        "Of 4 heads removed alone that could be judged (1 could not), 2 matter (significantly worse without) "
        "and 1 harms (better without); the "
        f"largest loss is head 0.0 ({sign * 0.4:+.4f}) Red: worse without the head; blue: better, "
        "with a plus where that is significant. A dot:"
    )
    assert (
        f"A cross: {metric.name} is not defined without the head. Hatched: not measured (3 heads)."
        in said(figure)
    )
    assert "language:toy.txt, 40 examples; a removed head puts out its mean output." in said(figure)
    bar = figure.axes[-1]
    assert bar.get_xlabel().replace("\n", " ") == f"change in {metric.label} without the head"
    assert ticks(bar.xaxis) == ["-0.4", "-0.2", "0", "0.2", "0.4"]
    assert_readable(figure)


def test_heads_of_one_layer_and_of_several_stacks():
    row = [Head("encoder", 4, 1), Head("encoder", 4, 5)]
    figure = drawn(each([0.0, 0.0], [1, 1], row))
    assert (ticks(figure.axes[0].yaxis), ticks(figure.axes[0].xaxis)) == (["4"], ["1", "5"])
    assert "none matter (significantly worse without) and none harm" in said(figure)
    assert "Hatched" not in said(figure)
    assert "the largest" not in said(figure)
    assert_readable(figure)
    several = [*heads_of(2, 3), *heads_of(2, 4, "decoder"), Head("cross", 1, 2)]
    figure = drawn(each(np.linspace(-1, 1, 15), np.zeros(15), several[::-1]))
    assert [t.get_text() for t in figure.texts if t.get_fontweight() == "bold"] == [
        "encoder", "decoder", "cross",
    ]  # fmt: skip
    shapes = [axes.images[0].get_array().shape[:2] for axes in figure.axes[:3]]
    assert shapes == [(2, 3), (2, 4), (1, 1)]
    assert reddish(colours(figure.axes[0])[0][0]) == 1  # the last in the reversed order
    assert reddish(colours(figure.axes[2])[0][0]) == -1
    assert_readable(figure)


def test_a_head_that_is_not_in_question_is_white():
    heads = [Head("encoder", 2, 0), Head("encoder", 3, 1)]
    cells = colours(drawn(each([0.2, -0.2], [0, 0], heads)).axes[0])
    assert (cells[0][1], cells[1][0]) == ("#ffffff", "#ffffff")


@pytest.mark.parametrize("size", [SMALL, LARGE])
def test_maps_are_readable_at_every_size(size):
    heads = heads_of(*size)
    n = len(heads)
    sweep = each(np.linspace(-1e-5, 2e-5, n), np.linspace(0, 0.1, n), heads)
    extra = pd.concat([sweep.importance, ranked(heads, "gradient", np.arange(n) / n)], ignore_index=True)
    gates = extra[:n].assign(open_closing=0.9, open_opening=1.0, role="facilitating")
    sweep = replace(sweep, importance=extra, run={**sweep.run, **agreeing(extra)}, gates=gates)
    names = [name for name, _ in figures(sweep)]
    assert names == ["heads", "importance-gradient", "methods", "gates"]
    for name, figure in figures(sweep):
        assert_readable(figure)
        if name != "methods":
            assert ticks(figure.axes[0].yaxis) == [str(i) for i in range(size[0])]
            assert ticks(figure.axes[0].xaxis) == [str(i) for i in range(size[1])]


def test_maps_of_importance():
    sweep = with_methods(gradient=[0, 1, 2, np.nan], taylor=[-2, 1, 2, 0], shapley=[np.nan] * 4)
    unsigned, signed, unknown = (importance_figure(sweep, m) for m in ("gradient", "taylor", "shapley"))
    (row,) = colours(unsigned.axes[0])
    assert (row[0], row[3]) == ("#fff5f0", MISSING)  # the light end of Reds
    assert "The darker, the more the head matters" in said(unsigned)
    assert "Hatched: no number (1 head)." in said(unsigned)
    assert ticks(unsigned.axes[-1].xaxis)[0] == "0"
    (row,) = colours(signed.axes[0])
    assert [reddish(cell) for cell in row[:3]] == [-1, 1, 1]
    assert row[3] == to_hex(matplotlib.colormaps["RdBu_r"](0.5))  # the middle
    assert said(signed).startswith("By taylor the most important heads are 0.2 (2), 0.1 (1) and 0.3 (0)")
    assert said(unknown).startswith("No head has an importance by shapley")
    for figure in (unsigned, signed, unknown):
        assert_readable(figure)


def test_roles_that_gates_gave():
    gates = pd.DataFrame(
        [(head.stack, head.layer, head.head) for head in heads_of(1, 4)], columns=["stack", "layer", "head"]
    )
    gates["open_closing"] = [1.0, 0.5, 0.0, 0.0]
    gates["open_opening"] = [1.0, 1.0, 1.0, 0.0]
    gates["role"] = ["facilitating", "facilitating", "irrelevant", "interfering"]
    figure = gates_figure(replace(with_methods(gates=[1, 0.5, 0, -1]), gates=gates))
    (row,) = colours(figure.axes[0])
    half = to_hex((1 + np.array(matplotlib.colors.to_rgb(WORSE))) / 2)
    assert row == [WORSE, half, "#777777", BETTER]
    assert marks(figure.axes[0]) == {(0, 0): "F", (0, 1): "F", (0, 3): "I"}
    assert said(figure).startswith("Of 4 heads 2 are facilitating, 1 is irrelevant, 1 is interfering")
    assert "interfering (I): closes under pressure to open" in said(figure)
    assert_readable(figure)
