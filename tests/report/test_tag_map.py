import io
import itertools

import numpy as np
import pandas as pd
import pytest
from matplotlib.colors import to_hex, to_rgb
from matplotlib.patches import Rectangle
from PIL import Image

from headlens.model.heads import Head
from headlens.report.canvas import figure_bytes, luminance, style_of
from headlens.report.tag_figures import HeadMap, Tile, split, tag_map_figure
from headlens.scoring.scorers import SCORERS
from support import scored
from support.pictures import assert_readable, said

STYLES = {tag: style_of(tag) for tag in SCORERS}

LOOKED_FOR = pd.DataFrame({"tag": scored.NAMES})


def cells(axes):
    """Left and upper corner of each cell with the colours of its tiles, from left to right."""
    boxes = [p for p in axes.patches if p.get_label() == "cell"]
    tiles = [p for p in axes.patches if isinstance(p, Rectangle) and p.get_label() != "cell"]
    found = {}
    for box in boxes:
        inside = [t for t in tiles if box.get_bbox().padded(1e-6).containsx(t.get_x()) and within(t, box)]
        found[box.get_xy()] = [to_hex(t.get_facecolor()).upper() for t in inside]
    return found


def within(tile, box):
    return box.get_y() - 1e-6 <= tile.get_y() <= box.get_y() + box.get_height()


@pytest.mark.parametrize(("layers", "heads"), scored.SIZES)
def test_the_map_is_readable_at_every_size(layers, heads):
    figure = tag_map_figure(LOOKED_FOR, scored.mixed(layers, heads))
    axes = figure.axes[0]
    assert [text.get_text() for text in axes.get_xticklabels()] == [str(i) for i in range(heads)]
    assert [text.get_text() for text in axes.get_yticklabels()] == [str(i) for i in range(layers)]
    assert axes.get_ylabel() == "layer (0 on top)"
    assert axes.get_xlabel() == "head"
    assert figure.get_size_inches()[0] == pytest.approx(3.4 if heads == 9 else 7)
    assert_readable(figure)
    tops = [text.get_window_extent().y0 for text in axes.get_yticklabels()]
    assert tops == sorted(tops, reverse=True)


def test_each_cell_shows_its_tags_strongest_first():
    tags = {("encoder", 0, 0): ["syntactic", "delimiter"], ("encoder", 1, 2): ["broad"]}
    figure = tag_map_figure(LOOKED_FOR, scored.tag_rows(2, 3, tags=tags), "toy")
    colours = {tag: style.colour.upper() for tag, style in STYLES.items()}
    assert list(cells(figure.axes[0]).values()) == [
        [colours["syntactic"], colours["delimiter"]], [], [], [], [], [colours["broad"]],
    ]  # fmt: skip
    assert [text.get_text() for text in figure.axes[0].texts] == ["S", "D", "B"]
    lefts, tops = zip(*cells(figure.axes[0]), strict=True)
    assert lefts[0] == lefts[3] < lefts[1] < lefts[2]
    assert tops[0] == tops[2] < tops[3]
    key = [text.get_text() for text in figure.axes[1].texts]
    assert [text for text in key if len(text) > 1] == [
        "positional: 0 heads", "delimiter: 1 head", "syntactic: 1 head", "coreference: 0 heads",
        "semantic: 0 heads", "induction: 0 heads", "duplicate-token: 0 heads", "rare-token: 0 heads",
        "broad: 1 head", "no tag: 4 heads",
    ]  # fmt: skip
    assert said(figure).startswith(
        "toy: 1 of 6 heads is tagged delimiter, 1 syntactic and 1 broad; 1 carries several tags, 4 no tag"
    )
    assert "the lowest on top" in said(figure)


def test_the_picture_has_the_colours():
    tags = {("encoder", 0, 1): ["induction"]}
    figure = tag_map_figure(LOOKED_FOR, scored.tag_rows(1, 2, tags=tags))
    pixels = np.asarray(Image.open(io.BytesIO(figure_bytes(figure, ".png"))).convert("RGB"))
    tile = next(p for p in figure.axes[0].patches if p.get_label() == "induction kept")
    x, y = figure.axes[0].transData.transform((tile.get_x() + 0.02, tile.get_y() + 0.02))
    colour = np.array(to_rgb(style_of("induction").colour))
    assert np.allclose(pixels[round(pixels.shape[0] - y), round(x)] / 255, colour, atol=0.01)


@pytest.mark.parametrize("count", range(1, 10))
@pytest.mark.parametrize("width", [0.17, 0.25, 0.5])
def test_a_cell_is_split_without_gap_or_overlap(count, width):
    parts = split(count, (1.0, 2.0, width, 0.3))
    assert len(parts) == count
    assert sum(wide * high for *_, wide, high in parts) == pytest.approx(width * 0.3)
    for (left, top, wide, high), (x, y, *_) in itertools.pairwise(parts):
        assert (x, y) == (pytest.approx(left + wide), top) or (x, y) == (1.0, pytest.approx(top + high))


def test_nine_tags_in_a_narrow_cell_and_tags_unknown():
    tags = {("encoder", 1, 1): scored.NAMES, ("encoder", 0, 0): ["novel"]}
    figure = tag_map_figure(LOOKED_FOR, scored.tag_rows(2, 25, tags=tags))
    assert_readable(figure)
    assert "novel: 1 head" in [text.get_text() for text in figure.axes[1].texts]
    assert style_of("novel").letter == "n"


def test_stacks_stand_below_each_other_and_heads_that_are_not_there_are_not_drawn():
    table = scored.mixed(6, 8, ("encoder", "decoder", "cross")).drop(index=[0])
    figure = tag_map_figure(LOOKED_FOR, table)
    assert [t.get_text() for t in figure.texts if t.get_fontweight() == "bold"] == [
        "encoder",
        "decoder",
        "cross",
    ]
    assert [len(cells(axes)) for axes in figure.axes[:3]] == [47, 48, 48]
    assert_readable(figure)


@pytest.mark.parametrize(("layers", "heads"), [(1, 1), (1, 64), (2, 3)])
def test_small_and_wide_models(layers, heads):
    figure = tag_map_figure(LOOKED_FOR, scored.mixed(layers, heads))
    assert_readable(figure)
    assert figure.axes[0].get_ylabel() == "layer"


def test_titles_of_the_map():
    nothing = scored.tag_rows(2, 2)
    nothing["tags"] = np.nan  # as pandas reads empty cells
    assert said(tag_map_figure(LOOKED_FOR, nothing)).startswith("None of 4 heads carries a tag")
    many = {("encoder", 0, head): scored.NAMES[: head + 1] for head in range(6)}
    assert said(tag_map_figure(LOOKED_FOR, scored.tag_rows(1, 6, tags=many))).startswith(
        "6 of 6 heads are tagged positional, 5 delimiter, 4 syntactic and 3 coreference, 2 more tags on "
        "fewer; 5 carry several tags, none no tag"
    )


def test_kept_gained_and_lost_look_different():
    tiles = [Tile("syntactic", change) for change in ("kept", "gained", "lost")]
    figure = HeadMap({Head("encoder", 0, 0): tiles}, [(tiles[0], "key")]).draw("title", "caption")
    kept, gained, lost = (p for p in figure.axes[0].patches if p.get_label() != "cell")
    assert [to_hex(p.get_edgecolor()) for p in (kept, gained, lost)] == ["#ffffff", "#000000", "#000000"]
    assert [to_hex(p.get_facecolor()) for p in (kept, gained, lost)] == ["#117733", "#117733", "#ffffff"]
    assert kept.get_linestyle() == gained.get_linestyle() != lost.get_linestyle()


def test_colours_are_told_apart_by_colour_blind_readers_and_letters_on_grey_paper():
    assert len({style.letter for style in STYLES.values()}) == len(STYLES) == 9
    for style in STYLES.values():
        bright, dark = sorted([luminance(style.colour), luminance(style.ink)], reverse=True)
        assert (bright + 0.05) / (dark + 0.05) >= 4.5  # WCAG AA
    linear = np.array([[c / 12.92 if c <= 0.04045 else ((c + 0.055) / 1.055) ** 2.4 for c in to_rgb(s.colour)]
                       for s in STYLES.values()])  # fmt: skip
    for kind in BLIND.values():
        seen = np.clip(linear @ np.array(kind).T, 0, 1) ** (1 / 2.2)
        distances = [np.linalg.norm(a - b) for a, b in itertools.combinations(seen, 2)]
        assert min(distances) > 0.09


BLIND = {  # Machado et al. 2009, severity 1
    "protanopia": [[0.152, 1.053, -0.205], [0.115, 0.786, 0.099], [-0.004, -0.048, 1.052]],
    "deuteranopia": [[0.367, 0.861, -0.228], [0.280, 0.673, 0.047], [-0.012, 0.043, 0.969]],
    "normal": np.eye(3),
}
