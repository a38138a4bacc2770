"""Which fonts are chosen and named for the scripts of the world."""

from __future__ import annotations

import warnings
from dataclasses import replace
from xml.etree import ElementTree

import pandas as pd
import pytest

from headlens.ablation.plan import Condition
from headlens.report import canvas as fonts
from headlens.report import canvas as scripts
from headlens.report.ablation_figures import figures
from headlens.report.canvas import (
    HeadlensWarning,
    families_for,
    figure_bytes,
    han_variant,
    not_shaped,
    packages_for,
    text_size,
)
from headlens.report.heatmaps import label
from headlens.report.tag_figures import draw_all, tag_map_figure
from support import scored, toys
from support.pictures import assert_readable
from support.real import CI
from support.sweeps import heads_of, sweep_of

SENTENCE = "蒔絵師は硯箱にひびが入ったと気づき、それを棚へ戻した。"
ARABIC = (
    "قال الكاتب إن الكتاب الجديد الذي نشره في المدينة القديمة قرب النهر يصف حياة الناس هناك في ذلك الوقت كما"
)


def need(text):
    """Fonts that have a text; without them the test skips, but never in CI."""
    with warnings.catch_warnings(record=True) as noted:
        warnings.simplefilter("always")
        families = families_for([text])
    if noted and not CI:
        pytest.skip(f"no installed font has {text}: apt install {' '.join(packages_for(text))}")
    assert not noted
    return families


@pytest.fixture
def no_fonts(monkeypatch):
    monkeypatch.setattr(fonts, "_candidates", list)


@pytest.mark.parametrize(
    ("text", "packages"),
    [
        (SENTENCE, ("fonts-noto-cjk",)),
        ("한국어", ("fonts-noto-cjk",)),
        ("हिन्दी", ("fonts-noto-core",)),
        ("አማርኛ", ("fonts-noto-core",)),
        ("😀🎉", ("fonts-symbola",)),
        ("\U000f1234", ("fonts-noto",)),
        ("漢😀ह", ("fonts-noto-cjk", "fonts-noto-core", "fonts-symbola")),
    ],
)
def test_packages_that_have_a_script(text, packages):
    assert packages_for(text) == packages


@pytest.mark.parametrize(("ending", "selector"), [(".png", "0.0"), (".svg", "*.*"), (".pdf", "0.0")])
def test_without_fonts_there_is_one_warning_that_names_the_package(no_fonts, ending, selector):
    maps = toys.random_maps(["蒔", "絵", "師", "は", "硯", "箱"], 1, 2)
    with warnings.catch_warnings(record=True) as noted:
        warnings.simplefilter("always")
        figure_bytes(maps.heatmap(selector), ending)
    assert [(one.category, str(one.message)) for one in noted] == [
        (
            HeadlensWarning,
            "6 characters are in no installed font and will be drawn as boxes (は 師 硯 箱 絵 蒔). Install a "
            "font that has them, on Debian or Ubuntu for example: apt install fonts-noto-cjk",
        )
    ]


@pytest.mark.parametrize(
    ("text", "variant"), [("漢字かな", "JP"), ("カナ", "JP"), ("한국어", "KR"), ("汉字", "SC"), ("abc", "SC")]
)
def test_chinese_characters_are_drawn_as_the_text_is_written(text, variant):
    assert han_variant(text) == variant


@pytest.mark.parametrize("text", [SENTENCE, "한국어", "汉字"])
def test_the_font_is_that_of_the_language(text):
    chosen = need(text)[1]
    if "CJK" not in chosen:
        pytest.skip(f"{chosen} is no font with variants")
    assert chosen.endswith(f"CJK {han_variant(text)}")


def test_emoji_are_drawn_with_a_font_in_black_and_white():
    families = need("😀🎉")
    assert text_size(["😀"], 12, families)[0] > 0.1
    toys.random_maps(["😀", "🎉", "ok"]).heatmap()  # a warning would be an error


def test_an_older_matplotlib_says_which_scripts_it_does_not_shape(monkeypatch):
    texts = ["abc", "عربي", "हिन्दी", "漢字"]
    monkeypatch.delattr(scripts.ft2font, "__libraqm_version__", raising=False)
    assert not_shaped(texts) == ("Arabic", "Indic")
    assert not_shaped(["abc é 漢字"]) == ()
    with pytest.warns(HeadlensWarning) as noted:
        families_for(["عربي"])
    assert [str(one.message) for one in noted] == [
        "This matplotlib draws Arabic letter by letter, unjoined and from left to right. Install matplotlib "
        "3.11 or newer."
    ]


def test_this_matplotlib_shapes():
    if not hasattr(scripts.ft2font, "__libraqm_version__"):
        pytest.skip("this matplotlib was built without libraqm")
    assert not_shaped(["عربي"]) == ()


def test_arabic_in_a_title_is_joined_as_well():
    families = need("عربي")
    apart = sum(text_size([part], 12, families)[0] for part in ["minilm: ", *"عربي"])
    assert text_size(["minilm: عربي"], 12, families)[0] < 0.97 * apart


@pytest.mark.parametrize("heads", [1, 2])
def test_24_pieces_from_right_to_left(heads):
    pieces = [*ARABIC.split(), "##ية", "عربي.", "שלום", "(هنا)"]
    need("".join(pieces))
    assert len(pieces) == 24
    figure = toys.random_maps(pieces, 1, heads).heatmap(title="minilm: عربي")
    assert_readable(figure)
    written = [
        "".join(node.itertext())
        for node in ElementTree.fromstring(figure_bytes(figure, ".svg")).iter()
        if node.tag.endswith("}text")
    ]
    assert all(written.count(piece) >= 2 for piece in pieces)  # as it is stored: the reader turns it round
    assert "minilm: عربي" in written


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("कि" * 12, "कि" * 9 + "…"),
        ("e\u0301" * 12, "e\u0301" * 9 + "…"),
        ("a" * 21, "a" * 19 + "…"),
        ("ab" + "\u0301" * 30, "a…"),
    ],
)
def test_a_label_is_cut_between_letters(text, shown):
    assert label(text) == shown


HOSTILE = ["<script>alert(1)</script>", "a<b<c", "&lt;", '"onload=', "=1+1", "a\0b", "$x$", "]]>", "\0"]


@pytest.mark.parametrize("text", HOSTILE)
def test_hostile_names_of_tags(text):
    tags = scored.tag_rows(1, 2, tags={("encoder", 0, 1): [text]})
    assert_harmless(tag_map_figure(pd.DataFrame({"tag": [text]}), tags, "toy"))
    one = Condition(f"tag {text}", tuple(heads_of(1, 2)), tag=text)
    assert_harmless(next(figures(sweep_of("tags", [one], [0.1], [0.01])))[1])


@pytest.mark.parametrize("text", [*HOSTILE, "\ud800", "</textarea>"])
def test_hostile_names_of_models_and_benchmarks(text):
    tags = scored.mixed(1, 2)
    for name, figure in draw_all(scored.everything(tags), tags, text):
        assert_harmless(figure, (".pdf", ".png") if name == "tags" else ())  # the name is in the same place
    about = {"benchmark": {"name": text, "examples": 2}}
    sweep = sweep_of("layer", [Condition("layer 0", tuple(heads_of(1, 2)))], [0.1], [0.01])
    assert_harmless(next(figures(replace(sweep, run=about)))[1])


def assert_harmless(figure, endings=(".pdf", ".png")):
    root = ElementTree.fromstring(figure_bytes(figure, ".svg"))
    names = {node.tag.rpartition("}")[2] for node in root.iter()}
    assert names.isdisjoint({"script", "foreignObject", "iframe"})
    assert not any(name.lower().startswith("on") for node in root.iter() for name in node.attrib)
    for ending in endings:
        figure_bytes(figure, ending)
