"""For every reader: names of controls, contrast, larger letters, narrow windows, light and dark."""

import itertools

import pytest

from headlens.report.canvas import luminance
from headlens.runs.read import Marks
from support import toys
from support.viewers import TEXT, viewing

MAPS = toys.random_maps(["[CLS]", "the", "dog", "barks", "unaccountably", "[SEP]"], 2, 12)
MARKS = Marks({MAPS.heads[0]: ["broad"]}, {MAPS.heads[0]: 0.5}, "gradient")


def test_every_control_has_a_name(chromium, tmp_path):
    maps = toys.minilm().attention(TEXT)
    texts = [("one", maps), ("other", maps)]
    with viewing(chromium, tmp_path, texts, Marks({}, {maps.heads[0]: 1.0}, "gradient")) as page:
        lists = ["Text", "Head", "Show", "Measure", "Sort by", "Draw", "Hide lines under", "Theme"]
        assert page.get_by_role("combobox").count() == len(lists)
        for name in lists:
            assert page.get_by_role("combobox", name=name, exact=True).count() == 1
        assert page.get_by_role("checkbox", name="Special tokens", exact=True).count() == 1
        buttons = page.get_by_role("button")
        named = buttons.evaluate_all(
            "all => all.map((b) => b.getAttribute('aria-label') || b.textContent.trim())"
        )
        assert len(named) == 72 + 2 * len(maps.tokens)
        assert all(named)
        for name in ("Overview of heads", "The chosen head"):
            assert page.get_by_role("region", name=name).count() == 1
        for name in ("Queries: the tokens that look", "Keys: the tokens that are looked at"):
            assert page.get_by_role("list", name=name).count() == 1
        page.keyboard.press("v")
        size = f"{len(maps.tokens)} queries by {len(maps.tokens)} keys"
        assert page.get_by_role("img", name=f"Weights of head 0.0: {size}").count() == 1
        assert page.get_by_role("status").count() == 1


def contrast(one, other):
    light, dark = sorted((luminance(one), luminance(other)), reverse=True)
    return (light + 0.05) / (dark + 0.05)


def hexadecimal(colour):
    """A colour as the browser computes it, as #rrggbb."""
    red, green, blue = (int(part) for part in colour[colour.index("(") + 1 : -1].split(",")[:3])
    return f"#{red:02x}{green:02x}{blue:02x}"


@pytest.mark.parametrize("dark", [False, True])
def test_contrast(chromium, tmp_path, dark):
    with viewing(chromium, tmp_path, MAPS, MARKS, dark=dark) as page:
        names = ["--hl-paper", "--hl-panel", "--hl-pointed", "--hl-ink", "--hl-soft", "--hl-accent"]
        colours = page.locator("#viewer").evaluate(
            "(root, names) => names.map((name) => getComputedStyle(root).getPropertyValue(name).trim())",
            names,
        )
        paper, panel, pointed, ink, soft, accent = colours
        assert (luminance(paper) < 0.1) == dark
        for ground in (paper, panel, pointed):
            assert contrast(ink, ground) >= 4.5
        for ground in (paper, panel):
            assert contrast(soft, ground) >= 4.5
        assert contrast(accent, paper) >= 3  # lines that show the focus
        for part in (
            "header",
            ".hl-about",
            ".hl-hint",
            ".hl-number",
            "h2",
            ".hl-facts",
            ".hl-chip",
            "select",
        ):
            text = page.locator(part).first.evaluate("part => getComputedStyle(part).color")
            ground = page.locator(part).first.evaluate(
                """part => {
                    const clear = "rgba(0, 0, 0, 0)";
                    const ground = () => getComputedStyle(part).backgroundColor;
                    while (part.parentElement && ground() === clear) part = part.parentElement;
                    return ground();
                }"""
            )
            assert contrast(hexadecimal(text), hexadecimal(ground)) >= 4.5


@pytest.mark.parametrize("dark", [False, True])
def test_the_theme_follows_the_system_until_one_is_chosen(chromium, tmp_path, dark):
    def paper(page):
        grounds = page.evaluate(
            """[document.documentElement, document.getElementById('viewer')]
                .map((e) => getComputedStyle(e).backgroundColor)"""
        )
        assert grounds[0] == grounds[1]
        return luminance(hexadecimal(grounds[0])) < 0.1

    with viewing(chromium, tmp_path, MAPS, dark=dark) as page:
        assert paper(page) == dark
        for theme in ("light", "dark"):
            page.select_option("[name=theme]", theme)
            assert paper(page) == (theme == "dark")
            assert page.locator("[name=theme]").evaluate("e => getComputedStyle(e).colorScheme") == theme
        page.select_option("[name=theme]", "auto")
        assert paper(page) == dark
        page.emulate_media(color_scheme="light" if dark else "dark")  # at dusk
        assert paper(page) != dark


def rows(page):
    boxes = page.locator(".hl-q .hl-token").evaluate_all(
        """all => all.map((token) => {
            const box = token.getBoundingClientRect();
            return [box.top, box.bottom, parseFloat(getComputedStyle(token).fontSize)];
        })"""
    )
    assert all(above[1] <= below[0] + 0.5 for above, below in itertools.pairwise(boxes))
    return boxes


def test_letters_twice_as_large(chromium, tmp_path):
    with viewing(chromium, tmp_path, MAPS, MARKS, fragment="#pin=q1") as page:
        before = rows(page)
        labels = page.locator("[name=theme]").bounding_box()["height"]
        page.evaluate("document.documentElement.style.fontSize = '200%'")
        after = rows(page)
        assert [row[2] for row in after] == [2 * row[2] for row in before]
        assert after[0][1] - after[0][0] == pytest.approx(2 * (before[0][1] - before[0][0]), abs=2)
        assert page.locator("[name=theme]").bounding_box()["height"] > 1.5 * labels
        assert page.evaluate("document.scrollingElement.scrollWidth <= document.scrollingElement.clientWidth")
        token = page.locator(".hl-q .hl-token").nth(4)
        assert token.evaluate("e => e.scrollHeight <= e.clientHeight + 1")  # nothing is cut off


@pytest.mark.parametrize("fragment", ["", "#shape=heatmap&pin=q1", "#sort=tag&pin=k2&head=0.0,0.1,0.2,1.4"])
def test_no_window_is_too_narrow(chromium, tmp_path, fragment):
    with viewing(chromium, tmp_path, MAPS, MARKS, fragment=fragment) as page:
        for width in (400, 700, 961, 1300):
            page.set_viewport_size({"width": width, "height": 900})
            page.wait_for_timeout(150)
            root = "document.scrollingElement"
            wide, room = page.evaluate(f"[{root}.scrollWidth, {root}.clientWidth]")
            assert wide <= room == width
            if "heatmap" not in fragment:  # both columns are in view
                assert page.locator(".hl-lines").evaluate("e => e.scrollWidth <= e.clientWidth")


def test_long_tokens_are_shortened_but_not_in_the_readout(chromium, tmp_path):
    word = "un" * 60
    with viewing(chromium, tmp_path, toys.random_maps([word, "a"]), width=400) as page:
        assert page.locator(".hl-lines").evaluate("e => e.scrollWidth <= e.clientWidth")
        page.keyboard.press("j")
        assert page.locator(".hl-own").inner_text() == word
        assert page.evaluate("document.scrollingElement.scrollWidth") <= 400
