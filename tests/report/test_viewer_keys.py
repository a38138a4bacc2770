"""The viewer by keyboard alone."""

import pytest

from support import toys
from support.viewers import chosen, controls, readout, shows, viewing

TOKENS = ["[CLS]", "the", "dog", "barks", "[SEP]"]
MAPS = toys.random_maps(TOKENS, 3, 4)


def own(page):
    return page.locator(".hl-readout > p").inner_text()


def test_arrows_change_layer_and_head_and_stop_at_the_edges(chromium, tmp_path):
    moves = [
        ("ArrowUp", "0.0"),
        ("ArrowLeft", "0.0"),
        *[("ArrowRight", f"0.{head}") for head in (1, 2, 3, 3)],
        *[("ArrowDown", f"{layer}.3") for layer in (1, 2, 2)],
        ("ArrowLeft", "2.2"),
        ("ArrowUp", "1.2"),
    ]
    with viewing(chromium, tmp_path, MAPS) as page:
        for key, head in moves:
            page.keyboard.press(key)
            shows(page, head)
            assert chosen(page) == [head]
        page.locator("[data-head='1.1']").click()  # with the focus in the grid it goes along
        page.keyboard.press("ArrowDown")
        shows(page, "2.1")
        assert page.evaluate("document.activeElement.dataset.head") == "2.1"


def test_arrows_go_from_stack_to_stack(chromium, tmp_path):
    maps = toys.family("t5").attention(toys.SOURCE, target=toys.TARGET)
    with viewing(chromium, tmp_path, maps, fragment="#head=encoder.0.3") as page:
        rows = ["encoder.1", "decoder.0", "decoder.1", "cross.0", "cross.1", "cross.1"]
        for row in rows:
            page.keyboard.press("ArrowDown")
            shows(page, f"{row}.3")
        for row in [*rows[-3::-1], "encoder.0", "encoder.0"]:
            page.keyboard.press("ArrowUp")
            shows(page, f"{row}.3")


def test_letters(chromium, tmp_path):
    maps = toys.minilm().attention("Reinterpretings sleep.")
    with viewing(chromium, tmp_path, maps) as page:
        for key, name, changed, before in (
            ("v", "shape", "heatmap", "lines"),
            ("w", "unit", "words", "tokens"),
            ("s", "special", False, True),
            ("n", "lens", "norms", "weights"),
        ):
            page.keyboard.press(key)
            assert controls(page)[name] == changed
            page.keyboard.press(key)
            assert controls(page)[name] == before
        for key in ("Control+v", "Alt+s", "Meta+w", "x"):
            page.keyboard.press(key)
        assert controls(page) | {"heads": "0.0"} == controls(page)
        assert [controls(page)[n] for n in ("shape", "special", "unit")] == ["lines", True, "tokens"]


def test_j_and_k_walk_along_the_tokens_and_escape_lets_go(chromium, tmp_path):
    with viewing(chromium, tmp_path, MAPS) as page:
        hint = own(page)
        for key, place in [
            ("j", 0),
            ("j", 1),
            ("j", 2),
            ("k", 1),
            ("k", 0),
            ("k", 0),
            *[("j", i) for i in (1, 2, 3, 4, 4)],
        ]:
            page.keyboard.press(key)
            assert own(page) == f"{TOKENS[place]} (query {place}) looks most at"
        page.keyboard.press("Escape")
        assert own(page) == hint
        page.keyboard.press("k")  # from the end
        assert own(page) == "[SEP] (query 4) looks most at"
        page.locator(".hl-k .hl-token").nth(2).click()
        page.mouse.move(0, 0)
        page.keyboard.press("k")
        assert own(page) == "the (key 1) is looked at most by"


def test_a_token_with_the_focus_is_where_j_and_k_start(chromium, tmp_path):
    with viewing(chromium, tmp_path, MAPS) as page:
        page.locator(".hl-k .hl-token").first.focus()
        assert own(page) == "[CLS] (key 0) is looked at most by"
        page.keyboard.press("j")
        assert own(page) == "the (key 1) is looked at most by"
        assert page.evaluate("document.activeElement.dataset.place") == "k1"
        page.keyboard.press("Enter")  # pinned already: let go
        assert page.locator(".hl-token[aria-pressed=true]").count() == 0
        page.keyboard.press("Space")
        assert page.locator(".hl-token[aria-pressed=true]").get_attribute("data-place") == "k1"


def test_the_focus_stays_in_the_viewer_when_what_had_it_goes(chromium, tmp_path):
    maps = toys.family("t5").attention(toys.SOURCE, target=toys.TARGET)
    with viewing(chromium, tmp_path, maps, fragment="#head=encoder.1.0") as page:
        for key, ready in (("v", "encoder.1.0"), ("ArrowDown", "decoder.0.0")):
            page.locator("[name=shape]").select_option("lines")
            page.locator(".hl-q .hl-token").first.focus()
            page.keyboard.press(key)
            shows(page, ready)
            page.wait_for_timeout(50)
            assert page.evaluate("document.activeElement.className") == "hl-stage"
        page.keyboard.press("ArrowRight")
        shows(page, "decoder.0.1")


@pytest.mark.parametrize("name", ["heads", "shape"])
def test_no_key_is_swallowed_inside_a_list(chromium, tmp_path, name):
    with viewing(chromium, tmp_path, MAPS) as page:
        field = page.locator(f"[name={name}]")
        before = controls(page)
        field.focus()
        page.evaluate(
            """window.swallowed = [];
            document.addEventListener("keydown", (event) => window.swallowed.push(event.defaultPrevented))"""
        )
        for key in "jkwsn":
            field.press(key)
        assert page.evaluate("window.swallowed") == [False] * 5
        field.press("ArrowDown")  # the list's own
        assert {n for n, v in controls(page).items() if v != before[n]} >= {name}
        assert controls(page)[name] == {"heads": "0.1", "shape": "heatmap"}[name]
        assert page.locator(".hl-readout li").count() == 0  # j and k were not heard


def test_the_text_above_scrolls_by_its_own_keys(chromium, tmp_path):
    maps = toys.random_maps([f"word{i}" for i in range(300)], 2, 1)
    with viewing(chromium, tmp_path, maps) as page:
        text = page.get_by_label("The text")
        text.focus()
        page.keyboard.press("ArrowDown")
        page.wait_for_timeout(300)
        assert text.evaluate("p => p.scrollTop") > 0
        assert chosen(page) == ["0.0"]


def test_an_arrow_keeps_what_is_pinned(chromium, tmp_path):
    with viewing(chromium, tmp_path, MAPS, fragment="#pin=k3&head=1.1") as page:
        first = readout(page)
        page.keyboard.press("ArrowRight")
        shows(page, "1.2")
        assert own(page) == "barks (key 3) is looked at most by"
        assert readout(page) != first
