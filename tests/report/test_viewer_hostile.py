"""Whatever a text, a title or a model's name holds, the page shows it as text."""

import dataclasses

from playwright.sync_api import expect

from headlens.model.heads import Head
from headlens.runs.read import Marks
from headlens.util.formatting import visible
from support import toys
from support.browser import open_page
from support.viewers import shows, viewing

HOSTILE = [
    "<script>alert(1)</script>",
    "a<b<c",
    "</textarea>",
    "</script><img src=x onerror=alert(1)>",
    "<!--<script>",
    "&lt;",
    '"onload=alert(1) x="',
    "'><svg/onload=alert(1)>",
    "=1+1",
    "\0",
    "\ud800",
    "\u202e",
    "\u2028",
    "{{ 7 * 7 }}",
    "${7*7}",
    "]]>",
    "x" * 300,
]
SHOWN = [visible(text) for text in HOSTILE]


def hostile_maps():
    maps = toys.random_maps(SHOWN, 1, 2)
    return dataclasses.replace(maps, model="".join(HOSTILE[:9]), text="\n".join(HOSTILE))


def check(page, maps):
    """All of it stands there, letter by letter, and nothing of it became an element."""
    for side in "qk":
        assert page.locator(f".hl-{side} .hl-text").all_text_contents() == SHOWN
    assert page.locator("header p").text_content() == visible(maps.text)
    assert page.locator("h1").text_content() == f"{visible(maps.model)}: attention of 2 heads"
    assert page.locator("script").count() == 2  # the data, and the page's own
    assert page.locator("img, svg, textarea, [onload], [onerror]").count() == 0


def test_hostile_tokens_titles_and_names(chromium, tmp_path):
    maps = hostile_maps()
    with viewing(chromium, tmp_path, maps) as page:
        check(page, maps)
        for place, text in enumerate(SHOWN):
            page.keyboard.press("j")
            assert page.locator(".hl-own").text_content() == text
            assert page.locator(".hl-list li bdi").count() == 5
            expect(page.locator(".hl-readout > p")).to_contain_text(f"(query {place}) looks most at")
        page.keyboard.press("v")
        page.locator(".hl-map").hover()
        assert page.locator("img, svg").count() == 0
        page.keyboard.press("w")
        page.keyboard.press("v")
        assert page.locator(".hl-q .hl-text").all_text_contents() == SHOWN


def test_hostile_titles_of_several_texts(chromium, tmp_path):
    maps = toys.random_maps(["a", "b"])
    with viewing(chromium, tmp_path, [(text, maps) for text in HOSTILE]) as page:
        options = page.locator("[name=text] option").all_text_contents()
        assert options == [text if len(text) <= 60 else text[:59] + "\u2026" for text in SHOWN]
        for index in range(len(HOSTILE)):
            page.select_option("[name=text]", str(index))
            shows(page, "0.0")


def test_hostile_tags_and_methods(chromium, tmp_path):
    maps = toys.random_maps(["a", "b"])
    head, tag = Head("encoder", 0, 0), HOSTILE[3]
    with viewing(chromium, tmp_path, maps, Marks({head: [tag]}, {head: 0.5}, HOSTILE[0])) as page:
        assert page.locator(".hl-legend .hl-key").text_content() == f"< {tag}"
        assert f"importance 0.500 ({HOSTILE[0]})" in page.locator(".hl-facts").text_content()
        assert page.locator("[data-head]").get_attribute("aria-label").startswith(f"Head 0.0; {tag}; entropy")


def test_two_frames_of_a_notebook_do_not_meet(chromium, tmp_path):
    maps = hostile_maps()
    other = toys.random_maps(["one", "two"], 2, 2)
    path = tmp_path / "notebook.html"
    frames = maps._repr_html_() + other._repr_html_()
    path.write_text(f"<!doctype html><meta charset=utf-8><p id=viewer>mine</p>{frames}", encoding="utf-8")
    with open_page(chromium, path) as page:
        assert page.locator("iframe").count() == 2
        first, second = (page.frame_locator("iframe").nth(index) for index in (0, 1))
        for frame in (first, second):
            frame.locator("#viewer[data-ready]").wait_for()
        check(first, maps)
        second.locator("[data-head='1.1']").click()
        page.keyboard.press("ArrowUp")
        second.locator("#viewer[data-ready='0.1']").wait_for()
        assert first.locator("#viewer").get_attribute("data-ready") == "0.0"
        second.locator("[name=theme]").select_option("dark")
        expect(second.locator("html")).to_have_attribute("data-theme", "dark")
        expect(first.locator("html")).to_have_attribute("data-theme", "auto")
        assert page.locator("#viewer").text_content() == "mine"
        page.wait_for_timeout(400)
        assert page.evaluate("location.hash") == ""


def test_norms_are_shown_as_a_picture_in_a_notebook():
    maps = toys.minilm().attention("Dogs bark.").select("0.0")
    assert maps.to_norms()._repr_html_() is None
    assert maps._repr_html_().startswith("<iframe srcdoc=")
