"""What is painted: heatmaps, small pictures and lines, pixel by pixel."""

import numpy as np
import pytest
import torch

from headlens.report.heatmaps import COLOURS
from headlens.report.viewer import levels
from headlens.view.maps import AttentionMaps
from support import toys
from support.viewers import map_box, picture, viewing

TOKENS = ["the", "dog", "chased", "its"]
BLUE, RED = [0x44, 0x77, 0xAA, 255], [0xEE, 0x66, 0x77, 255]  # of the first head, and of the second


def palette(dark):
    """Colours from no weight to full weight."""
    steps = np.linspace(0, 1, 256)
    both = np.rint(255 * COLOURS(steps)[:, :3]), np.rint(255 * COLOURS.reversed()(steps)[:, :3])
    return min(both, key=lambda colours: (colours[0].sum() > 3 * 128) == dark)


def possible(weight, size, dark):
    """The colours of weights that are coded like this one: the square root in 256 steps."""
    doubt = np.diff(levels(size)).max() / 2
    first, last = (round(255 * np.sqrt(np.clip(w, 0, 1))) for w in (weight - doubt, weight + doubt))
    return palette(dark)[max(0, first - 1) : last + 2].tolist()


@pytest.mark.parametrize("dark", [False, True])
def test_cells_of_the_heatmap(chromium, tmp_path, dark):
    maps = toys.random_maps(TOKENS)
    weights = maps.pattern(maps.heads[0]).numpy()
    with viewing(chromium, tmp_path, maps, dark=dark, fragment="#shape=heatmap&pin=q0") as page:
        left, top, cell = map_box(page)
        shown = picture(page, ".hl-map")
        for (row, column), weight in np.ndenumerate(weights):
            *colour, opacity = shown[
                int(top + (row + 0.5) * cell), int(left + (column + 0.5) * cell)
            ].tolist()
            assert colour in possible(weight, 4, dark)
            assert opacity == 255
    assert (
        (palette(dark)[0].sum() < 30) if dark else (palette(dark)[0].sum() > 600)
    )  # nothing is like the paper


@pytest.mark.parametrize("dark", [False, True])
def test_small_pictures(chromium, tmp_path, dark):
    maps = toys.random_maps(TOKENS, 2, 2)
    with viewing(chromium, tmp_path, maps, dark=dark) as page:
        for head in maps.heads:
            name = f"[data-head='{maps.name(head)}']"
            page.locator(f"{name}[data-drawn]").wait_for()
            shown = picture(page, f"{name} canvas")
            for (row, column), weight in np.ndenumerate(maps.pattern(head).numpy()):
                assert shown[11 * row + 5, 11 * column + 5, :3].tolist() in possible(weight, 4, dark)


def test_small_pictures_of_long_texts_show_the_largest_of_each_square(chromium, tmp_path):
    pattern = torch.full((200, 200), 1e-9)
    pattern[:, 0] = 1 - pattern[:, 1:].sum(-1)
    pattern[150, 0], pattern[150, 77] = 0.0, 1.0  # a single cell
    maps = made(torch.stack([pattern]), [f"t{i}" for i in range(200)])
    with viewing(chromium, tmp_path, maps) as page:
        page.locator("[data-head='0.0'][data-drawn]").wait_for()
        shown = picture(page, "[data-head='0.0'] canvas")[:, 4:, :3].sum(-1)
        assert shown.min() < 300 < 600 < np.median(shown)


def made(pattern, tokens):
    site = toys.site(0, len(pattern))
    axes = {"encoder": (toys.axis(tokens), toys.axis(tokens))}
    return AttentionMaps("toy", (site,), {site: pattern}, {site: tuple(range(len(pattern)))}, axes)


def column(page, x):
    """The pixels of the canvas of lines, from top to bottom."""
    return picture(page, ".hl-lines-canvas")[:, x].tolist()


def middles(page):
    """Where the rows of tokens are, in pixels of the canvas."""
    return page.evaluate(
        """() => {
            const top = document.querySelector(".hl-lines-canvas").getBoundingClientRect().top;
            return [...document.querySelectorAll(".hl-q li")].map((row) => {
                const box = row.getBoundingClientRect();
                return box.top - top + box.height / 2;
            });
        }"""
    )


@pytest.mark.parametrize("dark", [False, True])
def test_lines_go_from_query_to_key_in_the_colour_of_their_head(chromium, tmp_path, dark):
    first = torch.eye(4)[[0, 0, 1, 3]]  # every token looks at one other
    second = torch.eye(4)[[2, 2, 2, 2]]
    maps = made(torch.stack([first, second]), TOKENS)
    with viewing(chromium, tmp_path, maps, dark=dark, fragment="#head=0.0,0.1") as page:
        rows = [int(y) for y in middles(page)]
        right = column(page, -2)
        assert [right[y] for y in rows] == [BLUE, BLUE, RED, BLUE]
        left = column(page, 1)
        assert [left[y] for y in rows] == [RED] * 4  # drawn later
        page.locator("[data-head='0.1']").click(modifiers=["Shift"])
        page.locator("#viewer[data-ready='0.0']").wait_for()
        right, left = column(page, -2), column(page, 1)
        assert [right[y] for y in rows] == [BLUE, BLUE, [0, 0, 0, 0], BLUE]
        assert [left[y] for y in rows] == [BLUE] * 4
        page.locator(".hl-q .hl-token").nth(2).hover()  # alone
        right, left = column(page, -2), column(page, 1)
        none = [0, 0, 0, 0]
        assert [right[y] for y in rows] == [none, BLUE, none, none]
        assert [left[y] for y in rows] == [none, none, BLUE, none]


def test_light_lines_are_hidden_until_a_token_is_pointed_at(chromium, tmp_path):
    pattern = torch.tensor([[0.96, 0.04], [0.7, 0.3]])

    def opacity(page):
        """Of all lines that end at the second key: the square root of the weight, times the width."""
        middle = int(middles(page)[1])
        return sum(colour[3] for colour in column(page, -1)[middle - 6 : middle + 6]) / 255

    def line(weight):
        return pytest.approx(np.sqrt(weight) * (0.8 + 2.2 * weight), rel=0.1)

    with viewing(chromium, tmp_path, made(pattern[None], ["a", "b"])) as page:
        heavy = opacity(page)
        assert heavy == line(0.3)  # of the second query alone
        page.locator(".hl-q .hl-token").first.hover()
        assert opacity(page) == line(0.04)
        page.mouse.move(0, 0)
        page.select_option("[name=least]", "0.5")
        assert opacity(page) == 0
        page.select_option("[name=least]", "0")
        assert opacity(page) > 1.1 * heavy
