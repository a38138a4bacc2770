"""What a reader sees of a figure."""

import io

import matplotlib
import numpy as np
from matplotlib.colors import to_hex
from PIL import Image

from headlens.report.canvas import drawing, figure_bytes


def drawn_boxes(figure):
    """Text and place of everything that is written, as rendered."""
    renderer = figure.canvas.get_renderer()
    figure.draw_without_rendering()
    texts = [t for t in figure.findobj(matplotlib.text.Text) if t.get_text().strip() and t.get_visible()]
    off = {id(t) for axes in figure.axes if not axes.axison for t in axis_texts(axes)}
    with drawing():
        return [(t, t.get_window_extent(renderer)) for t in texts if id(t) not in off]


def axis_texts(axes):
    return [text for axis in (axes.xaxis, axes.yaxis) for text in axis.findobj(matplotlib.text.Text)]


def assert_readable(figure):
    """No text over another, none outside, none smaller than 6 points."""
    width, height = figure.canvas.get_width_height()
    placed = drawn_boxes(figure)
    for text, box in placed:
        assert text.get_fontsize() >= 6
        assert not text.get_parse_math() or "$" not in text.get_text()
        inside = box.x0 >= 0 and box.y0 >= 0 and box.x1 <= width and box.y1 <= height
        assert inside, f"{text.get_text()!r} sticks out"
    placed.sort(key=lambda pair: pair[1].y0)
    for index, (one, box) in enumerate(placed):  # a sweep from below: all pairs would take long
        for other, its in placed[index + 1 :]:
            if its.y0 >= box.y1:
                break
            assert not box.overlaps(its) or own_tile(one, other), (one.get_text(), other.get_text())


def own_tile(one, other):
    """Letters may touch by the empty parts of their boxes: ascenders and descenders are not drawn."""
    letters = (
        len(one.get_text()) == len(other.get_text()) == 1 and (one.get_text() + other.get_text()).isalpha()
    )
    return letters and one.axes is other.axes is not None


def said(figure):
    return " ".join(text.get_text().replace("\n", " ") for text in figure.texts)


def pixels(figure):
    """What a figure looks like, [row, column, colour]."""
    return np.asarray(Image.open(io.BytesIO(figure_bytes(figure, ".png"))))


def colours(axes):
    return [[to_hex(cell) for cell in row] for row in axes.images[0].get_array()]


def ticks(axis):
    return [text.get_text() for text in axis.get_ticklabels()]


def reddish(colour):
    red, _, blue = (int(colour[at : at + 2], 16) for at in (1, 3, 5))
    return np.sign(red - blue)
