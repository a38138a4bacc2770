"""Whatever names, paths, tags and sentences hold, the page of finished runs shows it as text."""

import json
from xml.sax.saxutils import escape

import pandas as pd
import pytest
from playwright.sync_api import expect

from headlens.report.artist import write_report
from headlens.report.viewer import save_examples
from headlens.runs.read import Marks
from headlens.util.formatting import visible
from support import finishedruns, scored, toys
from support.browser import open_page

HOSTILE = [
    "<script>alert(1)</script>",
    "</textarea>",
    "</script><img src=x onerror=alert(1)>",
    "<!--<script>",
    '"onload=alert(1) x="',
    "'><svg/onload=alert(1)>",
    "a<b<c",
    "&lt;",
    "]]>",
    "{{ 7 * 7 }}",
    "${7*7}",
    "a\0b",
    "\ud800",
    "\u202e",
    "\u2028",
]
IN_TABLES = [text for text in HOSTILE if text != "\ud800"]  # a CSV file cannot hold half a character
AS_TAGS = [text for text in IN_TABLES[:12] if ";" not in text]  # which stands between tags


@pytest.fixture(scope="module")
def page_file(tmp_path_factory):
    """A run whose every text is hostile."""
    path = tmp_path_factory.mktemp("run") / "run"
    heads = scored.tag_rows(1, 4, tags={("encoder", 0, n): AS_TAGS[n::4] for n in range(4)})
    heads["evidence"] = [" ".join(IN_TABLES)] * 4
    rows = [scored.score_rows(heads, tag, f"measure {tag}", lambda layer, head: 0.9) for tag in AS_TAGS]
    everything = " ".join(HOSTILE)
    told = {
        "arguments": f"headlens classify '{everything}'",
        "notes": HOSTILE,
        "model": {"name": everything, "architecture": everything, "missing_weights": HOSTILE},
        "corpus": {"files": HOSTILE, "sentences": 3, "parser": everything},
        "inputs": {everything: {"left_out": {everything: 3}}},
    }
    scored.write_run(path, pd.concat(rows), heads, **told)
    (path / "figures").mkdir()
    drawn = escape("".join(text for text in HOSTILE if text.isprintable()))
    svg = finishedruns.SVG.replace("A text, as text", drawn).replace(
        "<use ", "<script>alert(1)</script><use "
    )
    (path / "figures" / "tags.svg").write_text(svg, encoding="utf-8")
    save_examples(path, [(everything, toys.random_maps([visible(text) for text in HOSTILE], 1, 4))], Marks())
    write_report([path], path / "report.html")
    return path / "report.html"


def test_nothing_runs_and_nothing_is_lost(chromium, page_file):
    with open_page(chromium, page_file, fragment="#head=0.1") as page:
        page.locator("dialog[data-ready]").wait_for()
        everything = visible(" ".join(HOSTILE))
        expect(page.locator("code")).to_have_text(f"headlens classify '{everything}'")
        for text in map(visible, HOSTILE):
            assert text in page.locator(".findings li").first.text_content()
        for text in map(visible, IN_TABLES):
            assert text in page.locator("tbody td").nth(2).text_content()
        tags = page.locator("dt").all_text_contents()
        assert [visible(tag) for tag in AS_TAGS] == tags[: len(AS_TAGS)]
        assert page.locator(".drawn text").text_content() == "".join(t for t in HOSTILE if t.isprintable())
        assert page.locator("dialog tbody tr").count() == len(AS_TAGS)
        for selector in ("img", "textarea", "iframe", "svg script", "[onload]", "[onerror]", "form"):
            assert page.locator(selector).count() == 0, selector
        kinds = page.locator("script").evaluate_all("all => all.map((one) => one.type)")
        assert sorted(set(kinds)) == ["application/json", "module", "text/plain"]
        assert kinds.count("module") == 1


def test_every_word_has_its_meaning(chromium, page_file):
    with open_page(chromium, page_file) as page:
        chips = page.locator("td a.tag")
        assert chips.count() >= len(AS_TAGS)
        for number in range(len(AS_TAGS)):
            chips.nth(number).focus()
            target = chips.nth(number).get_attribute("href")
            assert page.evaluate("(id) => document.getElementById(id)?.textContent", target[1:]) in map(
                visible, HOSTILE
            )


def test_run_json_is_shown_as_it_is(chromium, page_file):
    with open_page(chromium, page_file) as page:
        page.get_by_text("run.json: everything").click()
        shown = page.locator("pre").inner_text()
        told = json.loads((page_file.parent / "run.json").read_text())
        expected = json.dumps(told, indent=2, ensure_ascii=False).split("\n")
        assert shown.split("\n") == [visible(line) if line.strip() else line for line in expected]


def test_the_page_holds_no_byte_that_browsers_do_not_take(page_file):
    content = page_file.read_bytes()
    assert b"\0" not in content
    content.decode("utf-8")
