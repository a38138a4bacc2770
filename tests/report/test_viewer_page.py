"""The viewer as a file: alone, off the network, and honest about what is left out."""

import re

import pytest
from playwright.sync_api import expect

from headlens.errors import InputError, SelectorError
from headlens.report import viewer as made
from support import toys
from support.viewers import chosen, controls, grid, shows, tokens, viewing

TOKENS = ["[CLS]", "the", "dog", "barks", "[SEP]"]


def test_one_file_that_asks_for_nothing(chromium, tmp_path):
    maps = toys.random_maps(TOKENS, 2, 3)
    page = maps.to_html()
    assert not re.search(r"https?://|//\w+\.\w+/|@import|url\(", page)
    assert not re.search(r"<(link|img|iframe|object|embed|base)\b|\bsrc=", page)
    with viewing(chromium, tmp_path, maps) as shown:  # off the network, and nothing may be asked for
        assert shown.title() == "toy: attention of 6 heads"
        assert tokens(shown, "q") == tokens(shown, "k") == TOKENS


def test_only_the_pages_own_script_runs(chromium, tmp_path):
    maps = toys.random_maps(TOKENS)
    told = []
    path = tmp_path / "changed.html"
    path.write_text(maps.to_html().replace("</body>", "<script>document.title = 'changed'</script></body>"))
    context = chromium.new_context(offline=True)
    try:
        page = context.new_page()
        page.on("console", lambda said: told.append(said.text))
        page.goto(path.as_uri())
        shows(page)
        assert page.title() == "toy: attention of head 0.0"
        assert page.evaluate("fetch('https://example.org').then(() => 'came', () => 'refused')") == "refused"
    finally:
        context.close()
    refused = [text for text in told if "Content Security Policy" in text]
    assert any("inline script" in text for text in refused)
    assert any("connect" in text.lower() for text in refused)


def test_a_page_without_javascript_says_so(chromium, tmp_path):
    path = tmp_path / "plain.html"
    toys.random_maps(TOKENS).to_html(path)
    context = chromium.new_context(java_script_enabled=False)
    try:
        page = context.new_page()
        page.goto(path.as_uri())
        expect(page.locator("main")).to_have_text("Opening the maps; this needs JavaScript.")
        expect(page.locator("header p")).to_have_text(" ".join(TOKENS))
    finally:
        context.close()


def test_heads_that_do_not_fit_are_left_out_and_named(chromium, tmp_path):
    maps = toys.random_maps(TOKENS, 2, 3)
    sizes = [len(text) for text in made.viewer_data([("", maps)])["texts"][0]["maps"].values()]
    room = sum(sizes[:4])
    with viewing(chromium, tmp_path, maps, most_bytes=room, fragment="#head=1.2") as page:
        expect(page.locator(".hl-notes p")).to_have_text(
            "2 of 6 heads are left out, from 1.1 on: their weights would make the page too large. "
            "Choose heads (--heads), or give a shorter text."
        )
        assert grid(page) == ["0.0", "0.1", "0.2", "1.0"]
        assert chosen(page) == ["0.0"]  # 1.2, which the link asks for, is not there
        options = page.locator("[name=heads] option")
        assert options.evaluate_all("all => all.filter((o) => o.disabled).map((o) => o.value)") == [
            "1.1",
            "1.2",
        ]
        page.locator("[data-head='0.2']").click()
        page.keyboard.press("ArrowDown")  # to the nearest head that is there
        shows(page, "1.0")
        page.keyboard.press("ArrowRight")
        page.keyboard.press("ArrowDown")
        shows(page, "1.0")


def test_one_head_there_always_is(chromium, tmp_path):
    with viewing(chromium, tmp_path, toys.random_maps(TOKENS, 2, 3), most_bytes=1) as page:
        assert grid(page) == ["0.0"]
        expect(page.locator(".hl-notes p")).to_contain_text("5 of 6 heads are left out, from 0.1 on")
        assert tokens(page, "k") == TOKENS


def test_tokens_beyond_the_cap_are_left_out_and_counted(chromium, tmp_path, monkeypatch):
    monkeypatch.setattr(made, "MOST_TOKENS", 3)
    with viewing(chromium, tmp_path, toys.random_maps(TOKENS)) as page:
        expect(page.locator(".hl-notes p")).to_have_text("Only the first 3 of 5 tokens are shown.")
        assert tokens(page, "q") == tokens(page, "k") == TOKENS[:3]
        page.keyboard.press("v")
        assert (
            page.locator(".hl-map")
            .get_attribute("aria-label")
            .startswith("Weights of head 0.0: 3 queries by 3")
        )


def test_nothing_is_said_where_nothing_is_left_out(chromium, tmp_path):
    with viewing(chromium, tmp_path, toys.random_maps(TOKENS)) as page:
        assert page.locator(".hl-notes p").count() == 0


def test_what_is_shown_first(chromium, tmp_path):
    maps = toys.random_maps(TOKENS, 2, 3)
    start = {"heads": "1.*,0.2", "unit": "words", "special": False, "shape": "heatmap", "sort": "entropy"}
    with viewing(chromium, tmp_path, maps, start=start | {"pin": "q1"}) as page:
        assert set(chosen(page)) == {"1.0", "1.1", "1.2", "0.2"}
        shown = controls(page)
        assert [shown[n] for n in ("unit", "special", "shape", "sort")] == [
            "words",
            False,
            "heatmap",
            "entropy",
        ]
        expect(page.locator(".hl-own")).to_have_text("dog")
    assert '"heads":["0.1","1.1"]' in maps.to_html(heads=["0.1", maps.heads[4]])


@pytest.mark.parametrize(
    ("start", "message"),
    [
        ({"unit": "letters"}, "Expected 'tokens' or 'words' for unit, got 'letters'. Give one of those."),
        ({"pin": 3}, "Expected 'q' or 'k' and a number for pin, got 3. Give one of those."),
        ({"text": -1}, "Expected a number from 0 for text, got -1. Give one of those."),
        (
            {"colour": "red"},
            "The page has no setting 'colour'. It has: unit, special, lens, sort, shape, least, theme, "
            "heads, pin, text.",
        ),
    ],
)
def test_settings_that_there_are_not(start, message):
    with pytest.raises(InputError) as error:
        toys.random_maps(TOKENS).to_html(**start)
    assert str(error.value) == message


def test_heads_that_there_are_not():
    with pytest.raises(SelectorError):
        toys.random_maps(TOKENS).to_html(heads="7.7")
