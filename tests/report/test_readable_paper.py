"""Figures on paper: grey printing, columns, vector files, and values that are those of the table."""

from __future__ import annotations

import itertools
import re

import numpy as np
import pytest
from matplotlib.colors import to_rgba
from matplotlib.figure import Figure

from headlens.ablation.plan import Condition
from headlens.errors import InputError
from headlens.report.ablation_figures import ROLES, figures
from headlens.report.ablation_heads import HATCHES, MARKERS, VERDICTS, HeadCell, _scale, importance_figure
from headlens.report.canvas import (
    BASE,
    ONE_COLUMN,
    TWO_COLUMNS,
    drawing,
    figure_bytes,
    luminance,
    text_size,
    text_style,
    wrapped,
)
from support import toys
from support.pictures import assert_readable
from support.sweeps import drawn, each, heads_of, sweep_of, with_methods


def contrast(one, other):
    dark, bright = sorted([luminance(one), luminance(other)])
    return (bright + 0.05) / (dark + 0.05)


def test_verdicts_are_told_apart_in_grey():
    assert len(set(MARKERS.values())) == len(VERDICTS) == 3
    for one, other in itertools.combinations(VERDICTS, 2):
        grey = contrast(VERDICTS[one][0], VERDICTS[other][0]) >= 3
        assert grey or HATCHES.get(one) != HATCHES.get(other)


def test_bars_are_hatched_as_the_key_says():
    layers = [Condition(f"layer {i}", tuple(heads_of(3, 2)[2 * i : 2 * i + 2])) for i in range(3)]
    key, axes = drawn(sweep_of("layer", layers, [0.3, -0.3, 0.1], [0.01, 0.01, 0.5])).axes
    hatches = [bar.get_hatch() for bar in axes.patches]
    assert hatches == [None, HATCHES["better"], None]
    assert [swatch.get_hatch() for swatch in key.patches] == hatches


def test_roles_are_told_apart_in_grey():
    assert len({role.letter for role in ROLES.values()}) == len(ROLES)


def test_blue_is_marked_wherever_it_means_something():
    heads = heads_of(2, 3)
    sweep = each(
        [0.4, -0.4, -0.3, 0.2, np.nan], [0.01, 0.01, 0.5, 0.01, np.nan], heads[:5], in_question=heads
    )
    axes = drawn(sweep).axes[0]
    found = {text.get_position(): text.get_text() for text in axes.texts}
    assert found == {(1, 0): "+", (2, 0): "\u2022", (1, 1): "\u00d7"}
    hatched = next(one for one in axes.collections if one.get_hatch())
    assert [path.get_extents().bounds for path in hatched.get_paths()] == [(1.5, 0.5, 1, 1)]
    signed = importance_figure(with_methods(taylor=[-2, 1, np.nan, -0.1]), "taylor").axes[0]
    assert [text.get_position()[0] for text in signed.texts] == [0, 3]
    assert {text.get_text() for text in signed.texts} == {"\u2212"}


def test_cells_have_the_colours_of_their_numbers():
    heads = heads_of(30, 9)
    deltas = np.linspace(-0.3, 0.5, len(heads))
    image = drawn(each(deltas, np.ones(len(heads)), heads)).axes[0].images[0].get_array()  # [layer, head, 4]
    scale = _scale(deltas, "RdBu_r", "")
    for head, delta in zip(heads, deltas, strict=True):
        assert scale.cell(delta) == HeadCell(scale.cell(delta).colour)
        assert tuple(image[head.layer, head.head]) == pytest.approx(to_rgba(scale.cell(delta).colour))
    assert len(np.unique(image[:, :, :3].reshape(-1, 3), axis=0)) > 100


@pytest.mark.parametrize("points", [6, 7, 9, 10])
def test_text_is_as_wide_at_every_resolution(points):
    text = "measured (5 heads); a removed head puts out its mean output. Layers and heads count from 0."
    widths = []
    for dpi in (72, 96, 110, 150, 200, 300):
        figure = Figure(dpi=dpi)
        with drawing():
            box = figure.text(0, 0, text, fontsize=points, **text_style([BASE])).get_window_extent()
        widths.append(box.width / dpi)
    assert widths == pytest.approx([text_size([text], points, [BASE])[0]] * len(widths), rel=0.005)


def test_lines_are_never_wider_than_their_room():
    for text in ("W" * 40 + "i" * 200, "\u2764" * 30 + " " + "l" * 300, "a few words in one line"):
        broken, height = wrapped(text, 3.0, 9, [BASE])
        found, its = text_size([broken], 9, [BASE])
        assert found <= 3.0
        assert its == height
        assert broken.replace("\n", "").replace(" ", "") == text.replace(" ", "")


@pytest.mark.parametrize(("count", "width"), [(2, ONE_COLUMN), (12, TWO_COLUMNS), (24, TWO_COLUMNS)])
def test_one_head_fits_into_columns(count, width):
    figure = toys.random_maps([f"token{i}" for i in range(count)]).heatmap()
    assert figure.get_size_inches()[0] == pytest.approx(width)


@pytest.mark.parametrize("width", [3.4, 5.0, 7.0])
@pytest.mark.parametrize("count", [2, 12, 60, 400])
def test_one_head_fits_into_a_width(count, width):
    figure = toys.random_maps([f"token{i}" for i in range(count)]).heatmap(width=width)
    assert_readable(figure)
    assert figure.get_size_inches()[0] <= width + 1e-9
    assert figure.axes[0].images[0].get_array().shape == (count, count)


def test_a_width_that_is_too_small_is_refused_with_one_that_is_not():
    grid = toys.random_maps(["one", "two"], 2, 12)
    one = toys.random_maps(["token"] * 3)
    for maps, message in (
        (grid, "of 24 heads does not fit into 2 inches"),
        (one, "does not fit into 2 inches"),
    ):
        with pytest.raises(InputError, match=message) as raised:
            maps.heatmap(width=2)
        enough = float(re.search(r"width of ([\d.]+) inches", str(raised.value))[1])
        assert maps.heatmap(width=enough).get_size_inches()[0] <= enough
        with pytest.raises(InputError):
            maps.heatmap(width=enough - 0.15)


def test_vector_files_hold_text_as_text():
    heads = heads_of(2, 3)
    sweep = each([0.1] * 6, [0.01] * 6, heads)
    for _, figure in figures(sweep):
        assert ">head</text>" in figure_bytes(figure, ".svg").decode()
        pdf = figure_bytes(figure, ".pdf")
        assert b"/FontFile2" in pdf  # a font with its characters
        assert b"/Type3" not in pdf  # and none of outlines
