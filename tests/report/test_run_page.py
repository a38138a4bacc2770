"""The page of finished runs holds all that it needs, and nothing else."""

import base64
import json
import re
import zlib
from dataclasses import dataclass

import lxml.html
import pandas as pd
import pytest

from headlens.report.artist import KINDS, Kind, report_page
from headlens.report.page import section as parts
from headlens.report.words import COLUMNS, tag_definition
from headlens.runs.read import TableForm
from headlens.runs.result import Result
from headlens.scoring.base import Scorer
from headlens.scoring.scorers import SCORERS
from support import finishedruns, scored
from support.runpages import cells, notes, page_of, said


def carried(page):
    found = page.xpath("//script[@data-name]")
    return {one.get("data-name"): zlib.decompress(base64.b64decode(one.text)) for one in found}


@pytest.fixture
def three(tmp_path):
    return (
        finishedruns.classify_run(tmp_path / "c"),
        finishedruns.ablate_run(tmp_path / "a"),
        finishedruns.compare_run(tmp_path / "d"),
    )


def test_files_are_carried_as_they_are(three):
    page = page_of(*three)
    found = carried(page)
    assert set(found) >= {
        "scores.csv",
        "tags.csv",
        "ablation.csv",
        "importance.csv",
        "compare_heads.csv",
        "tags.svg",
    }
    for run in three:
        for file in (*run.glob("*.csv"), *run.glob("figures/*.svg")):
            assert found[file.name] == file.read_bytes()
    buttons = page.xpath('//button[@class="download"]')
    assert all(page.get_element_by_id(one.get("data-file")).get("data-name") in one.text for one in buttons)


def test_the_page_needs_nothing_else(three):
    text = report_page(three)
    page = lxml.html.fromstring(text)
    assert (
        re.search(r"(src|srcset|action|poster)=", re.sub(r"<script.*?</script>", "", text, flags=re.S))
        is None
    )
    assert not page.xpath("//link") + page.xpath("//iframe") + page.xpath("//img")
    (policy,) = page.xpath('//meta[@http-equiv="Content-Security-Policy"]/@content')
    assert "default-src 'none'" in policy
    ids = page.xpath("//@id")
    assert len(ids) == len(set(ids))
    targets = [target for target in page.xpath("//@href") if not re.match(r"#(run=\d&)?head=", target)]
    assert all(target.startswith("#") and target[1:] in ids for target in targets)
    for attribute in ("aria-labelledby", "aria-describedby"):
        assert set(page.xpath(f"//@{attribute}")) <= set(ids)
    data = json.loads(page.get_element_by_id("report-data").text)
    assert set(page.xpath("//@data-term")) <= set(data["terms"])
    assert all(term["meaning"] for term in data["terms"].values())


def test_links_say_which_run_they_mean_where_there_are_several(three):
    page = page_of(*three)
    for number in range(3):
        links = page.xpath(f'//section[@id="run-{number}"]//a[contains(@href, "head=")]/@href')
        assert links
        assert all(link.startswith(f"#run={number}&head=") for link in links)
    alone = page_of(three[0]).xpath('//a[contains(@href, "head=")]/@href')
    assert set(alone) == {f"#head={layer}.{head}" for layer in range(2) for head in range(2)}


def test_heads_of_several_stacks_have_the_stack_in_their_names(tmp_path):
    page = page_of(finishedruns.classify_run(tmp_path / "c", {}, ("encoder", "decoder")))
    assert [row[0] for row in cells(page, "Every head and its tags")][3:5] == ["encoder.1.1", "decoder.0.0"]


def test_long_tables_are_cut_and_say_so(tmp_path, monkeypatch):
    monkeypatch.setattr(parts, "MOST", 3)
    page = page_of(finishedruns.classify_run(tmp_path / "c"))
    assert len(cells(page, "Every head and its tags")) == 3
    assert "The first 3 rows of 4: the page holds no more. tags.csv, below, has all." in notes(page)


def test_every_tag_of_headlens_has_a_definition():
    assert all(scorer.meaning for scorer in SCORERS.values())
    meanings = {column.meaning for column in all_columns() if column.meaning}
    assert meanings <= set(COLUMNS)


def all_columns():
    from headlens.report.page import ablate, classify, compare, contributions, similar

    for module in (ablate, classify, compare, contributions, similar):
        for value in vars(module).values():
            for one in value if isinstance(value, list) else [value]:
                if isinstance(one, parts.Column):
                    yield one


def test_a_tag_of_ones_own(tmp_path, monkeypatch):
    class Own(Scorer):
        """Looks at the last token.

        And more.
        """

    monkeypatch.setitem(SCORERS, "last", Own)
    assert tag_definition("last") == "Looks at the last token."
    assert tag_definition("unheard-of") == ""
    heads = scored.tag_rows(1, 2, tags={("encoder", 0, 0): ["last"], ("encoder", 0, 1): ["unheard-of"]})
    rows = [scored.score_rows(heads, tag, tag, lambda layer, head: 0.9) for tag in ("last", "unheard-of")]
    page = page_of(scored.write_run(tmp_path / "own", pd.concat(rows), heads))
    texts = {dt.text: dt.getnext().text for dt in page.xpath("//dt")}
    assert texts["last"] == "Looks at the last token."
    assert texts["unheard-of"] == "A tag of your own scorer, which says nothing about itself."


@pytest.mark.parametrize(
    ("tag", "measure", "words"),
    [
        ("positional", "argmax@-1", "largest weights on offset -1"),
        ("positional", "mass@+2", "weight on offset +2"),
        ("syntactic", "obj:dependent->head", "obj, from dependent to head"),
        (
            "coreference",
            "antecedent@words:pronoun",
            "pronoun mentions with an earlier one, among all earlier words",
        ),
        *((tag, "something-else", "something-else") for tag in SCORERS),
    ],
)
def test_measures_in_words(tag, measure, words):
    assert SCORERS[tag].in_words(measure) == words


def test_the_same_page_twice(three):
    assert report_page(three) == report_page(three)


def test_one_line_makes_a_kind(tmp_path, monkeypatch):
    @dataclass(frozen=True, eq=False, repr=False)
    class Own(Result):
        command = "own"
        forms = (TableForm("numbers", ["a"], ()),)
        numbers: pd.DataFrame
        run: dict
        examples: None = None

    def section(own, place):
        table = parts.Table("Numbers", [parts.Column("a", "a", "number")], own.numbers, "numbers.csv")
        return parts.PageSection("Of my own", ["Found."], [table], [], [], files=["numbers.csv"])

    monkeypatch.setitem(KINDS, "own", Kind(Own, lambda own: iter(()), section))
    (tmp_path / "numbers.csv").write_text("a\n1\n")
    (tmp_path / "run.json").write_text('{"command": "own"}')
    page = page_of(tmp_path)
    assert said(page) == ["Found."]
    assert cells(page, "Numbers") == [["1"]]
