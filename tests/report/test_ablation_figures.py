from __future__ import annotations

from dataclasses import replace

import matplotlib
import numpy as np
import pandas as pd
import pytest
from matplotlib.colors import to_hex

from headlens.ablation.compare import Comparison
from headlens.ablation.conditions import Condition
from headlens.ablation.importance import agreement, from_each, ranked
from headlens.ablation.result import Sweep, against_controls, no_importance, tabulate
from headlens.benchmarks.metrics import Ratio
from headlens.errors import RunError
from headlens.heads import Head
from headlens.report.ablation import figures
from headlens.report.ablation_gates import gates_figure
from headlens.report.ablation_groups import control_changes
from headlens.report.ablation_heads import importance_figure
from headlens.report.ablation_words import BETTER, MISSING, UNSURE, WORSE
from headlens.report.figures import save_drawn
from pictures import assert_readable, said

LOSS = Ratio("loss", "loss per token (nats)", False, 0)
ACCURACY = Ratio("accuracy", "accuracy", True, 0)
SMALL, LARGE = (2, 4), (24, 16)


def heads_of(layers, heads, stack="encoder"):
    return [Head(stack, layer, head) for layer in range(layers) for head in range(heads)]


def sweep_of(kind, conditions, deltas, q_values, metric=LOSS, **more):
    """A sweep with deltas and q-values of our own; every interval reaches 0.1 to both sides."""
    delta, q_value = np.array(deltas, dtype=float), np.array(q_values, dtype=float)
    made = Comparison(1.0, 1 + delta, delta, delta - 0.1, delta + 0.1, q_value, q_value)
    compared = {one.name: (made, place) for place, one in enumerate(conditions)}
    table = tabulate(conditions, kind, "mean", [metric], [compared], 40)
    about = {"benchmark": {"name": "language:toy.txt", "examples": 40}, **more.pop("run", {})}
    return Sweep(
        kind, table, more.pop("importance", no_importance()), about, (metric,), tuple(conditions),
        np.ones((40, 1)), {}, against_controls(conditions, [metric], table), **more,
    )  # fmt: skip


def each(deltas, q_values, heads, metric=LOSS, in_question=None):
    """Heads removed one by one; the others in question were not measured."""
    several = len({head.stack for head in heads}) > 1
    conditions = [Condition(f"head {head if several else str(head)[8:]}", (head,)) for head in heads]
    known = dict(zip(heads, deltas, strict=True))
    importance = from_each(in_question or heads, known, metric)
    return sweep_of("each", conditions, deltas, q_values, metric, importance=importance)


def drawn(sweep):
    """The figure of a kind, which comes first."""
    return figures(sweep)[0][1]


def colours(axes):
    return [[to_hex(cell) for cell in row] for row in axes.images[0].get_array()]


def marks(axes):
    return {(round(t.get_position()[1]), round(t.get_position()[0])): t.get_text() for t in axes.texts}


def ticks(axis):
    return [text.get_text() for text in axis.get_ticklabels()]


def reddish(colour):
    red, _, blue = (int(colour[at : at + 2], 16) for at in (1, 3, 5))
    return np.sign(red - blue)


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
    assert marks(figure.axes[0]) == {(0, 3): "\u2022", (1, 0): "\u00d7"}
    assert said(figure).startswith(
        "Of 5 heads removed alone, 2 matter (significantly worse without) and 1 harms (better without); the "
        f"largest loss is head 0.0 ({sign * 0.4:+.4f}) Red: worse without the head; blue: better."
    )
    assert f"A cross: {metric.name} is not defined without the head. Grey: not measured (3 heads)." in said(
        figure
    )
    assert "language:toy.txt, 40 examples; a removed head puts out its mean output." in said(figure)
    bar = figure.axes[-1]
    assert bar.get_xlabel() == f"change in {metric.label} without the head"
    assert ticks(bar.xaxis) == ["-0.4", "-0.2", "0", "0.2", "0.4"]
    assert_readable(figure)


def test_heads_of_one_layer_and_of_several_stacks():
    row = [Head("encoder", 4, 1), Head("encoder", 4, 5)]
    figure = drawn(each([0.0, 0.0], [1, 1], row))
    assert (ticks(figure.axes[0].yaxis), ticks(figure.axes[0].xaxis)) == (["4"], ["1", "5"])
    assert "none matter (significantly worse without) and none harm" in said(figure)
    assert "Grey" not in said(figure)
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
    sweep = replace(sweep, importance=extra, agreement=agreement(extra), gates=gates)
    names = [name for name, _ in figures(sweep)]
    assert names == ["heads", "importance-gradient", "methods", "gates"]
    for name, figure in figures(sweep):
        assert_readable(figure)
        if name != "methods":
            assert ticks(figure.axes[0].yaxis) == [str(i) for i in range(size[0])]
            assert ticks(figure.axes[0].xaxis) == [str(i) for i in range(size[1])]


def cumulative(deltas, q_values, share, controls=(), method="gradient", n=8):
    """Steps of 2 heads; `controls` holds the deltas of each step's two random sets."""
    heads = heads_of(2, 4)
    steps = [
        Condition(f"least important {2 * i} of {n}", tuple(heads[: 2 * i])) for i in range(1, n // 2 + 1)
    ]
    random = (
        []
        if not controls
        else [
            Condition(f"control {draw} of {one.name}", one.heads, one.name)
            for one in steps
            for draw in (0, 1)
        ]
    )
    flat = [delta for pair in controls for delta in pair]
    return sweep_of(
        "cumulative", [*steps, *random], [*deltas, *flat], [*q_values, *[1.0] * len(flat)],
        importance=ranked(heads, method, np.arange(8.0)),
        run={"largest_share_without_significant_loss": share, "importance_estimated_on": "one half"},
    )  # fmt: skip


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


def bars(axes):
    """Width and colour of each bar by its row."""
    return {
        round(bar.get_y() + bar.get_height() / 2): (round(bar.get_width(), 6), to_hex(bar.get_facecolor()))
        for bar in axes.patches
    }


def test_a_bar_for_each_layer():
    layers = [Condition(f"layer {i}", tuple(heads_of(4, 2)[2 * i : 2 * i + 2])) for i in range(4)]
    sweep = sweep_of("layer", layers, [-0.3, 0.2, -0.05, np.nan], [0.01, 0.02, 0.6, np.nan], ACCURACY)
    ((name, figure),) = figures(sweep)
    assert name == "layers"
    key, axes = figure.axes
    assert bars(axes) == {0: (-0.3, WORSE), 1: (0.2, BETTER), 2: (-0.05, to_hex(UNSURE))}
    (intervals,) = axes.collections
    np.testing.assert_allclose(intervals.get_segments()[0], [[-0.4, 0], [-0.2, 0]])
    assert len(intervals.get_segments()) == 3
    assert ticks(axes.yaxis) == ["layer 0", "layer 1", "layer 2", "layer 3"]
    assert axes.get_ylim()[0] > axes.get_ylim()[1]  # layer 0 on top
    assert [t.get_text() for t in axes.texts] == [
        "heads", "2", "2", "2", "2", "change", "-0.3000", "+0.2000", "-0.0500", "not defined",
    ]  # fmt: skip
    assert [t.get_text() for t in key.texts] == [
        "significantly worse (q < 0.05)", "significantly better (q < 0.05)", "not significant",
        "95 % interval",
    ]  # fmt: skip
    assert axes.get_xlabel() == "change in accuracy"
    assert said(figure).startswith(
        "The model is significantly worse without the heads of 1 of 4 layers; the largest loss is that of "
        "layer 0 (-0.3000)"
    )
    assert_readable(figure)


@pytest.mark.parametrize("n_layers", [1, 24])
def test_layers_of_several_stacks_in_panels(n_layers):
    stacks = ("encoder", "decoder", "cross")
    layers = [
        Condition(f"layer {s}.{i}", tuple(heads_of(i + 1, 2, s)[-2:]))
        for s in stacks
        for i in range(n_layers)
    ]
    n = len(layers)
    figure = drawn(sweep_of("layer", layers, np.arange(n) / n, [1] * n))
    assert [len(axes.patches) for axes in figure.axes[1:]] == [n_layers] * 3
    assert len({axes.get_xlim() for axes in figure.axes[1:]}) == 1
    assert [t.get_text() for t in figure.texts if t.get_fontweight() == "bold"] == list(stacks)
    assert f"largest loss is that of cross layer {n_layers - 1} (" in said(figure)
    assert_readable(figure)


def only(values, stack=""):
    """Layers of two heads; `values` holds the per-example losses when each is kept."""
    conditions = [Condition(f"only head {name}", (Head("encoder", 0, 0),)) for name in values]
    sweep = sweep_of("only", conditions, [0.0] * len(values), [1.0] * len(values))
    return replace(
        sweep, baseline=np.ones((40, 1)), values={f"only head {k}": v[:, None] for k, v in values.items()}
    )


def test_the_best_head_of_each_layer():
    noise = np.tile([-0.01, 0.01], 20)
    values = {
        "0.0": 2 + noise,
        "0.1": np.ones(40),
        "3.0": 1.5 + noise,
        "3.1": 3 + noise,
        "4.2": np.full(40, np.nan),
    }
    ((name, figure),) = figures(only(values))
    assert name == "one-head-per-layer"
    axes = figure.axes[1]
    assert ticks(axes.yaxis) == ["layer 0: 0.1 kept", "layer 3: 3.0 kept", "layer 4: 4.2 kept"]
    assert bars(axes)[0] == (0, to_hex(UNSURE))
    width, colour = bars(axes)[1]
    assert (width, colour) == (pytest.approx(0.5, abs=0.01), WORSE)
    assert set(bars(axes)) == {0, 1}
    assert said(figure).startswith(
        "In 1 of 3 layers one head is enough to lose nothing significant; the largest loss is that of "
        "layer 3 (+0."
    )
    assert_readable(figure)
    stacks = {
        f"{stack}.{layer}.{head}": 1 + noise
        for stack in ("encoder", "cross")
        for layer in (0, 1)
        for head in (0, 1)
    }
    figure = drawn(only(stacks))
    assert ticks(figure.axes[1].yaxis) == ["layer 0: encoder.0.0 kept", "layer 1: encoder.1.0 kept"]
    assert len(figure.axes) == 3
    assert_readable(figure)


def test_tags_stand_among_their_random_sets():
    heads, names = heads_of(2, 4), ["broad", "induction", "very-long-name-of-a-tag"]
    sets = [Condition(f"tag {name}", tuple(heads[: i + 1])) for i, name in enumerate(names)]
    random = [Condition(f"control {d} of {one.name}", one.heads, one.name) for one in sets for d in range(20)]
    by_chance = [*(0.01 * np.arange(20)), *(0.5 + 0.01 * np.arange(20)), *[np.nan] * 20]
    sweep = sweep_of(
        "tags", [*sets, *random], [0.5, 0.6, np.nan, *by_chance], [0.01, 0.02, np.nan, *[1] * 60]
    )
    ((name, figure),) = figures(sweep)
    assert name == "tags"
    axes = figure.axes[1]
    assert ticks(axes.yaxis) == [
        "broad (1 head)", "induction (2 heads)", "very-long-name-of-a-tag (3 heads)",
    ]  # fmt: skip
    dots = [line for line in axes.lines if line.get_label() == "random"]
    np.testing.assert_allclose(dots[0].get_xdata(), 0.01 * np.arange(20))
    assert np.abs(dots[1].get_ydata() - 1).max() < 0.3
    assert len(dots[2].get_xdata()) == 0
    own = {line.get_label(): line for line in axes.lines}["worse"]
    assert (own.get_xdata().tolist(), own.get_ydata().tolist()) == ([0.5, 0.6], [0, 1])
    assert [t.get_text() for t in axes.texts] == [
        "as bad or worse", "4.8%", "52.4%", "not known", "change", "+0.5000", "+0.6000", "not defined",
    ]  # fmt: skip
    assert said(figure).startswith(
        "The model is significantly worse without the heads of 2 of 3 tags; 1 of these is worse than random "
        "sets Grey: 20 random sets with as many heads of each layer."
    )
    assert [len(one) for one in control_changes(sweep)] == [20, 20, 0]
    assert_readable(figure)


def test_one_tag_and_a_set():
    heads = heads_of(1, 2)
    sets = [
        Condition("tag broad", tuple(heads)),
        Condition("control 0 of tag broad", tuple(heads), "tag broad"),
    ]
    figure = drawn(sweep_of("tags", sets, [0.0, 0.0], [1, 1]))
    assert "without the heads of none of 1 tag; none of these is worse than random sets" in said(figure)
    assert_readable(figure)
    assert figures(sweep_of("set", [Condition("set", tuple(heads))], [0.3], [0.01])) == []


def with_methods(**methods):
    heads = heads_of(1, 4)
    table = pd.concat([ranked(heads, name, np.array(v, float)) for name, v in methods.items()])
    one = Condition("set", tuple(heads))
    return sweep_of("set", [one], [0.3], [0.01], importance=table, agreement=agreement(table))


def test_methods_of_importance():
    sweep = with_methods(
        gradient=[1, 2, 3, 4], taylor=[4, 3, -2, 1], random=[1, 2, 3, 4], shapley=[1, 1, 1, 1]
    )
    names = [name for name, _ in figures(sweep)]
    assert names == ["importance-gradient", "importance-taylor", "importance-shapley", "methods"]
    figure = figures(sweep)[-1][1]
    axes = figure.axes[0]
    assert (ticks(axes.xaxis), ticks(axes.yaxis)) == (
        ["gradient", "taylor", "random"], ["taylor", "random", "shapley"],
    )  # fmt: skip
    written = {(int(t.get_position()[1]), int(t.get_position()[0])): t.get_text() for t in axes.texts}
    assert written == {
        (0, 0): "-0.80", (1, 0): "1.00", (1, 1): "-0.80", (2, 0): "n/a", (2, 1): "n/a", (2, 2): "n/a",
    }  # fmt: skip
    mesh = axes.collections[0]
    shades = [to_hex(shade) for shade in mesh.get_facecolors()]
    assert [reddish(shades[place]) for place in (0, 3)] == [1, -1]
    assert said(figure).startswith(
        "Methods of importance agree most for gradient and random (1.00) and least for gradient and taylor "
        "(-0.80)"
    )
    assert_readable(figure)
    two = figures(with_methods(gradient=[1, 2, 3, 4], each=[1, 2, 3, np.nan]))[-1][1]
    assert said(two).startswith("Importance by gradient and by each correlate by 1.00")
    assert "over 3 heads." in said(two)
    assert_readable(two)
    none = figures(with_methods(each=[1, 1, 1, 1], random=[1, 2, 3, 4]))
    assert [name for name, _ in none] == ["methods"]
    assert said(none[0][1]).startswith("It is not defined how")


def test_maps_of_importance():
    sweep = with_methods(gradient=[0, 1, 2, np.nan], taylor=[-2, 1, 2, 0], shapley=[np.nan] * 4)
    unsigned, signed, unknown = (importance_figure(sweep, m) for m in ("gradient", "taylor", "shapley"))
    (row,) = colours(unsigned.axes[0])
    assert (row[0], row[3]) == ("#fff5f0", MISSING)  # the light end of Reds
    assert "The darker, the more the head matters" in said(unsigned)
    assert "Grey: no number (1 head)." in said(unsigned)
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


def test_figures_are_written_with_the_same_bytes_every_time(tmp_path):
    sweep = with_methods(gradient=[1, 2, 3, 4], taylor=[4, 3, -2, 1])
    before = dict(matplotlib.rcParams)
    paths = save_drawn(figures(sweep), tmp_path / "one")
    assert [path.relative_to(tmp_path / "one").as_posix() for path in paths] == [
        f"figures/{name}{ending}"
        for name in ("importance-gradient", "importance-taylor", "methods")
        for ending in (".png", ".svg")
    ]
    again = save_drawn(figures(sweep), tmp_path / "two")
    assert [path.read_bytes() for path in paths] == [path.read_bytes() for path in again]
    assert dict(matplotlib.rcParams) == before
    assert not matplotlib._pylab_helpers.Gcf.figs  # pyplot holds no figure
    (tmp_path / "file").touch()
    with pytest.raises(RunError) as refused:
        save_drawn(figures(sweep), tmp_path / "file")
    path = tmp_path / "file" / "figures" / "importance-gradient.png"
    assert str(refused.value) == (
        f"{path} cannot be written: Not a directory. Choose another place with --out, or make room."
    )
