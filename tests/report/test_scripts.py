"""Text of any script, and hostile text, in figures and tables."""

import xml.etree.ElementTree as ElementTree

import numpy as np
import pandas as pd
import pytest

from headlens.report.canvas import BASE, InchFigure, families_for, figure_bytes, text_size
from headlens.util.files import write_csv
from support import toys
from support.pictures import pixels
from support.real import CI

HOSTILE = [
    "<script>alert(1)</script>", "a<b<c", "</textarea>", "&lt;", '"onload=', "=1+1", "a\0b", "\ud800", "$x$",
    "]]>",
]  # fmt: skip


def fonts_for(text):
    """Fonts that have a text; without them the test skips, but never in CI."""
    with pytest.MonkeyPatch.context() as patch:
        missing = []
        patch.setattr("headlens.report.canvas._warn", missing.append)
        families = families_for([text])
    if missing and not CI:
        pytest.skip(f"no installed font has {text}")
    assert not missing
    return families


def drawn(text):
    figure = InchFigure(2, 0.5, fonts_for(text))
    figure.write(0.1, 0.1, text, 12)
    return pixels(figure)


def test_arabic_letters_are_joined():
    families = fonts_for("كتاب")
    apart = sum(text_size([letter], 12, families)[0] for letter in "كتاب")
    assert text_size(["كتاب"], 12, families)[0] < 0.9 * apart


@pytest.mark.parametrize("word", ["שלום", "אב"])
def test_right_to_left_words_run_from_right_to_left(word):
    backwards = "".join(reversed(word))
    as_written = f"\u202d{backwards}\u202c"  # the same signs, forced to run from left to right
    assert np.array_equal(drawn(word), drawn(as_written))
    assert not np.array_equal(drawn(word), drawn(backwards))


def test_a_hindi_vowel_stands_before_its_consonant():
    families = fonts_for("कि")
    both = text_size(["कि"], 24, families)[0]
    assert (
        both < text_size(["क"], 24, families)[0] + 0.9 * text_size(["ि"], 24, families)[0]
    )  # no dotted circle


def test_a_japanese_sentence_is_drawn_with_glyphs_of_a_font_that_has_them(recwarn):
    sentence = "蒔絵師は硯箱にひびが入ったと気づき、それを棚へ戻した。"
    families = fonts_for(sentence)
    assert families[0] == BASE
    assert len(families) > 1
    toys.random_maps(list(sentence)).heatmap()
    assert not recwarn.list


@pytest.mark.parametrize("text", HOSTILE)
def test_hostile_text_in_an_svg_is_text(text):
    maps = toys.random_maps([text, "b", text])
    content = figure_bytes(maps.heatmap(title=f"model {text}"), ".svg")
    root = ElementTree.fromstring(content)
    names = {node.tag.rpartition("}")[2] for node in root.iter()}
    assert names.isdisjoint({"script", "foreignObject", "textarea", "iframe"})
    assert not any(name.lower().startswith("on") for node in root.iter() for name in node.attrib)
    said = ["".join(node.itertext()) for node in root.iter() if node.tag.endswith("}text")]
    visible = {"a\0b": "a<00>b", "\ud800": "<U+D800>"}.get(text, text)
    shown = visible if len(visible) <= 20 else visible[:19] + "\u2026"
    assert said.count(shown) == 4  # twice along each side
    assert f"model {visible}" in " ".join(said)


def test_hostile_text_in_a_table(tmp_path):
    frame = pd.DataFrame({"token": [text for text in HOSTILE if text != "\ud800"]})
    write_csv(frame, tmp_path / "a.csv")
    back = pd.read_csv(tmp_path / "a.csv", keep_default_na=False)["token"].tolist()
    assert [text.lstrip("'") for text in back] == frame["token"].tolist()
    assert not any(text.startswith(("=", "+", "-", "@")) for text in back)
