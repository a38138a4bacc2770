"""Every kind of figure of layers and heads, at the shapes that models have."""

from __future__ import annotations

from dataclasses import replace

import matplotlib.text
import numpy as np
import pandas as pd
import pytest

from headlens.ablation.importance import ranked
from headlens.ablation.plan import Condition
from headlens.report.ablation_figures import figures
from headlens.report.canvas import ONE_COLUMN, TWO_COLUMNS
from headlens.report.heatmaps import compose, side_within
from headlens.report.tag_figures import changes_figure, draw_all
from headlens.scoring.classify import Classification
from headlens.scoring.compare import compare
from support import scored, toys
from support.pictures import assert_readable
from support.sweeps import agreeing, cumulative, each, heads_of, only, sweep_of

SHAPES = scored.SIZES
METHODS = ("gradient", "taylor", "integrated", "shapley", "gates")


def readable(figure):
    assert_readable(figure)
    for text in figure.findobj(matplotlib.text.Text):
        assert not text.get_visible() or text.get_text().isprintable() or "\n" in text.get_text()


def fits_columns(figure):
    return np.isclose(figure.get_size_inches()[0], (ONE_COLUMN, TWO_COLUMNS)).any()


@pytest.mark.parametrize(("layers", "heads"), SHAPES)
def test_figures_of_classify(layers, heads):
    tags = scored.mixed(layers, heads)
    drawn = dict(draw_all(scored.everything(tags), tags, "a-model-of-some-name"))
    assert set(drawn) == {"tags", "best-syntactic", "best-coreference", "offsets", "entropy"}
    for figure in drawn.values():
        readable(figure)
        assert fits_columns(figure)


@pytest.mark.parametrize(("layers", "heads"), SHAPES)
def test_what_changed_between_two_runs(layers, heads, tmp_path):
    tables = scored.mixed(layers, heads), scored.mixed(layers, heads, most=3)
    runs = [
        Classification.read(scored.write_run(tmp_path / str(n), looked_for(table), table))
        for n, table in enumerate(tables)
    ]
    figure = changes_figure(compare(*runs))
    readable(figure)
    assert fits_columns(figure)


def looked_for(tags):
    """Scores that look for every tag."""
    return pd.concat([scored.score_rows(tags, name, name, lambda layer, head: 0.5) for name in scored.NAMES])


@pytest.mark.parametrize(("layers", "heads"), SHAPES)
def test_maps_of_ablation(layers, heads):
    every = heads_of(layers, heads)
    n = len(every)
    sweep = each(
        np.linspace(-0.123, 0.0234, n - 1), np.linspace(0, 0.1, n - 1), every[:-1], in_question=every
    )
    methods = METHODS if n == 72 else METHODS[2:3]  # their figures differ in a word: the longest tells most
    tables = [ranked(every, name, np.linspace(-1, 2, n)) for name in methods]
    gates = tables[0].assign(open_closing=0.9, open_opening=1.0, role="facilitating")
    gates.loc[::2, "role"] = "interfering"
    importance = pd.concat(tables, ignore_index=True)
    sweep = replace(sweep, importance=importance, run={**sweep.run, **agreeing(importance)}, gates=gates)
    drawn = dict(figures(sweep))
    named = {"heads", "gates", *(f"importance-{name}" for name in methods)}
    assert set(drawn) == named | ({"methods"} if n == 72 else set())
    for figure in drawn.values():
        readable(figure)
        assert fits_columns(figure)


@pytest.mark.parametrize(("layers", "heads"), SHAPES)
def test_rows_and_curves_of_ablation(layers, heads):
    every = heads_of(layers, heads)
    alone = [Condition(f"layer {i}", tuple(every[heads * i : heads * (i + 1)])) for i in range(layers)]
    noise = np.tile([-0.01, 0.01], 20)
    kept = {f"{i}.{heads - 1}": 1 + i / 10 + noise for i in range(layers)}
    sets = [Condition(f"tag {name}", tuple(every[:heads]), tag=name) for name in scored.NAMES]
    sets += [Condition(f"control 0 of {one.name}", one.heads, one.name) for one in sets]
    steps = np.linspace(0, 1, 4)
    kinds = [
        sweep_of("layer", alone, np.linspace(-1, 1, layers), np.linspace(0, 0.1, layers)),
        only(kept),
        sweep_of("tags", sets, np.linspace(-1, 1, 18), [0.01, 0.5] * 9),
        cumulative(steps, [1, 1, 0.01, 0.01], 0.5, [(0.1, 0.2)] * 4, n=len(every)),
    ]
    for sweep in kinds:
        readable(next(figures(sweep))[1])


@pytest.mark.parametrize("count", [4, 24])
@pytest.mark.parametrize(("layers", "heads"), SHAPES)
def test_grids_of_attention(layers, heads, count):
    readable(toys.random_maps([f"token{i}" for i in range(count)], layers, heads).heatmap())


@pytest.mark.parametrize(
    ("layers", "heads", "count"),
    [(6, 12, 1), (6, 12, 5), (6, 12, 24), (6, 12, 300), (12, 12, 5), (30, 9, 24), (48, 25, 300)],
)
def test_grids_of_attention_fit_two_columns(layers, heads, count):
    maps = toys.random_maps([f"token{i}" for i in range(count)], layers, heads)
    figure = maps.heatmap(width=TWO_COLUMNS)
    readable(figure)
    assert figure.get_size_inches()[0] <= TWO_COLUMNS + 1e-9
    block = compose(maps, "encoder", side_within(maps, TWO_COLUMNS))
    assert block.image.shape == figure.axes[1].images[0].get_array().shape
