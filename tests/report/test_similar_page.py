"""The page of a run of similar."""

import pytest
from playwright.sync_api import expect

from headlens.errors import RunError
from headlens.report.artist import report_page, write_report
from support import finishedruns, scored, similarruns
from support.browser import open_page
from support.runpages import cells, page_of, said


def test_what_the_page_says(tmp_path):
    run = similarruns.similar_run(tmp_path / "s")
    page = page_of(run)
    assert page.xpath("//title")[0].text == "Which heads of toy do the same"
    sentences = said(page)
    assert sentences[0].startswith("6 heads fall into ")
    near = cells(page, "The closest pairs")
    assert len(near) == 15
    values = [float(row[2]) for row in near]
    assert values == sorted(values)
    assert (
        f"The closest pairs: {near[0][0]} and {near[0][1]} ({values[0]:.3f} nats, CKA 0.50)" in sentences[1]
    )
    clusters = [row[1] for row in cells(page, "Every head and its cluster")]
    assert clusters == sorted(clusters)
    captions = [one.text.strip() for one in page.xpath("//figcaption")]
    assert captions == ["How far apart all pairs of heads are", "The heads laid out in a plane"]
    assert report_page([run]) == report_page([run])


def test_tags_stand_beside_and_runs_join(tmp_path):
    tags = scored.tag_rows(2, 3, tags={("encoder", 0, 1): ["syntactic", "broad"]})
    run = similarruns.similar_run(tmp_path / "s", tags=tags)
    page = page_of(finishedruns.classify_run(tmp_path / "c"), run)
    assert said(page, 1)[0].startswith("6 heads fall into ")
    assert page.xpath('//section[@id="run-1"]//a[@class="tag"]')
    assert "#run=1&head=1.2" in page.xpath('//section[@id="run-1"]//a/@href')


@pytest.mark.parametrize("file", ["clusters.csv", "distances.csv"])
def test_a_run_that_is_not_whole(tmp_path, file):
    run = similarruns.similar_run(tmp_path / "s")
    (run / file).write_text("stack\n")
    with pytest.raises(RunError, match=f"{file} has no column"):
        report_page([run])
    (run / file).unlink()
    with pytest.raises(RunError, match=f"Expected {file} in "):
        report_page([run])


def test_a_head_that_is_clicked_in_a_figure_shows_its_cluster(chromium, tmp_path):
    run = similarruns.similar_run(tmp_path / "s")
    write_report([run], run / "report.html")
    with open_page(chromium, run / "report.html") as page:
        page.locator('.drawn a[href="#head=1.2"]').first.click()
        box = page.get_by_role("dialog")
        expect(box).to_contain_text("Its cluster and its nearest head")
        expect(box.locator("small").first).to_have_text("clusters.csv, 1 row")
