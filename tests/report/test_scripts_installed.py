"""Fonts that are there, that come later, that cannot be read, and characters that none has."""

import io
import warnings

import pytest
from fontTools.fontBuilder import FontBuilder
from fontTools.pens.ttGlyphPen import TTGlyphPen
from matplotlib import font_manager

from headlens.report import canvas as fonts
from headlens.report.canvas import HeadlensWarning, families_for, figure_bytes
from support import toys


def tiny_font(path, char, family):
    """A font that has one character, drawn as a square."""
    pen = TTGlyphPen(None)
    pen.moveTo((100, 0))
    for corner in ((100, 700), (800, 700), (800, 0)):
        pen.lineTo(corner)
    pen.closePath()
    square, empty = pen.glyph(), TTGlyphPen(None).glyph()
    builder = FontBuilder(1000, isTTF=True)
    builder.setupGlyphOrder([".notdef", "square"])
    builder.setupCharacterMap({ord(char): "square"})
    builder.setupGlyf({".notdef": empty, "square": square})
    builder.setupHorizontalMetrics({".notdef": (900, 0), "square": (900, 100)})
    builder.setupHorizontalHeader(ascent=800, descent=-200)
    builder.setupNameTable({"familyName": family, "styleName": "Regular"})
    builder.setupOS2(sTypoAscender=800, usWinAscent=800, usWinDescent=200)
    builder.setupPost()
    builder.save(path)


# private use: no installed font has these
ONE, TWO = "\U000f1234", "\U000f1235"


def test_a_font_installed_later_is_found_and_used(tmp_path, monkeypatch):
    path = str(tmp_path / "tiny.ttf")
    tiny_font(path, ONE, "Tiny Test")
    known = font_manager.fontManager.ttflist
    monkeypatch.setattr(font_manager.fontManager, "ttflist", list(known))
    monkeypatch.setattr(font_manager, "findSystemFonts", lambda: [path])
    assert families_for([f"a{ONE}"]) == ("DejaVu Sans", "Tiny Test")
    assert families_for(["plain é א"]) == ("DejaVu Sans",)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        figure_bytes(toys.random_maps([ONE, "b"]).heatmap(), ".png")


def test_a_character_without_font_gives_one_warning_of_our_own():
    maps = toys.random_maps([ONE, TWO, f"a{ONE}"])
    with warnings.catch_warnings(record=True) as noted:
        warnings.simplefilter("always")
        figure = maps.heatmap()
        figure_bytes(figure, ".png")
        figure_bytes(figure, ".pdf")
        figure.savefig(io.BytesIO(), bbox_inches="tight", format="png")
    assert [warning.category for warning in noted] == [HeadlensWarning]
    assert [str(warning.message) for warning in noted] == [
        f"2 characters are in no installed font and will be drawn as boxes ({ONE} {TWO}). Install a font "
        "that has them, on Debian or Ubuntu for example: apt install fonts-noto"
    ]
    assert noted[0].filename == __file__


def test_fonts_that_cannot_be_read_are_passed_over(tmp_path, monkeypatch):
    broken = tmp_path / "broken.ttf"
    broken.write_bytes(b"no font")
    monkeypatch.setattr(font_manager, "findSystemFonts", lambda: [str(broken)])
    with pytest.warns(HeadlensWarning, match="1 character is in no installed font"):
        assert families_for([ONE]) == ("DejaVu Sans",)
    assert str(broken) in fonts._unreadable()
