"""The numbers that the viewer shows are those of `to_frame`, within what it says they can be off."""

import dataclasses
import math

import numpy as np
import pytest
import torch
from playwright.sync_api import expect

from headlens.report.viewer import levels, viewer_data
from support import toys
from support.viewers import TEXT, map_box, readout, readouts_of_all, shows, tokens, viewing

UNIT = 0.001  # the last digit of a weight that is shown with the largest doubt


def matrix(maps, head):
    """Weights [query, key] of a head, from the table."""
    frame = maps.to_frame()
    stack, layer, number = head.split(".") if head.count(".") == 2 else ("encoder", *head.split("."))
    rows = frame[(frame["stack"] == stack) & (frame["layer"] == int(layer)) & (frame["head"] == int(number))]
    return rows.pivot(index="query", columns="key", values=frame.columns[-1]).to_numpy()


def agree(shown, exact, queries, keys):
    """Every row of every readout is right, and none that is larger was left out; returns how many rows."""
    count = 0
    for place, rows in shown.items():
        side, index = place[0], int(place[1:])
        wanted = exact[index] if side == "q" else exact[:, index]
        labels = keys if side == "q" else queries
        assert len(rows) == min(5, len(wanted))
        for token, other, value, doubt in rows:
            assert token == labels[other]
            assert abs(value - wanted[other]) <= doubt + 2e-6
        left_out = np.delete(wanted, [other for _, other, _, _ in rows])
        least = min(wanted[other] + 2 * doubt for _, other, _, doubt in rows)
        assert left_out.size == 0 or left_out.max() <= least + 2e-6
        count += len(rows)
    return count


VIEWS = {
    "tokens": ("", lambda maps: maps),
    "words": ("&unit=words", lambda maps: maps.to_words()),
    "no-special": ("&special=0", lambda maps: maps.drop_special()),
    "words-no-special": ("&unit=words&special=0", lambda maps: maps.to_words().drop_special()),
    "norms": ("&lens=norms", lambda maps: maps.to_norms()),
    "norms-of-words": ("&lens=norms&unit=words", lambda maps: maps.to_norms().to_words()),
    "norms-no-special": ("&lens=norms&special=0", lambda maps: maps.to_norms().drop_special()),
}


def go(page, fragment, head):
    page.evaluate("(hash) => { location.hash = hash; }", f"#head={head}{fragment}")
    shows(page, head)


@pytest.mark.parametrize("view", VIEWS)
def test_every_token_of_a_real_text(chromium, tmp_path, view):
    maps = toys.minilm().attention(TEXT)
    fragment, change = VIEWS[view]
    changed = change(maps)
    with viewing(chromium, tmp_path, maps) as page:
        for head in ("2.0", "4.9", "5.11"):
            go(page, fragment, head)
            assert tokens(page, "q") == list(changed.tokens)
            count = agree(readouts_of_all(page), matrix(changed, head), changed.tokens, changed.tokens)
            assert count == 2 * len(changed.tokens) * 5


@pytest.mark.parametrize("view", ["tokens", "words", "no-special", "norms"])
def test_encoder_decoders(chromium, tmp_path, view):
    maps = toys.family("t5").attention(toys.SOURCE, target=toys.TARGET)
    fragment, change = VIEWS[view]
    changed = change(maps)
    with viewing(chromium, tmp_path, maps) as page:
        for head in ("encoder.0.1", "decoder.1.3", "cross.1.2"):
            queries, keys = (axis.tokens for axis in changed.axes[head.split(".")[0]])
            go(page, fragment, head)
            count = agree(readouts_of_all(page), matrix(changed, head), queries, keys)
            assert count == len(queries) * min(5, len(keys)) + len(keys) * min(5, len(queries))


def test_several_heads_have_a_list_each(chromium, tmp_path):
    maps = toys.minilm().attention(TEXT)
    with viewing(chromium, tmp_path, maps, fragment="#head=3.1,0.2,5.7&pin=q4") as page:
        for head, rows in zip(("3.1", "0.2", "5.7"), readout(page), strict=True):
            agree({"q4": rows}, matrix(maps, head), maps.tokens, maps.tokens)


@pytest.mark.parametrize(("count", "bound"), [(5, 0.0025), (60, 0.0025), (200, 0.0025), (512, 0.0025)])
def test_how_far_a_weight_can_be_off_is_small(count, bound):
    assert np.diff(levels(count)).max() / 2 <= bound + 1e-12


def test_what_is_shown_as_doubt_is_small(chromium, tmp_path):
    with viewing(chromium, tmp_path, toys.minilm().attention(TEXT), fragment="#head=2.0") as page:
        doubts = [doubt for rows in readouts_of_all(page).values() for _, _, _, doubt in rows]
        assert 0 < max(doubts) <= 0.0025 + 1.5 * UNIT  # half a digit for rounding, one for rounding up


def test_pointing_isolates_and_a_click_keeps(chromium, tmp_path):
    maps = toys.random_maps(["[CLS]", "the", "dog", "barks", "[SEP]"], 1, 2)
    with viewing(chromium, tmp_path, maps, fragment="#head=0.1,0.0") as page:
        hint = page.locator(".hl-hint")
        expect(hint).to_have_text("Point at a token to see where it looks; click to keep it.")
        first = page.locator(".hl-q .hl-token").nth(1)
        first.hover()
        expect(page.locator(".hl-own")).to_have_text("the")
        bars = page.locator(".hl-k .hl-bars")
        assert [bars.nth(i).locator("i").count() for i in range(5)] == [2] * 5
        assert page.locator(".hl-q .hl-bars i").count() == 0
        widths = bars.evaluate_all(
            "all => all.map((bar) => [...bar.children].map((i) => parseFloat(i.style.width)))"
        )
        for order, head in enumerate((maps.heads[1], maps.heads[0])):
            wanted = 100 * np.sqrt(maps.pattern(head)[1].numpy())
            assert np.abs(np.array(widths)[:, order] - wanted).max() < 3  # percent
        page.mouse.move(0, 0)
        expect(hint).to_be_visible()
        assert bars.locator("i").count() == 0
        first.click()
        page.mouse.move(0, 0)
        expect(first).to_have_attribute("aria-pressed", "true")
        expect(page.locator(".hl-own")).to_have_text("the")
        page.locator(".hl-k .hl-token").nth(3).hover()  # another one as long as it is pointed at
        expect(page.locator(".hl-own")).to_have_text("barks")
        page.mouse.move(0, 0)
        expect(page.locator(".hl-own")).to_have_text("the")
        first.click()
        page.mouse.move(0, 0)
        expect(hint).to_be_visible()
        first.click()
        page.keyboard.press("Escape")
        page.mouse.move(0, 0)
        expect(hint).to_be_visible()


@pytest.mark.parametrize("width", [1200, 400])
def test_the_heatmap_says_what_is_under_the_pointer(chromium, tmp_path, width):
    maps = toys.family("t5").attention(toys.SOURCE, target=toys.TARGET)
    exact = matrix(maps, "cross.0.2")
    queries, keys = (axis.tokens for axis in maps.axes["cross"])
    fragment = "#head=cross.0.2&shape=heatmap&pin=q0"
    with viewing(chromium, tmp_path, maps, fragment=fragment, width=width) as page:
        page.locator(".hl-map").scroll_into_view_if_needed()
        left, top, cell = map_box(page)
        box = page.locator(".hl-map").bounding_box()
        rows, columns = exact.shape
        assert (rows, columns) == (4, 6)
        for row in range(rows):
            for column in range(columns):
                within = 0.9 if (row + column) % 2 else 0.1  # of the cell, close to the next one
                x, y = (start + (index + within) * cell for start, index in ((left, column), (top, row)))
                page.mouse.move(box["x"] + x, box["y"] + y)
                said = page.locator(".hl-tip").inner_text()
                token, rest = said.split(" → ")
                other, number = rest.rsplit(": ", 1)
                value, doubt = map(float, number.split(" ± "))
                assert (token, other) == (queries[row], keys[column])
                assert abs(value - exact[row, column]) <= doubt + 2e-6
        page.mouse.move(box["x"] + left / 2, box["y"] + top / 2)  # beside the cells
        expect(page.locator(".hl-tip")).to_be_hidden()
        page.mouse.click(box["x"] + left + 2.5 * cell, box["y"] + top + 2.5 * cell)
        expect(page.locator(".hl-readout > p")).to_have_text(f"{queries[2]} (query 2) looks most at")


ROWS = torch.tensor([[0.5, 0.3, 0.2, 0.0], [0.0, 0.25, 0.25, 0.5], [1.0, 0, 0, 0], [0.25] * 4])


def left(first, *more):
    """Maps of one head, [CLS] a b [SEP], with rows of our own."""
    maps = toys.random_maps(["[CLS]", "a", "b", "[SEP]"])
    rows = torch.stack([ROWS[0], first, *more, ROWS[3]])
    return dataclasses.replace(maps, patterns=dict.fromkeys(maps.sites, rows[None]))


def test_entropy_of_what_is_left_is_that_of_rows_that_add_up_to_1():
    maps = left(torch.tensor([0.5, 0.3, 0.2, 0.0]), ROWS[2])  # b looks at [CLS] alone: it keeps nothing
    data = viewer_data([("x", maps.drop_special())])["texts"][0]
    assert data["entropy"] == {"0.0": pytest.approx(-(0.6 * math.log(0.6) + 0.4 * math.log(0.4)))}
    assert data["entropyOf"] == "tokens but special ones, rows made to add up to 1"
    whole = viewer_data([("x", maps)])["texts"][0]
    three = -sum(p * math.log(p) for p in (0.5, 0.3, 0.2))
    assert whole["entropy"] == {"0.0": pytest.approx((2 * three + 0 + math.log(4)) / 4)}
    assert (whole["entropyOf"], viewer_data([("x", maps.to_words())])["texts"][0]["entropyOf"]) == (
        "all tokens", "all words",
    )  # fmt: skip
    nothing = viewer_data([("x", left(ROWS[2], ROWS[2]).drop_special())])["texts"][0]
    assert nothing["entropy"] == {}


def test_the_page_says_what_entropy_is_over(chromium, tmp_path):
    maps = left(ROWS[1], ROWS[2])
    with viewing(chromium, tmp_path, maps, start={"unit": "words", "special": False}) as page:
        assert page.locator(".hl-facts").inner_text().endswith(" nats (all tokens)")
        assert (
            "Entropy is the mean over queries, over all tokens, whatever is shown."
            in page.locator(".hl-about").inner_text()
        )
    with viewing(chromium, tmp_path, maps.drop_special()) as page:
        over = "tokens but special ones, rows made to add up to 1"
        assert page.locator(".hl-facts").inner_text().endswith(f" nats ({over})")
        assert f"over queries, over {over}, whatever" in page.locator(".hl-about").inner_text()
