"""The page of finished runs in a browser, from a file and without network: tables, meanings, downloads."""

import pytest
from playwright.sync_api import expect

from headlens.report.artist import write_report
from support import finishedruns, scored
from support.browser import open_page


@pytest.fixture(scope="module")
def classify(tmp_path_factory):
    return page_of(finishedruns.classify_run(tmp_path_factory.mktemp("classify")))


@pytest.fixture(scope="module")
def ablate(tmp_path_factory):
    return page_of(finishedruns.ablate_run(tmp_path_factory.mktemp("ablate")))


def page_of(*runs):
    write_report(runs, runs[0] / "report.html")
    return runs[0] / "report.html"


def table(page, title):
    return page.get_by_role("region", name=title).locator("xpath=..")


def heading(box, name):
    return box.get_by_role("columnheader", name=name, exact=True)


def column(box, number):
    return box.locator(f"tbody tr:visible td:nth-child({number})").all_inner_texts()


def test_a_page_that_is_opened_at_a_place_has_nothing_to_complain_of(chromium, ablate):
    with open_page(chromium, ablate, fragment="#run-0") as page:
        expect(page.get_by_role("heading", name="In short")).to_be_visible()


def test_sorting_by_click_and_by_enter(chromium, ablate):
    with open_page(chromium, ablate) as page:
        box = table(page, "What is lost")
        assert column(box, 5) == ["-0.2000", "+0.1000", "-0.0100", "+0.0000"]
        change = heading(box, "change")
        change.get_by_role("button").click()
        expect(change).to_have_attribute("aria-sort", "ascending")
        assert column(box, 5) == ["-0.2000", "-0.0100", "+0.0000", "+0.1000"]
        change.get_by_role("button").press("Enter")
        expect(change).to_have_attribute("aria-sort", "descending")
        assert column(box, 5) == ["+0.1000", "+0.0000", "-0.0100", "-0.2000"]
        heading(box, "metric").get_by_role("button").click()
        expect(change).to_have_attribute("aria-sort", "none")
        assert column(box, 5) == ["+0.1000", "+0.0000", "-0.0100", "-0.2000"]  # all metrics are equal


def test_head_names_sort_by_layer_and_head(chromium, tmp_path):
    rows = finishedruns.ablation_rows()
    rows["condition"] = ["head 10.2", "head 2.10", "head 2.9", "head 0.11"]
    rows["removed"] = "encoder." + rows["condition"].str.removeprefix("head ")
    run = finishedruns.ablate_run(tmp_path, rows)
    with open_page(chromium, page_of(run)) as page:
        box = table(page, "What is lost")
        heading(box, "head").get_by_role("button").click()
        assert column(box, 1) == ["0.11", "2.9", "2.10", "10.2"]


def test_numbers_sort_by_what_the_file_says_and_empty_cells_come_last(chromium, tmp_path):
    rows = finishedruns.ablation_rows()
    rows.loc[0, ["value", "delta", "ci_low", "ci_high", "p_value", "q_value"]] = None
    rows.loc[1:, "q_value"] = [9e-05, 1e-10, 0.5]
    with open_page(chromium, page_of(finishedruns.ablate_run(tmp_path, rows))) as page:
        box = table(page, "What is lost")
        for expected in (["1e-10", "9e-05", "0.5", ""], ["0.5", "9e-05", "1e-10", ""]):
            heading(box, "q").get_by_role("button").click()
            assert column(box, 9) == expected


def test_infinite_numbers_are_shown_and_sorted_as_such(chromium, tmp_path):
    rows = finishedruns.ablation_rows()
    rows["value"] = [float("inf"), 1e300, float("-inf"), None]
    with open_page(chromium, page_of(finishedruns.ablate_run(tmp_path, rows)), fragment="#head=0.0") as page:
        box = page.locator('dialog[open][data-ready="0 0.0"]')
        expect(box.locator("td[title=inf]")).to_have_text("inf")
        page.get_by_role("button", name="Close").click()
        box = table(page, "What is lost")
        large = f"{1e300:.4f}"
        for expected in (["-inf", large, "inf", ""], ["inf", large, "-inf", ""]):
            heading(box, "value").get_by_role("button").click()
            assert column(box, 3) == expected


def test_infinite_evidence_sorts_last(chromium, tmp_path):
    run = finishedruns.classify_run(tmp_path)
    scores = finishedruns.scores(scored.tag_rows(2, 2, tags=finishedruns.TAGS))
    mine = scores.index[(scores["layer"] == 0) & (scores["head"] == 0)]
    scores["tagged"] = False
    scores.loc[mine, "q_value"] = [float("inf"), 0.5, float("-inf"), float("nan"), 0.2]
    scores.loc[mine, "effect"] = [float("inf"), 0.5, float("-inf"), 0.1, 0.2]
    finishedruns.write_csv(scores, run / "scores.csv")
    with open_page(chromium, page_of(run), fragment="#head=0.0") as page:
        box = page.locator('dialog[open][data-ready="0 0.0"]')
        assert box.locator("tbody tr td:nth-child(8)").all_inner_texts() == ["-inf", "0.2", "0.5", "inf", ""]
        effects = box.locator("tbody tr td:nth-child(5)").all_inner_texts()
        assert (effects[0], effects[3]) == ("-inf", "+inf")


def test_filter_and_long_tables(chromium, tmp_path, monkeypatch):
    monkeypatch.setattr("headlens.report.artist.SHOWN", 2)
    with open_page(chromium, page_of(finishedruns.classify_run(tmp_path))) as page:
        box = table(page, "Every head and its tags")
        assert column(box, 1) == ["0.0", "0.1"]
        expect(box.get_by_role("status")).to_have_text("2 of 4 rows")
        box.get_by_role("button", name="Show all 4").click()
        assert column(box, 1) == ["0.0", "0.1", "1.0", "1.1"]
        expect(box.get_by_role("status")).to_have_text("4 rows")
        box.get_by_label("Filter").fill("SYNTACTIC")
        assert column(box, 1) == ["0.1", "1.1"]
        box.get_by_label("Filter").fill("nothing such")
        assert column(box, 1) == []
        expect(box.get_by_role("status")).to_have_text("0 of 4 rows")


def test_meanings_by_focus(chromium, classify):
    with open_page(chromium, classify) as page:
        tip = page.get_by_role("tooltip")
        chip = table(page, "Every head and its tags").locator("a.tag").first
        chip.focus()
        expect(tip).to_contain_text("At least 90 % of the head's largest weights")
        expect(chip).to_have_attribute("aria-describedby", "tip")
        page.keyboard.press("Escape")
        expect(tip).not_to_be_visible()
        assert chip.get_attribute("aria-describedby") is None
        heading(table(page, "The evidence"), "q").get_by_role("button").focus()
        expect(tip).to_contain_text("Benjamini and Hochberg")
        box, window = tip.bounding_box(), page.viewport_size
        assert box["x"] >= 0
        assert box["x"] + box["width"] <= window["width"]


def test_meanings_by_pointer_stay_while_the_pointer_is_on_them(chromium, classify):
    with open_page(chromium, classify) as page:
        tip = page.get_by_role("tooltip")
        heading(table(page, "The evidence"), "effect").get_by_role("button").hover()
        expect(tip).to_have_text("Score minus baseline.")
        tip.hover()
        page.wait_for_timeout(400)
        expect(tip).to_be_visible()
        page.mouse.move(1, 1)
        expect(tip).not_to_be_visible()


def test_a_tag_leads_to_its_definition(chromium, classify):
    with open_page(chromium, classify) as page:
        table(page, "Every head and its tags").locator("a.tag").first.click()
        definition = page.locator("dt:target")
        expect(definition).to_have_text("positional")
        expect(definition).to_be_in_viewport()


@pytest.mark.parametrize("name", ["scores.csv", "tags.csv", "run.json", "tags.svg"])
def test_downloads_are_the_files(chromium, classify, tmp_path, name):
    with open_page(chromium, classify) as page:
        with page.expect_download() as started:
            page.get_by_role("button", name=name).click()
        assert started.value.suggested_filename == name
        started.value.save_as(tmp_path / name)
    folder = classify.parent / "figures" if name.endswith(".svg") else classify.parent
    assert (tmp_path / name).read_bytes() == (folder / name).read_bytes()


COMMAND = "headlens classify toy --out 'my run'"


def test_the_command_is_copied(chromium, classify):
    with open_page(chromium, classify) as page:
        page.context.grant_permissions(["clipboard-read", "clipboard-write"])
        page.get_by_role("button", name="Copy").click()
        expect(page.locator(".command [role=status]")).to_have_text("Copied.")
        assert page.evaluate("navigator.clipboard.readText()") == COMMAND


def test_where_copying_is_forbidden_the_command_is_marked(chromium, classify):
    with open_page(chromium, classify) as page:
        page.evaluate("() => { navigator.clipboard.writeText = () => Promise.reject(new Error('no')); }")
        page.get_by_role("button", name="Copy").click()
        expect(page.locator(".command [role=status]")).to_have_text("Marked: now copy it.")
        assert page.evaluate("getSelection().toString()") == COMMAND


def test_run_json_is_there_to_read(chromium, classify):
    with open_page(chromium, classify) as page:
        page.get_by_text("run.json: everything").click()
        shown = page.locator("pre").inner_text()
        assert '"architecture": "ToyModel"' in shown


@pytest.mark.parametrize("dark", [False, True])
def test_words_stand_out_in_light_and_dark(chromium, classify, dark):
    with open_page(chromium, classify, dark=dark) as page:
        paper = luminance(page, "html", "backgroundColor")
        assert (paper < 0.05) == dark
        for selector in ("h1", ".soft", ".findings li", "td a.head", ".note"):
            one, other = sorted([luminance(page, selector, "color"), paper])
            assert (other + 0.05) / (one + 0.05) >= 4.5, selector
        assert luminance(page, ".drawn", "backgroundColor") == pytest.approx(1)  # figures keep their paper


def luminance(page, selector, what):
    colour = page.locator(selector).first.evaluate(f"(one) => getComputedStyle(one).{what}")
    parts = [int(part) / 255 for part in colour[colour.index("(") + 1 : -1].split(",")[:3]]
    linear = [part / 12.92 if part <= 0.04045 else ((part + 0.055) / 1.055) ** 2.4 for part in parts]
    return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]


@pytest.mark.parametrize("width", [320, 400, 800])
def test_a_narrow_window_does_not_scroll_sideways(chromium, classify, width):
    with open_page(chromium, classify, width=width) as page:
        assert page.evaluate("document.documentElement.scrollWidth") <= width


def test_print_shows_results_and_no_controls(chromium, classify):
    with open_page(chromium, classify) as page:
        page.emulate_media(media="print")
        for gone in (".download", ".filter", ".copy", "nav"):
            expect(page.locator(gone).first).not_to_be_visible()
        for kept in (".findings", ".drawn svg", "tbody tr"):
            expect(page.locator(kept).first).to_be_visible()


def test_figures_are_as_wide_as_drawn_or_as_the_window(chromium, classify):
    for width, wanted in ((1200, 200), (180, 100)):
        with open_page(chromium, classify, width=width) as page:
            box = page.locator(".drawn svg").bounding_box()
            assert box["width"] == pytest.approx(200) if wanted == 200 else box["width"] < 180
            assert box["height"] == pytest.approx(box["width"] / 2, abs=1)
