"""Figures inside a page: as they were drawn, with names of their own, and with nothing that runs."""

import lxml.html
import pytest

from headlens.errors import RunError
from headlens.report.page.section import inline_svg
from headlens.report.words import RunPlace
from support import finishedruns

OPEN = '<svg xmlns="http://www.w3.org/2000/svg" xmlns:xlink="http://www.w3.org/1999/xlink">'


def inlined(tmp_path, text, place=None, name="one"):
    file = tmp_path / f"{name}.svg"
    file.write_text(text, "utf-8")
    return inline_svg(file, place or RunPlace(), "A figure")


def test_names_and_what_points_at_them_go_together(tmp_path):
    text = inlined(tmp_path, finishedruns.SVG, RunPlace(3, alone=False))
    svg = lxml.html.fromstring(text)
    assert svg.xpath("//@id") == ["run-3-one-box", "run-3-one-dot", "run-3-one-axes_1"]
    assert svg.xpath("//@clip-path") == ["url(#run-3-one-box)"]
    assert "clip-path: url(#run-3-one-box)" in text
    assert svg.xpath("//use/@href") == ["#run-3-one-dot"]
    assert svg.xpath("//a/@href") == ["#run=3&head=0.0", "#run=3&head=0.1"]
    assert svg.xpath("//a/@aria-label") == ["Head 0.0", "Head 0.1"]


def test_what_is_seen_stays_and_the_rest_goes(tmp_path):
    text = inlined(tmp_path, finishedruns.SVG)
    svg = lxml.html.fromstring(text)
    assert svg.xpath("//text/text()") == ["A text, as text"]
    assert text.startswith(
        '<svg viewBox="0 0 150 75" style="width:200px" role="group" aria-label="A figure">'
    )
    assert "not shown" not in text
    assert "<style" not in text
    assert "DOCTYPE" not in text


@pytest.mark.parametrize(
    "inside",
    [
        "<script>alert(1)</script>",
        "<foreignObject><p xmlns='http://www.w3.org/1999/xhtml'>alert</p></foreignObject>",
        "<g onload='alert(1)' OnClick='alert(1)'/>",
        "<a xlink:href='javascript:alert(1)'><g/></a>",
        "<a href='https://alert.example'><g/></a>",
        "<image xlink:href='https://alert.example/x.png'/>",
        "<image href='data:image/svg+xml;base64,alert'/>",
        "<use href='https://alert.example/x.svg#a'/>",
        "<g style='fill: url(https://alert.example)'/>",
        "<g class='alert'/>",
        "<animate attributeName='href' to='alert'/>",
        "<style>@import 'alert'</style>",
        "<iframe xmlns='http://www.w3.org/1999/xhtml' src='alert'/>",
    ],
)
def test_nothing_that_runs_or_fetches(tmp_path, inside):
    assert "alert" not in inlined(tmp_path, f"{OPEN}{inside}</svg>")


def test_hostile_text_is_text(tmp_path):
    hostile = "&lt;script&gt;alert(1)&lt;/script&gt; &amp;lt; \"onload='"
    svg = lxml.html.fromstring(inlined(tmp_path, f"{OPEN}<text>{hostile}<tspan>a</tspan>b</text></svg>"))
    assert svg.xpath("//text")[0].text_content() == "<script>alert(1)</script> &lt; \"onload='ab"
    assert len(list(svg.iter())) == 3


@pytest.mark.parametrize("text", ["", "<svg", "<html/>", f"{OPEN}&undefined;</svg>"])
def test_what_is_no_svg(tmp_path, text):
    with pytest.raises(RunError, match=r"one\.svg"):
        inlined(tmp_path, text)
