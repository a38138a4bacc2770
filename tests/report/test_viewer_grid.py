"""All heads as small pictures: named, chosen, coloured and sorted."""

import numpy as np
import pytest
from matplotlib.colors import to_rgb
from playwright.sync_api import expect

from headlens.model.heads import Head
from headlens.report.canvas import style_of
from headlens.runs.read import Marks
from headlens.scoring.scorers import SCORERS
from support import toys
from support.viewers import chosen, controls, grid, shows, tokens, viewing

TOKENS = ["[CLS]", "the", "dog", "barks", "[SEP]"]
MAPS = toys.random_maps(TOKENS, 3, 4)
NAMES = [f"{layer}.{head}" for layer in range(3) for head in range(4)]
TAGS = {
    Head("encoder", 0, 1): ["broad"],
    Head("encoder", 1, 0): ["positional", "syntactic"],
    Head("encoder", 2, 3): ["syntactic"],
    Head("encoder", 2, 1): ["mine"],
    Head("encoder", 0, 3): ["positional"],
}
IMPORTANCE = dict(zip(MAPS.heads, np.sin(np.arange(11)), strict=False))
MARKS = Marks(TAGS, IMPORTANCE | {MAPS.heads[2]: float("nan")}, "gradient")


def entropy(name):
    weights = MAPS.pattern(MAPS.heads[NAMES.index(name)]).double().numpy()
    return float(-(weights * np.log(weights)).sum(-1).mean())


def label(name):
    head = MAPS.heads[NAMES.index(name)]
    value = MARKS.importance.get(head, np.nan)
    said = [
        f"Head {name}",
        ", ".join(TAGS.get(head, ["no tag"])),
        f"entropy {entropy(name):.2f} nats (all tokens)",
    ]
    return said if np.isnan(value) else [*said, f"importance {value:#.3g} (gradient)"]


def test_every_head_is_there_and_says_what_is_known_of_it(chromium, tmp_path):
    with viewing(chromium, tmp_path, MAPS, MARKS) as page:
        assert grid(page) == NAMES
        said = page.get_by_role("group", name="All heads").get_by_role("button")
        assert said.count() == len(NAMES)
        for name in NAMES:
            button = page.locator(f"[data-head='{name}']")
            parts = button.get_attribute("aria-label").split("; ")
            assert parts[:3] == label(name)[:3]
            assert len(parts) == len(label(name))
            if len(parts) == 4:
                shown = float(parts[3].removeprefix("importance ").removesuffix(" (gradient)"))
                assert shown == pytest.approx(float(label(name)[3].split()[1]), rel=1e-6)


def by(key):
    return sorted(NAMES, key=key)


def importance(name):
    value = MARKS.importance.get(MAPS.heads[NAMES.index(name)], float("nan"))
    return float("inf") if np.isnan(value) else -value


def tag(name):
    ranks = [*SCORERS, "mine"]
    tags = TAGS.get(MAPS.heads[NAMES.index(name)])
    return ranks.index(tags[0]) if tags else len(ranks)


def test_sorting(chromium, tmp_path):
    with viewing(chromium, tmp_path, MAPS, MARKS) as page:
        for order, key in (("entropy", entropy), ("importance", importance), ("tag", tag)):
            page.select_option("[name=sort]", order)
            assert grid(page) == by(key) != NAMES
            assert page.locator(".hl-cell .hl-name").all_inner_texts() == by(key)
        page.select_option("[name=sort]", "layer")
        assert grid(page) == NAMES
    with viewing(chromium, tmp_path, MAPS, Marks(TAGS)) as page:
        options = page.locator("[name=sort] option").all_inner_texts()
        assert options == ["layer", "entropy", "tag"]
    with viewing(chromium, tmp_path, MAPS) as page:
        assert page.locator("[name=sort] option").all_inner_texts() == ["layer", "entropy"]


def test_tags_are_chips_in_their_colours_and_the_legend_names_them(chromium, tmp_path):
    with viewing(chromium, tmp_path, MAPS, MARKS, fragment="#head=1.0") as page:
        for head, tags in TAGS.items():
            chips = page.locator(f"[data-head='{MAPS.name(head)}'] .hl-chip")
            known = [style_of(tag).letter for tag in tags]
            assert chips.all_inner_texts() == known
        positional = page.locator("[data-head='1.0'] .hl-chip").first
        colour = positional.evaluate("chip => getComputedStyle(chip).backgroundColor")
        wanted = tuple(round(255 * part) for part in to_rgb(style_of("positional").colour))
        assert colour == f"rgb{wanted}"
        legend = page.locator(".hl-legend .hl-key").all_inner_texts()
        assert legend == ["P positional", "S syntactic", "B broad", "m mine"]
        title = page.locator("h2").inner_text().replace("\n", " ")
        assert title.startswith("Layer 1, head 0")
        assert page.locator("h2 .hl-key").all_inner_texts() == ["P positional", "S syntactic"]


def test_a_click_chooses_and_with_shift_or_control_adds_in_another_colour(chromium, tmp_path):
    with viewing(chromium, tmp_path, MAPS) as page:
        page.locator("[data-head='1.2']").click()
        shows(page, "1.2")
        page.locator("[data-head='2.0']").click(modifiers=["Shift"])
        page.locator("[data-head='0.3']").click(modifiers=["Control"])
        shows(page, "1.2", "2.0", "0.3")
        assert chosen(page) == ["0.3", "1.2", "2.0"]
        colours = page.locator("h2 .hl-swatch").evaluate_all(
            "all => all.map((one) => getComputedStyle(one).backgroundColor)"
        )
        assert len(set(colours)) == 3
        assert [name.strip() for name in page.locator("h2 .hl-named").all_inner_texts()] == [
            "1.2",
            "2.0",
            "0.3",
        ]
        borders = [
            page.locator(f"[data-head='{name}']").evaluate("cell => getComputedStyle(cell).borderTopColor")
            for name in ("1.2", "2.0", "0.3")
        ]
        page.mouse.move(0, 0)
        assert borders[:2] == colours[:2]  # the third is under the pointer
        page.locator("[data-head='1.2']").click(modifiers=["Shift"])
        shows(page, "2.0", "0.3")
        page.locator("[data-head='0.0']").click()
        shows(page, "0.0")
        page.locator("[data-head='0.0']").click(modifiers=["Shift"])  # one always stays
        shows(page, "0.0")
        assert chosen(page) == ["0.0"]


def test_no_more_heads_than_colours(chromium, tmp_path):
    with viewing(chromium, tmp_path, MAPS) as page:
        for name in NAMES[1:10]:
            page.locator(f"[data-head='{name}']").click(modifiers=["Shift"])
        shows(page, *NAMES[:7])
        assert chosen(page) == NAMES[:7]


def test_heads_of_another_stack_have_other_tokens_and_are_not_shown_beside(chromium, tmp_path):
    maps = toys.family("t5").attention(toys.SOURCE, target=toys.TARGET)
    with viewing(chromium, tmp_path, maps) as page:
        assert page.locator(".hl-grid h3").all_inner_texts() == ["encoder", "decoder", "cross"]
        page.locator("[data-head='cross.1.2']").click()
        shows(page, "cross.1.2")
        expect(page.locator("h2")).to_contain_text("Cross, layer 1, head 2")
        page.locator("[data-head='encoder.0.0']").click(modifiers=["Shift"])
        assert chosen(page) == ["cross.1.2"]
        assert tokens(page, "q") == ["<pad>", *toys.TARGET.split()]
        assert tokens(page, "k") == [*toys.SOURCE.split(), "</s>"]


def test_the_list_of_heads_chooses_too(chromium, tmp_path):
    with viewing(chromium, tmp_path, MAPS) as page:
        page.get_by_role("combobox", name="Head", exact=True).select_option("2.3")
        shows(page, "2.3")
        assert chosen(page) == ["2.3"]
        assert controls(page)["heads"] == "2.3"
