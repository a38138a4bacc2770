"""Tokens that would be formulas, markup or nothing that is seen."""

import pytest

from headlens.report.canvas import figure_bytes
from headlens.report.heatmaps import label
from support import toys

HOSTILE = ["$x_1$", "\\frac", "<script>", "a\nb", "\t", "\0", "&amp;", "]]>", "x" * 300, "\u202e"]
SHOWN = ["$x_1$", "\\frac", "<script>", "a⏎b", "⇥", "<00>", "&amp;", "]]>", "x" * 19 + "…", "<U+202E>"]


@pytest.mark.parametrize("ending", [".png", ".svg", ".pdf"])
@pytest.mark.parametrize("heads", [1, 2])
def test_hostile_tokens_are_drawn_as_they_are(ending, heads):
    maps = toys.random_maps(HOSTILE, 1, heads)
    figure = maps.heatmap(title="$\\alpha_1$ <b>")
    content = figure_bytes(figure, ending)
    assert content == figure_bytes(maps.heatmap(title="$\\alpha_1$ <b>"), ending)  # the same bytes every time
    if ending == ".svg":
        svg = content.decode()
        assert "<script" not in svg
        for text in (
            "$x_1$",
            "\\frac",
            "&lt;script&gt;",
            "&amp;amp;",
            "$\\alpha_1$ &lt;b&gt;",
            "attention weight",
        ):
            assert text in svg  # as text, not as outlines
        assert "<dc:date>" not in svg
    if heads == 1:
        assert [text.get_text() for text in figure.axes[0].get_xticklabels()] == SHOWN


def test_label():
    assert [label(token) for token in HOSTILE] == SHOWN
    assert label("☺\ufe0f") == "☺"
