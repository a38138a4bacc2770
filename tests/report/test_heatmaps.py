import io
import itertools
import re

import matplotlib
import matplotlib._pylab_helpers
import numpy as np
import pytest
from PIL import Image

from headlens.model.heads import Head
from headlens.report.canvas import DPI, figure_bytes
from headlens.report.heatmaps import SCALE, compose, pooled
from headlens.view.maps import AttentionMaps
from support import toys


def words(count):
    return [f"token{i % 7}y" for i in range(count)]


def boxes(texts, figure):
    renderer = figure.canvas.get_renderer()
    return [text.get_window_extent(renderer) for text in texts if text.get_text()]


def apart(texts, figure):
    return not any(a.overlaps(b) for a, b in itertools.combinations(boxes(texts, figure), 2))


def all_texts(figure):
    return [text for text in figure.findobj(matplotlib.text.Text) if text.get_text() and text.get_visible()]


@pytest.mark.parametrize("count", [1, 5, 20, 40, 60, 71, 200])
def test_one_head_is_drawn_cell_by_cell_with_labels_that_do_not_touch(count):
    maps = toys.random_maps(words(count))
    figure = maps.heatmap()
    figure.draw(figure.canvas.get_renderer())
    axes = figure.axes[0]
    (image,) = axes.images
    assert np.array_equal(image.get_array(), maps.pattern(maps.heads[0]).numpy())
    step = 1 if count <= 70 else {71: 2, 200: 3}[count]
    for axis, name in ((axes.xaxis, "key"), (axes.yaxis, "query")):
        texts = axis.get_ticklabels()
        assert [text.get_text() for text in texts] == words(count)[::step]
        assert list(axis.get_ticklocs()) == [i + 0.5 for i in range(0, count, step)]
        assert axis.get_label_text() == name
        assert apart([*texts, axis.label], figure)
    caption = " ".join(text.get_text().replace("\n", " ") for text in figure.texts)
    assert (f"Every {step}{'nd' if step == 2 else 'rd'} token is labelled" in caption) == (step > 1)
    assert_all_inside(figure)


def assert_all_inside(figure):
    figure.draw(figure.canvas.get_renderer())
    width, height = figure.canvas.get_width_height()
    for text, box in zip(all_texts(figure), boxes(all_texts(figure), figure), strict=True):
        assert text.get_fontsize() >= 6
        inside = box.x0 >= 0 and box.y0 >= 0 and box.x1 <= width and box.y1 <= height
        assert inside, f"{text.get_text()} sticks out"


def test_small_weights_can_be_seen_on_one_scale_for_all_figures():
    figure = toys.random_maps(["a", "b"], 2, 2).heatmap()
    images = [image for axes in figure.axes for image in axes.images]
    assert all(image.norm is SCALE for image in images)
    assert (SCALE.vmin, SCALE.vmax) == (0, 1)
    bar = next(axes for axes in figure.axes if axes.get_ylabel() == "attention weight")
    assert [text.get_text() for text in bar.get_yticklabels()] == [
        "0",
        "0.01",
        "0.05",
        "0.1",
        "0.25",
        "0.5",
        "1",
    ]
    assert apart(bar.get_yticklabels(), figure)
    assert np.linalg.norm(np.subtract(image_colour(images[0], 0), image_colour(images[0], 0.05))) > 0.2


def image_colour(image, weight):
    return image.cmap(image.norm(weight))[:3]


def test_colours_get_darker_without_a_break():
    colours = matplotlib.colors.to_rgba_array(toys_colours())[:, :3]
    assert (np.diff(colours @ [0.2126, 0.7152, 0.0722]) < 0.005).all()


def toys_colours():
    from headlens.report.heatmaps import COLOURS

    return COLOURS(np.linspace(0, 1, 64))


@pytest.mark.parametrize(("layers", "heads", "count"), [(6, 12, 12), (12, 12, 30), (2, 3, 20)])
def test_the_grid_shows_every_head_in_its_place(layers, heads, count):
    maps = toys.random_maps(words(count), layers, heads)
    figure = maps.heatmap()
    figure.draw(figure.canvas.get_renderer())
    axes = figure.axes[1]
    assert [text.get_text() for text in axes.get_yticklabels()] == [str(i) for i in range(layers)]
    assert [text.get_text() for text in axes.get_xticklabels()] == [str(i) for i in range(heads)]
    assert axes.get_ylabel() == "layer (0 on top)"
    assert axes.get_xlabel() == "head"
    centres = [text.get_window_extent(figure.canvas.get_renderer()).y0 for text in axes.get_yticklabels()]
    assert centres == sorted(centres, reverse=True)
    marks = [text for text in axes.texts if re.fullmatch(r"\d+\.\d+", text.get_text())]
    assert [text.get_text() for text in marks] == [f"{i}.{j}" for i in range(layers) for j in range(heads)]
    tokens = [text.get_text() for text in axes.texts if text not in marks]
    labelled = count == 12 or layers == 2
    assert len(tokens) == (count * (layers + heads) if labelled else 0)
    if layers < 12:  # the others are laid out alike; comparing all pairs takes long
        assert apart([*axes.texts, *axes.get_xticklabels(), *axes.get_yticklabels()], figure)
    caption = " ".join(text.get_text().replace("\n", " ") for text in figure.texts)
    assert (f"{count} tokens from top to bottom" in caption) != labelled
    assert_all_inside(figure)


def test_the_composed_image_holds_the_weights():
    maps = toys.random_maps(words(5), 3, 4).select("0.1,2.*")
    block = compose(maps, "encoder", 1.0)
    assert (block.rows, block.columns) == ((0, 2), (0, 1, 2, 3))
    unit = block.size[0] / block.image.shape[1], block.size[1] / block.image.shape[0]
    cell = block.panel[0] / 5
    for layer, head, left, top in block.corners:
        pattern = maps.pattern(Head("encoder", layer, head)).numpy()
        for query, key in itertools.product(range(5), range(5)):
            row, column = (top + (query + 0.5) * cell) / unit[1], (left + (key + 0.5) * cell) / unit[0]
            assert block.image[int(row), int(column)] == pattern[query, key]
    drawn = np.isfinite(block.image).sum() * unit[0] * unit[1]
    assert drawn == pytest.approx(5 * block.panel[0] * block.panel[1])  # and nothing between the panels
    assert (cell * DPI) % 1 == pytest.approx(0, abs=1e-6)


def test_what_is_on_the_paper_is_what_was_measured():
    maps = toys.random_maps(words(5))
    figure = maps.heatmap()
    pixels = np.asarray(Image.open(io.BytesIO(figure_bytes(figure, ".png"))).convert("RGB"))
    axes = figure.axes[0]
    pattern = maps.pattern(maps.heads[0]).numpy()
    for query, key in itertools.product(range(5), range(5)):
        x, y = axes.transData.transform((key + 0.5, query + 0.5))
        expected = image_colour(axes.images[0], pattern[query, key])
        assert np.allclose(pixels[round(pixels.shape[0] - y), round(x)] / 255, expected, atol=0.01)


def test_big_grids_are_drawn_and_long_texts_pooled():
    maps = toys.random_maps(words(300), 1, 2)
    block = compose(maps, "encoder", 0.64)
    assert block.factor == 3
    assert "Each cell is the largest of 3 x 3 weights" in " ".join(
        text.get_text().replace("\n", " ") for text in maps.heatmap().texts
    )
    figure = toys.random_maps(words(16), 48, 25).heatmap()
    assert figure_bytes(figure, ".png", dpi=40).startswith(b"\x89PNG")


def test_pooling_keeps_the_largest():
    pattern = np.arange(15, dtype=np.float32).reshape(3, 5)
    small, factor = pooled(pattern, 3)
    assert factor == 2
    assert small.tolist() == [[6, 8, 9], [11, 13, 14]]
    assert pooled(pattern, 5) == (pattern, 1) or pooled(pattern, 5)[0] is pattern


def test_titles_name_model_and_heads():
    maps = toys.random_maps(["a", "b"], 2, 4)
    titles = {sel: maps.heatmap(sel).texts[0].get_text() for sel in ("1.2", "0.0,1.3", "0.*,1.0", "*.*")}
    assert titles == {
        "1.2": "toy: attention of head 1.2",
        "0.0,1.3": "toy: attention of heads 0.0, 1.3",
        "0.*,1.0": "toy: attention of 5 heads",
        "*.*": "toy: attention of all 8 heads",
    }
    assert maps.heatmap("1.2", title="$own$").texts[0].get_text() == "$own$"


def test_stacks_stand_below_each_other():
    maps = toys.family("bart").attention(toys.SOURCE, target=toys.TARGET)
    figure = maps.heatmap()
    headings = [text.get_text() for text in figure.texts if "look at" in text.get_text()]
    assert headings == [
        "encoder: 6 source tokens look at 6 source tokens",
        "decoder: 4 target tokens look at 4 target tokens",
        "cross: 4 target tokens look at 6 source tokens",
    ]
    assert_all_inside(figure)
    single = maps.heatmap("cross.1.2")
    assert single.axes[0].images[0].get_array().shape == (4, 6)
    assert single.texts[0].get_text().replace("\n", " ").endswith("attention of head cross.1.2")


def test_captions_say_what_was_done():
    maps = toys.minilm().attention("Unrecognizably grumbling").select("0.0").to_words().drop_special()
    caption = maps.heatmap().texts[1].get_text().replace("\n", " ")
    assert "Words: the sum to a word's pieces, the mean from them." in caption
    assert "Special tokens are left out; rows are not renormalised." in caption


def test_nothing_global_changes():
    before = dict(matplotlib.rcParams)
    maps = toys.random_maps(["a", "b"], 2, 2)
    for ending in (".png", ".svg", ".pdf"):
        figure_bytes(maps.heatmap(), ending)
    assert dict(matplotlib.rcParams) == before
    assert not matplotlib._pylab_helpers.Gcf.figs  # pyplot holds no figure


def test_maps_of_one_token():
    maps: AttentionMaps = toys.random_maps(["only"], 1, 2)
    assert_all_inside(maps.heatmap())


def test_norms_have_a_scale_of_their_own_up_to_the_largest():
    norms = toys.minilm().attention("The dog barked.").to_norms()
    peak = max(float(pattern.max()) for pattern in norms.patterns.values())
    for figure in (norms.heatmap(), norms.heatmap("2.0")):
        (image,) = (image for axes in figure.axes for image in axes.images if len(image.get_array()) > 1)
        shown = norms if "72" in figure.texts[0].get_text() else norms.select("2.0")
        largest = max(float(pattern.max()) for pattern in shown.patterns.values())
        assert (image.norm.vmin, image.norm.vmax) == (0, pytest.approx(largest))
        assert "norms of" in figure.texts[0].get_text()
        assert "Norms: weight times the length" in figure.texts[1].get_text().replace("\n", " ")
    assert peak > 1
