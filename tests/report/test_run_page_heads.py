"""A head that is clicked: its attention and its evidence, and the address that brings it back."""

import re

import pytest
from playwright.sync_api import expect

from headlens.model.heads import Head
from headlens.report.page.write import write_report
from headlens.report.viewer import save_examples
from headlens.runs.read import Marks
from support import finishedruns, toys
from support.browser import open_page


@pytest.fixture(scope="module")
def runs(tmp_path_factory):
    place = tmp_path_factory.mktemp("runs")
    found = (
        finishedruns.classify_run(place / "c"),
        finishedruns.ablate_run(place / "a"),
        finishedruns.compare_run(place / "d"),
    )
    maps = toys.random_maps(["one", "two", "three"], 2, 2)
    save_examples(found[0], [("one two three", maps)], Marks({Head("encoder", 0, 0): ("positional",)}))
    return found


@pytest.fixture(scope="module")
def alone(runs):
    write_report(runs[:1], runs[0] / "report.html")
    return runs[0] / "report.html"


@pytest.fixture(scope="module")
def joined(runs):
    write_report(runs, runs[0].parent / "all.html")
    return runs[0].parent / "all.html"


def shows(page, run, name):
    box = page.locator(f'dialog[open][data-ready="{run} {name}"]')
    expect(box.locator("#head-name")).to_contain_text(f"Head {name}")
    return box


def is_closed(page):
    expect(page.locator("dialog")).not_to_be_visible()
    expect(page).not_to_have_url(re.compile("#"))  # once the dialog has told that it is closed


def rows(box, title):
    section = box.locator("section", has=box.page.locator(f"h3:has-text('{title}')"))
    lines = section.locator("tbody tr")
    return [lines.nth(number).locator("td").all_text_contents() for number in range(lines.count())]


def test_a_head_of_a_table(chromium, alone):
    with open_page(chromium, alone) as page:
        link = page.get_by_role("region", name="Every head").get_by_role("link", name="0.1", exact=True)
        link.press("Enter")
        box = shows(page, 0, "0.1")
        assert page.evaluate("location.hash") == "#head=0.1"
        assert box.locator("#head-name .tag").all_text_contents() == ["Ssyntactic", "Ddelimiter"]
        page.keyboard.press("Escape")
        is_closed(page)
        expect(link).to_be_focused()


def test_its_evidence_is_every_row_about_it(chromium, alone):
    with open_page(chromium, alone, fragment="#head=0.1") as page:
        box = shows(page, 0, "0.1")
        expect(box.locator("small").first).to_have_text("scores.csv, 5 rows")
        found = rows(box, "Every measure")
        assert [row[1] for row in found] == [
            "special", "obj:dependent->head", "argmax@-1", "entropy", "nsubj:head->dependent"
        ]  # fmt: skip
        assert [row[-1] for row in found] == ["yes", "yes", "no", "no", "no"]
        assert [cell.strip() for cell in found[1]] == [
            "Ssyntactic", "obj:dependent->head", "0.600", "0.250", "+0.3500", "+0.3000", "+0.4300", "0.001",
            "1,234", "yes",
        ]  # fmt: skip
        box.locator(".term", has_text="q").focus()
        expect(page.get_by_role("tooltip")).to_contain_text("Benjamini and Hochberg")


def test_its_attention_is_shown(chromium, alone):
    with open_page(chromium, alone, fragment="#head=0.1") as page:
        viewer = shows(page, 0, "0.1").locator(".hl-viewer")
        expect(viewer).to_have_attribute("data-ready", "0.1")
        page.get_by_role("button", name="Close").click()
        page.locator('.drawn a[href="#head=0.0"]').click()
        expect(shows(page, 0, "0.0").locator(".hl-viewer")).to_have_attribute("data-ready", "0.0")
        assert page.locator(".hl-viewer").count() == 1


def test_another_head_chosen_in_the_viewer_brings_its_evidence(chromium, alone):
    with open_page(chromium, alone, fragment="#head=0.0") as page:
        box = shows(page, 0, "0.0")
        cell = box.locator(".hl-cell").nth(3)
        cell.click()
        shows(page, 0, "1.1")
        assert page.evaluate("location.hash") == "#head=1.1"
        expect(box.page.locator(".hl-viewer")).to_have_attribute("data-ready", "1.1")
        assert page.evaluate("document.activeElement.closest('.hl-viewer') !== null")  # keys go on there


def test_a_head_of_a_figure_by_click_and_by_keys(chromium, alone):
    with open_page(chromium, alone) as page:
        first, second = (page.locator(f'.drawn a[href="#head={name}"]') for name in ("0.0", "0.1"))
        second.click()
        shows(page, 0, "0.1")
        page.get_by_role("button", name="Close").click()
        is_closed(page)
        first.focus()
        page.keyboard.press("ArrowRight")
        expect(second).to_be_focused()
        page.keyboard.press("Enter")
        shows(page, 0, "0.1")


def test_the_address_brings_it_back(chromium, alone):
    with open_page(chromium, alone, fragment="#head=1.0") as page:
        shows(page, 0, "1.0")
        page.reload()
        shows(page, 0, "1.0")
        page.get_by_role("button", name="Close").click()
        is_closed(page)
        page.evaluate("location.hash = '#head=1.1'")
        shows(page, 0, "1.1")
        page.go_back()
        is_closed(page)


@pytest.mark.parametrize(
    "fragment",
    [
        "#head=9.9",
        "#head=",
        "#head=<script>alert(1)</script>",
        "#run=7&head=0.0",
        "#run=x&head=0.0",
        "#nothing",
        "#%E0",
    ],
)
def test_an_address_of_no_head_does_nothing(chromium, joined, fragment):
    with open_page(chromium, joined, fragment=fragment) as page:
        page.wait_for_timeout(200)
        expect(page.locator("dialog")).not_to_be_visible()
        expect(page.locator("h1")).to_have_text("3 runs of headlens")


def test_in_a_page_of_several_runs_a_link_means_its_run(chromium, joined):
    with open_page(chromium, joined) as page:
        page.locator("#run-1").get_by_role("link", name="0.1", exact=True).first.click()
        box = shows(page, 1, "0.1")
        assert page.evaluate("location.hash") == "#run=1&head=0.1"
        assert rows(box, "What is lost") == [
            [
                "head 0.1",
                "1",
                "spearman",
                "0.4900",
                "0.5000",
                "-0.0100",
                "-0.0600",
                "+0.0400",
                "0.3",
                "0.6",
                "40",
            ]
        ]
        assert rows(box, "How important") == [["each", "0.1", "2"]]
        expect(box).to_contain_text("This run kept no example sentences")
        page.reload()
        shows(page, 1, "0.1")
        page.get_by_role("button", name="Close").click()
        page.locator("#run-2").get_by_role("link", name="0.0", exact=True).first.click()
        box = shows(page, 2, "0.0")
        assert [cell.strip() for cell in rows(box, "Its tags")[0]] == ["Ppositional", "", "", "Ppositional"]


def test_without_a_run_the_first_that_has_the_head(chromium, joined):
    with open_page(chromium, joined, fragment="#head=1.1") as page:
        shows(page, 0, "1.1")


def test_sets_that_a_head_is_in(chromium, tmp_path):
    table = finishedruns.ablation_rows("only")
    table["condition"] = ["only head 0.0", "only head 0.1", "only head 1.0", "control 0 of set"]
    table["removed"] = ["encoder.0.1", "encoder.0.0", "encoder.1.1", "encoder.0.0"]
    table["kept"] = ["encoder.0.0", "encoder.0.1", "encoder.1.0", ""]
    table["control_of"] = ["", "", "", "set"]
    run = finishedruns.ablate_run(tmp_path, table)
    write_report([run], run / "report.html")
    with open_page(chromium, run / "report.html", fragment="#head=0.0") as page:
        box = shows(page, 0, "0.0")
        assert [row[0] for row in rows(box, "It alone kept")] == ["only head 0.0"]
        assert [row[0] for row in rows(box, "What is lost without it")] == ["only head 0.1"]


@pytest.mark.parametrize(("asked", "found"), [("cross.0.1", "cross.0.1"), ("0.1", "encoder.0.1")])
def test_heads_of_several_stacks(chromium, tmp_path, asked, found):
    tags = {("cross", 0, 1): ["delimiter"]}
    run = finishedruns.classify_run(tmp_path, tags, ("encoder", "decoder", "cross"))
    write_report([run], run / "report.html")
    with open_page(chromium, run / "report.html", fragment=f"#head={asked}") as page:
        box = shows(page, 0, found)
        assert len(rows(box, "Every measure")) == 5


@pytest.mark.parametrize("head", ["2.0.0&x", "decoder.0.0", "0.0.0.0", "0.0.1.1", ".0.0.", "0"])
def test_a_head_of_a_stack_that_there_is_not_opens_nothing(chromium, alone, head):
    with open_page(chromium, alone, fragment=f"#head={head}") as page:
        page.wait_for_timeout(300)
        expect(page.locator("dialog")).not_to_be_visible()
        page.evaluate("location.hash = 'head=encoder.0.1'")  # by its whole name
        shows(page, 0, "0.1")
