"""Words, special tokens and norms: what can be switched, and what a page does that has no choice."""

import dataclasses

import pytest
import torch
from playwright.sync_api import expect

from headlens.view.maps import AttentionMaps
from support import toys
from support.viewers import TEXT, controls, grid, shows, tokens, viewing


def test_switching_shows_other_tokens_and_says_what_was_done(chromium, tmp_path):
    maps = toys.minilm().attention(TEXT)
    with viewing(chromium, tmp_path, maps, fragment="#pin=q2") as page:
        about = page.locator(".hl-about")
        page.get_by_role("combobox", name="Show").select_option("words")
        assert tokens(page, "q") == tokens(page, "k") == list(maps.to_words().tokens)
        expect(about).to_contain_text("the sum to a word's pieces, the mean from them")
        assert page.locator(".hl-own").count() == 0  # what was pinned is no longer a place
        page.get_by_label("Special tokens").uncheck()
        assert tokens(page, "q") == list(maps.to_words().drop_special().tokens)
        expect(about).to_contain_text("rows are not renormalised")
        page.get_by_role("combobox", name="Show").select_option("tokens")
        assert tokens(page, "q") == list(maps.drop_special().tokens)
        page.get_by_role("combobox", name="Measure").select_option("norms")
        peak = max(float(pattern.max()) for pattern in maps.to_norms().patterns.values())
        expect(about).to_contain_text(f"full colour is {peak:#.3g}.")


def test_maps_of_words_are_words_and_nothing_else(chromium, tmp_path):
    maps = toys.minilm().attention(TEXT).to_words()
    with viewing(chromium, tmp_path, maps) as page:
        assert set(controls(page)) == {"heads", "special", "sort", "shape", "least", "theme"}
        for key in "wn":  # there are no tokens, and no norms
            page.keyboard.press(key)
            assert tokens(page, "q") == list(maps.tokens)
        page.keyboard.press("s")
        assert tokens(page, "q") == list(maps.drop_special().tokens)


def test_maps_without_special_tokens_have_no_switch_for_them(chromium, tmp_path):
    maps = toys.minilm().attention(TEXT).drop_special()
    with viewing(chromium, tmp_path, maps, fragment="#special=1") as page:
        assert set(controls(page)) == {"heads", "unit", "lens", "sort", "shape", "least", "theme"}
        expect(page.locator(".hl-about")).to_contain_text("Special tokens are left out")
        page.keyboard.press("s")
        assert tokens(page, "q") == list(maps.tokens)


def test_texts_of_several_kinds(chromium, tmp_path):
    """What a text has no choice of cannot be switched, and stays where it is."""
    maps = toys.random_maps(["[CLS]", "the", "dog", "[SEP]"])
    texts = [("whole", maps), ("words", maps.to_words()), ("bare", maps.drop_special())]
    with viewing(chromium, tmp_path, texts) as page:
        for index, fixed in enumerate([set(), {"unit"}, {"special"}]):
            page.select_option("[name=text]", str(index))
            shown = controls(page)
            assert {name for name, value in shown.items() if value is None} == fixed
            assert page.locator("header p").inner_text() == "3 texts"
        assert tokens(page, "q") == ["the", "dog"]


def test_one_head_needs_no_overview(chromium, tmp_path):
    maps = toys.random_maps(["a", "b", "c"], 2, 2).select("1.1")
    with viewing(chromium, tmp_path, maps) as page:
        assert page.title() == "toy: attention of head 1.1"
        assert "sort" not in controls(page)
        assert grid(page) == ["1.1"]
        for key in ("ArrowDown", "ArrowUp", "ArrowLeft", "ArrowRight"):
            page.keyboard.press(key)
        shows(page, "1.1")


def test_a_causal_model(chromium, tmp_path):
    maps = toys.family("gpt2").attention(toys.SOURCE)
    with viewing(chromium, tmp_path, maps, fragment="#shape=heatmap") as page:
        page.keyboard.press("v")
        page.locator(".hl-q .hl-token").first.hover()  # the first token sees itself alone
        expect(page.locator(".hl-list li").first).to_contain_text("the 0 1.000 ±")
        widths = page.locator(".hl-k .hl-bars i").evaluate_all(
            "all => all.map((bar) => parseFloat(bar.style.width))"
        )
        assert widths == [100] + [0] * (len(maps.tokens) - 1)


@pytest.mark.parametrize("special", ["1", "0"])
def test_only_special_tokens(chromium, tmp_path, special):
    with viewing(
        chromium, tmp_path, toys.random_maps(["[CLS]", "[SEP]"]), fragment=f"#special={special}"
    ) as page:
        assert tokens(page, "q") == ["[CLS]", "[SEP]"]  # without them nothing would be left
        page.keyboard.press("s")
        page.keyboard.press("v")
        page.keyboard.press("v")
        assert tokens(page, "k") == ["[CLS]", "[SEP]"]
        assert controls(page)["special"] is True


def test_one_token(chromium, tmp_path):
    with viewing(chromium, tmp_path, toys.random_maps(["dog"])) as page:
        page.keyboard.press("j")
        expect(page.locator(".hl-list li")).to_have_text("dog 0 1.000 ± 0.003")
        page.keyboard.press("v")
        expect(page.locator(".hl-map")).to_be_visible()


def test_norms_of_nothing(chromium, tmp_path):
    """Where no key hands anything over there is nothing to see, and nothing divides by it."""
    maps = toys.random_maps(["a", "b"])
    site = maps.sites[0]
    maps = dataclasses.replace(maps, norms={site: torch.zeros(1, 2)})
    with viewing(chromium, tmp_path, maps, fragment="#lens=norms&pin=q0") as page:
        assert [text.split(" ")[2] for text in page.locator(".hl-list li").all_inner_texts()] == [
            "0.0000000"
        ] * 2


def test_a_head_that_is_not_in_every_text(chromium, tmp_path):
    both = toys.random_maps(["a", "b"], 1, 2)
    texts: list[tuple[str, AttentionMaps]] = [("one", both), ("other", both.select("0.1"))]
    with viewing(chromium, tmp_path, texts, fragment="#head=0.0") as page:
        page.select_option("[name=text]", "1")
        shows(page, "0.1")
        assert grid(page) == ["0.1"]
        page.select_option("[name=text]", "0")
        assert grid(page) == ["0.0", "0.1"]
