"""Bars of layers, best heads of layers, and tags among their random sets."""

from __future__ import annotations

import numpy as np
import pytest
from matplotlib.colors import to_hex

from headlens.ablation.plan import Condition
from headlens.report.ablation_figures import control_changes, figures
from headlens.report.ablation_heads import BETTER, UNSURE, WORSE
from support.pictures import assert_readable, said, ticks
from support.sweeps import ACCURACY, drawn, heads_of, only, sweep_of


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
        "With one head kept, 1 of 3 layers is significantly worse (q < 0.05) and 1 loses nothing significant "
        "(p of at least 0.05), which does not show that one head is enough; 1 could not be judged; the "
        "largest loss is that of layer 3 (+0."
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
    sets = [Condition(f"tag {name}", tuple(heads[: i + 1]), tag=name) for i, name in enumerate(names)]
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


def tags_with(draws, at_least_as_bad=0):
    """A tag that matters, with so many random sets, some of them as bad."""
    heads = tuple(heads_of(1, 2))
    random = [Condition(f"control {draw} of tag broad", heads, "tag broad") for draw in range(draws)]
    by_chance = [0.6] * at_least_as_bad + [0.1] * (draws - at_least_as_bad)
    broad = Condition("tag broad", heads, tag="broad")
    return sweep_of("tags", [broad, *random], [0.5, *by_chance], [0.01, *[1] * draws])


@pytest.mark.parametrize(
    ("draws", "as_bad", "finding"),
    [
        (19, 0, "1 of these is worse than random sets Grey"),  # p is 1/20
        (39, 1, "1 of these is worse than random sets Grey"),  # p is 2/40
        (39, 2, "none of these is worse than random sets Grey"),
        (18, 0, "none of these is worse than random sets (with 18 random sets a p of at most 0.05 cannot "
        "come out: it takes 19) Grey"),
    ],
)  # fmt: skip
def test_a_tag_is_worse_than_random_sets_where_p_is_at_most_a_twentieth(draws, as_bad, finding):
    figure = drawn(tags_with(draws, as_bad))
    assert finding in said(figure)
    assert "at 5 % or less the tag says more" in said(figure)
    assert_readable(figure)


def test_one_tag_and_a_set():
    heads = heads_of(1, 2)
    sets = [
        Condition("tag broad", tuple(heads), tag="broad"),
        Condition("control 0 of tag broad", tuple(heads), "tag broad"),
    ]
    figure = drawn(sweep_of("tags", sets, [0.0, 0.0], [1, 1]))
    assert "without the heads of none of 1 tag; none of these is worse than random sets" in said(figure)
    assert_readable(figure)
    assert list(figures(sweep_of("set", [Condition("set", tuple(heads))], [0.3], [0.01]))) == []
