"""A link brings back what was shown; a broken one does no harm."""

import random

import pytest

from headlens.report.viewer import viewer_data, viewer_page
from headlens.runs.read import Marks
from support import toys
from support.browser import open_page
from support.viewers import chosen, controls, grid, link, readout, shows, tokens, viewing

TEXTS = ("Reinterpretings bewilder the grumblers.", "Dogs bark.")


@pytest.fixture(scope="module")
def path(tmp_path_factory):
    lens = toys.minilm()
    texts = [(text, lens.attention(text).select("1.*,2.*")) for text in TEXTS]
    heads = texts[0][1].heads
    tags = {head: ["broad"] for head in heads[::5]}
    marks = Marks(tags, {head: (7 * i) % 11 / 10 for i, head in enumerate(heads)}, "gradient")
    file = tmp_path_factory.mktemp("links") / "viewer.html"
    file.write_text(viewer_page(viewer_data(texts, marks, {"sort": "entropy"})), encoding="utf-8")
    return file


def state(page):
    """All that a reader sees of the state."""
    page.wait_for_timeout(100)
    return {
        "controls": controls(page),
        "title": page.locator("h2").inner_text(),
        "first": page.locator(".hl-readout").inner_text(),
        "numbers": readout(page),
        "grid": grid(page),
        "chosen": chosen(page),
        "about": page.locator(".hl-about").inner_text(),
        "shape": page.locator(".hl-stage > *").get_attribute("class"),
    }


def wander(page, seed):
    """Change everything, as a reader would."""
    rng = random.Random(seed)
    for name, values in (
        ("text", ["0", "1"]),
        ("unit", ["tokens", "words"]),
        ("lens", ["weights", "norms"]),
        ("sort", ["layer", "entropy", "importance", "tag"]),
        ("least", ["0", "0.05", "0.25"]),
        ("theme", ["auto", "light", "dark"]),
    ):
        page.select_option(f"[name={name}]", rng.choice(values))
    page.locator("[name=special]").set_checked(rng.random() < 0.5)
    heads = rng.sample([f"{layer}.{head}" for layer in (1, 2) for head in range(12)], rng.randint(1, 4))
    page.locator(f"[data-head='{heads[0]}']").click()
    for head in heads[1:]:
        page.locator(f"[data-head='{head}']").click(modifiers=["Shift"])
    shows(page, *heads)
    place = rng.choice(["q", "k"])
    page.locator(f".hl-{place} .hl-token").nth(rng.randrange(2)).click()
    page.mouse.move(0, 0)
    page.select_option("[name=shape]", rng.choice(["lines", "heatmap"]))
    return heads


@pytest.mark.parametrize("seed", range(6))
def test_a_link_brings_everything_back(chromium, path, seed):
    with open_page(chromium, path) as page:
        shows(page)
        heads = wander(page, seed)
        before, fragment = state(page), link(page)
    with open_page(chromium, path, fragment=fragment) as page:
        shows(page, *heads)
        assert state(page) == before
        assert link(page) == fragment
        page.evaluate("location.hash = '#head=1.1'")  # another link in the same page
        shows(page, "1.1")
        page.evaluate("(hash) => { location.hash = hash; }", fragment)
        shows(page, *heads)
        assert state(page) == before


def test_what_differs_from_the_start_stands_in_the_link(chromium, path):
    with open_page(chromium, path) as page:
        shows(page, "1.0")
        assert link(page) == "#head=1.0"
        assert controls(page)["sort"] == "entropy"
        page.select_option("[name=sort]", "layer")
        page.keyboard.press("Escape")
        page.locator("[name=special]").uncheck()
        assert link(page) == "#head=1.0&sort=layer&special=0"


def test_what_was_pinned_at_the_start_can_be_let_go_in_a_link(chromium, tmp_path):
    maps = toys.random_maps(["a", "b", "c"])
    with viewing(chromium, tmp_path, maps, start={"pin": "q1"}) as page:
        assert page.locator(".hl-own").inner_text() == "b"
        page.keyboard.press("Escape")
        fragment = link(page)
        assert fragment == "#head=0.0&pin="
    with viewing(chromium, tmp_path, maps, start={"pin": "q1"}, fragment=fragment) as page:
        assert page.locator(".hl-own").count() == 0


BROKEN = [
    "#head=99.99",
    "#head=",
    "#head=,,__proto__,constructor",
    "#pin=q999",
    "#pin=q99999999999999999999999",
    "#pin=x1",
    "#text=-1",
    "#text=7",
    "#text=1e0",
    "#text=",
    "#unit=<script>alert(1)</script>",
    "#shape=toString&lens=__proto__",
    "#sort=%E0%A4%A",
    "#special=maybe",
    "#%",
    "#&&==&",
]


@pytest.mark.parametrize("fragment", BROKEN)
def test_a_broken_link_does_no_harm(chromium, path, fragment):
    with open_page(chromium, path, fragment=fragment) as page:
        shows(page, "1.0")
        shown = controls(page)
        assert (shown["text"], shown["unit"], shown["shape"], shown["lens"]) == (
            "0",
            "tokens",
            "lines",
            "weights",
        )
        assert (shown["special"], shown["sort"]) == (True, "entropy")
        assert page.locator(".hl-token[aria-pressed=true]").count() == 0
        assert tokens(page, "q")[0] == "[CLS]"
        page.keyboard.press("ArrowRight")
        shows(page, "1.1")
        assert link(page) == "#head=1.1"


def test_holding_a_key_down_does_not_exhaust_the_browser(chromium, path):
    with open_page(chromium, path) as page:
        shows(page)
        link(page)
        page.evaluate(
            """() => {
                const replace = history.replaceState.bind(history);
                window.count = 0;
                history.replaceState = (...given) => { window.count += 1; replace(...given); };
            }"""
        )
        for _ in range(60):
            page.keyboard.press("ArrowRight")
            page.keyboard.press("ArrowLeft")
        page.keyboard.press("ArrowDown")
        assert link(page) == "#head=2.0"
        assert 1 <= page.evaluate("window.count") <= 10  # of 120 changes


HELD = """
    const real = window.setTimeout;
    window.setTimeout = (work, wait, ...rest) => {
        if (wait !== 300) return real(work, wait, ...rest);
        window.held = work;
        return 0;
    };
"""


def test_a_link_followed_just_when_the_address_is_written_is_not_lost(chromium, path):
    prepared = {"prepare": lambda page: page.add_init_script(HELD), "fragment": "#head=1.0"}
    with open_page(chromium, path, **prepared) as page:
        shows(page, "1.0")
        page.keyboard.press("ArrowRight")
        shows(page, "1.1")
        # the address is due to be written; the browser tells of the new one only after that
        page.evaluate("() => { location.hash = '#head=2.5'; window.held(); }")
        shows(page, "2.5")
