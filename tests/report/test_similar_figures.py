"""Figures of distances between heads."""

import re

import numpy as np
import pytest

from headlens.report.canvas import TWO_COLUMNS, figure_bytes, save_drawn
from headlens.report.similar_figures import draw_all
from support import scored
from support.pictures import assert_readable, said
from support.similarruns import tables


@pytest.mark.parametrize("tagged", [False, True])
@pytest.mark.parametrize(("layers", "heads"), scored.SIZES)
def test_figures_at_the_shapes_that_models_have(layers, heads, tagged):
    distances, clusters, _ = tables(layers, heads, scored.mixed(layers, heads) if tagged else None)
    drawn = dict(draw_all(distances, clusters, "a-model-of-some-name"))
    assert set(drawn) == {"clustermap", "embedding"}
    for figure in drawn.values():
        assert_readable(figure)
        assert figure.get_size_inches()[0] == pytest.approx(TWO_COLUMNS)
        names = re.findall(r"#head=([\d.]+)", figure_bytes(figure, ".svg").decode())
        assert set(names) == {f"{layer}.{head}" for layer in range(layers) for head in range(heads)}
    words = said(drawn["clustermap"])
    every = layers * heads
    expected = "Every 2nd head is named." if every == 72 else "Heads have no room for their names"
    assert every == 144 or expected in words
    assert f"of {every:,} heads have no room for their names." in said(drawn["embedding"])


@pytest.mark.parametrize("count", [2, 3, 5])
def test_few_heads(count):
    distances, clusters, _ = tables(1, count, several=True)
    for name, figure in draw_all(distances, clusters, "toy"):
        assert_readable(figure)
        assert figure.get_size_inches()[0] == pytest.approx(TWO_COLUMNS)
        if name == "clustermap":
            labels = [text.get_text() for axes in figure.axes for text in axes.get_yticklabels()]
            assert {f"encoder.0.{n}" for n in range(count)} <= set(labels)
        assert "toy, encoder" in said(figure)


def test_the_matrix_is_in_the_order_of_the_tree_and_says_what_was_found():
    distances, clusters, js = tables(3, 4, count=4)
    figure = dict(draw_all(distances, clusters))["clustermap"]
    axes = next(axes for axes in figure.axes if axes.images)
    order = [tuple(map(int, text.get_text().split("."))) for text in axes.get_yticklabels()]
    places = [4 * layer + head for layer, head in order]
    assert sorted(places) == list(range(12))
    np.testing.assert_allclose(axes.images[0].get_array(), js[np.ix_(places, places)], atol=1e-12)
    labels = clusters["cluster"].to_numpy()[places]
    assert (np.diff(labels) != 0).sum() == 3  # each cluster in one piece
    boxes = [patch.get_bbox() for patch in axes.patches if patch.get_label() == "cluster"]
    sizes = sorted(clusters["cluster"].value_counts())
    assert sorted(round(box.width) for box in boxes) == sizes
    first, second = np.triu_indices(12, 1)
    near = js[first, second].argmin()
    one, other = (f"{n // 4}.{n % 4}" for n in (first[near], second[near]))
    assert f"the closest are {one} and {other} ({js[first, second].min():.3f} nats)" in said(figure)


def test_places_and_tags_in_the_plane():
    broad = [(0, 0), (1, 1)]
    told = {("encoder", *head): ["broad"] for head in broad} | {("encoder", 0, 1): ["delimiter", "broad"]}
    tags = scored.tag_rows(2, 2, tags=told)
    distances, clusters, js = tables(2, 2, tags)
    figure = dict(draw_all(distances, clusters))["embedding"]
    (points,) = [one for axes in figure.axes for one in axes.collections if one.get_label() == "heads"]
    np.testing.assert_allclose(points.get_offsets(), clusters[["x", "y"]])
    different = (js[0, 1] + js[1, 3]) / 2
    assert (
        f"Heads with the same strongest tag are {js[0, 3]:.2f} nats apart on average, heads with different "
        f"ones {different:.2f}"
    ) in said(figure)
    letters = [text.get_text() for axes in figure.axes for text in axes.texts]
    assert letters.count("B") == 3  # two heads, one in the key
    assert {"0.0", "0.1", "1.0", "1.1"} <= set(letters)


def test_one_head_and_equal_heads(tmp_path):
    distances, clusters, _ = tables(1, 1)
    assert list(draw_all(distances, clusters)) == []
    distances, clusters, _ = tables(2, 3)
    same = clusters.assign(cluster=0, x=0.0, y=0.0)
    for _, figure in draw_all(distances.assign(js=0.0), same):
        assert_readable(figure)
        assert "one cluster" in said(figure)


def test_the_same_bytes_twice(tmp_path):
    distances, clusters, _ = tables(2, 3)
    paths = save_drawn(draw_all(distances, clusters), tmp_path / "a")
    save_drawn(draw_all(distances, clusters), tmp_path / "b")
    assert len(paths) == 4
    for path in paths:
        assert path.read_bytes() == (tmp_path / "b" / "figures" / path.name).read_bytes()
