"""Heads in figures that can be clicked once the SVG stands in a page."""

import xml.etree.ElementTree as ElementTree

import matplotlib
import numpy as np
import pytest

from headlens.report.canvas import figure_bytes, link_areas
from headlens.report.score_figures import best_heads_figure, entropy_figure
from headlens.report.tag_figures import tag_map_figure
from support import scored, toys
from support.pictures import pixels

HREF = "{http://www.w3.org/1999/xlink}href"


def linked(figure):
    root = ElementTree.fromstring(figure_bytes(figure, ".svg"))
    return [
        node.get(HREF).removeprefix("#head=")
        for node in root.iter()
        if node.get(HREF, "").startswith("#head=")
    ]


@pytest.mark.parametrize(("layers", "heads"), [(2, 4), (48, 25)])
def test_every_head_of_a_map_of_tags(layers, heads):
    tags = scored.mixed(layers, heads)
    figure = tag_map_figure(scored.everything(tags), tags, "toy")
    assert linked(figure) == [f"{layer}.{head}" for layer in range(layers) for head in range(heads)]


def test_heads_of_several_stacks_are_named_with_theirs():
    tags = scored.mixed(2, 2, ("encoder", "cross"))
    figure = tag_map_figure(scored.everything(tags), tags, "toy")
    assert sorted(linked(figure)) == [
        f"{s}.{x}.{h}" for s in ("cross", "encoder") for x in (0, 1) for h in (0, 1)
    ]


def test_best_heads_and_entropy():
    tags = scored.tag_rows(2, 4)
    scores = scored.everything(tags)
    assert linked(best_heads_figure(scores, "syntactic", "toy")) == ["1.3"]
    assert sorted(linked(entropy_figure(scores, "toy"))) == sorted(
        f"{x}.{h}" for x in (0, 1) for h in range(4)
    )


def test_panels_of_a_grid_of_attention():
    assert linked(toys.random_maps(["a", "b"], 2, 3).heatmap()) == [
        f"{x}.{h}" for x in (0, 1) for h in range(3)
    ]
    maps = toys.family("t5").attention(toys.SOURCE, target=toys.TARGET)
    assert sorted(linked(maps.heatmap())) == sorted(map(maps.name, maps.heads))


def test_what_can_be_clicked_cannot_be_seen():
    before, after = (tag_map_figure(scored.everything(t), t, "toy") for t in [scored.mixed(2, 3)] * 2)
    for axes in after.axes:
        for area in [one for one in axes.collections if one.get_urls()[0]]:
            area.remove()
    assert linked(after) == []
    assert np.array_equal(pixels(before), pixels(after))


def test_areas_leave_the_limits_as_they_are():
    axes = matplotlib.figure.Figure().add_subplot()
    axes.set(xlim=(0, 1), ylim=(3, 0))
    link_areas(axes, [("0.0", (5.0, 5.0, 2.0, 2.0))])
    assert (axes.get_xlim(), axes.get_ylim()) == ((0, 1), (3, 0))
