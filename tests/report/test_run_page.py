"""What the page of finished runs says, and that it needs nothing else."""

import base64
import json
import re
import zlib

import lxml.html
import numpy as np
import pandas as pd
import pytest

import finishedruns
import madeup
from headlens.errors import RunError
from headlens.report.definitions import COLUMNS, TAGS, measure_words, tag_definition
from headlens.report.page import parts
from headlens.report.page.kinds import KINDS
from headlens.report.page.write import report_page, write_report
from headlens.scorers import SCORERS
from headlens.tables import ABLATION, CONTROLS


def page_of(*runs):
    return lxml.html.fromstring(report_page(runs))


def said(page, number=0):
    found = page.xpath(f'//section[@id="run-{number}"]//ul[@class="findings"]/li')
    return [one.text_content() for one in found]


def notes(page):
    return [one.text_content() for one in page.xpath('//section//p[@class="note"]')]


def cells(page, title):
    (table,) = page.xpath(f'//h3[text()="{title}"]/following-sibling::div[@class="table"][1]//table')
    return [[cell.text_content() for cell in row] for row in table.xpath("./tbody/tr")]


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


def test_sentences_of_classify(tmp_path):
    page = page_of(finishedruns.classify_run(tmp_path / "c"))
    assert page.xpath("//h1")[0].text == "What the heads of toy look at"
    assert said(page) == [
        "4 heads of ToyModel were scored on toy.conllu: 3 documents, 12 sentences, 99 words.",
        "2 of 4 heads are tagged Ssyntactic; the clearest is 1.1, for obj, from dependent to head "
        "(obj:dependent->head): 70 % against 25 % for the best baseline (95 % interval of the "
        "difference +40 to "
        "+53 points, n = 1,234).",
        "1 of 4 heads is tagged Ppositional; the clearest is 0.0, for largest weights on offset -1 "
        "(argmax@-1): "
        "95 % against 25 % for the baseline (95 % interval of the difference +65 to +78 points, n = 1,234).",
        "1 of 4 heads is tagged Ddelimiter; the clearest is 0.1, for weight on special tokens "
        "(special): 70 % "
        "against 25 % for the baseline (95 % interval of the difference +40 to +53 points, n = 1,234).",
        "No head reaches what is asked of Bbroad.",
        "1 head carries several tags, 1 no tag. That a head has no tag shows that nothing here was "
        "proven of it, "
        "not that it does nothing.",
    ]
    assert notes(page) == [
        "These are results for the small English sample of headlens: no --corpus was given."
    ]
    assert "Not looked for: coreference, semantic, induction, duplicate-token, rare-token." in [
        one.text_content() for one in page.xpath('//details[@class="unmeasured"]//li')
    ]


def test_sentences_of_ablate(tmp_path):
    page = page_of(finishedruns.ablate_run(tmp_path / "a"))
    assert said(page) == [
        "With all heads: spearman 0.5000, on similarity:toy.tsv (40 examples). Higher spearman is "
        "better. A head that "
        "is taken out puts out zeros.",
        "Taken out alone, 1 of 4 heads matters (spearman is significantly worse without), and 1 harms (it is "
        "significantly better without).",
        "The largest loss is that without head 0.0: spearman 0.3000 instead of 0.5000, -0.2000 (95 % "
        "interval -0.2500 "
        "to -0.1500, q = 0.001).",
        "Without 2 other heads, each alone, nothing significant changes. They may have a role all the "
        "same: heads "
        "stand in for each other.",
    ]
    assert notes(page)[0] == "Mind this."
    rows = cells(page, "What is lost")
    assert [row[0] for row in rows] == ["0.0", "1.1", "0.1", "1.0"]  # effects first, then by loss
    assert rows[0][1:] == [
        "spearman",
        "0.3000",
        "0.5000",
        "-0.2000",
        "-0.2500",
        "-0.1500",
        "0.0005",
        "0.001",
        "40",
    ]


def test_a_metric_that_is_better_when_low(tmp_path):
    table = finishedruns.ablation_rows(metric="loss", baseline=2.0)
    page = page_of(finishedruns.ablate_run(tmp_path / "a", table, larger_is_better={"loss": False}))
    assert said(page)[2].startswith(
        "The largest loss is that without head 1.1: loss 2.1000 instead of 2.0000, +0.1000"
    )


def test_sets_and_random_ones(tmp_path):
    table = finishedruns.ablation_rows("tags").head(2)
    table["condition"] = ["tag syntactic", "control 0 of tag syntactic"]
    controls = pd.DataFrame(
        [("tag syntactic", "spearman", 0.3, 0.45, 0.4, 0.48, 1 / 21, 20)], columns=CONTROLS
    )
    page = page_of(finishedruns.ablate_run(tmp_path / "a", table, controls))
    assert said(page)[1:] == [
        "Of 1 set of heads taken out together, 1 makes spearman significantly worse, and none "
        "significantly better.",
        "Without all heads tagged Ssyntactic (1 head): spearman 0.3000 instead of 0.5000, -0.2000 (95 "
        "% interval "
        "-0.2500 to -0.1500, q = 0.001).",
        "Against random sets with as many heads of each layer: 1 of 1 set is worse than nearly all (p "
        "of at most "
        "0.05, of each alone); with 20 random sets a p below 0.048 cannot come out.",
        "tag syntactic: 0.3000; without random sets 0.4500 on average (0.4000 to 0.4800), 0 of 20 as "
        "bad or worse.",
    ]
    assert len(cells(page, "What is lost")) == 1  # the random set is none of the findings


def test_where_the_metric_is_not_defined(tmp_path):
    table = finishedruns.ablation_rows("layer")
    table["condition"] = [f"layer {number}" for number in range(4)]
    table.loc[1, ["value", "delta", "ci_low", "ci_high", "p_value", "q_value"]] = np.nan
    page = page_of(finishedruns.ablate_run(tmp_path / "a", table))
    assert "Without layer 1 (1 head): spearman is not defined." in said(page)
    assert "nan" not in " ".join(said(page))
    assert ["layer 1", "1", "spearman", "", "0.5000", "", "", "", "", "", "40"] in cells(page, "What is lost")


def test_sentences_of_compare(tmp_path):
    page = page_of(finishedruns.compare_run(tmp_path / "d"))
    assert page.xpath("//h1")[0].text == "What changed from one to two"
    assert said(page) == [
        "1 of 2 heads gained or lost a tag.",
        "Ppositional: kept 0, gained 0, lost 1; agreement beyond chance (kappa) 0.00.",
        "Ssyntactic: kept 1, gained 0, lost 0; agreement beyond chance (kappa) 1.00.",
        "All tags together: kept 1, gained 0, lost 1; agreement beyond chance (kappa) 0.50.",
    ]
    assert notes(page) == ["The runs differ in: corpus."]


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
    assert set(TAGS) == set(SCORERS)
    meanings = {column.meaning for column in all_columns() if column.meaning}
    assert meanings <= set(COLUMNS)


def all_columns():
    from headlens.report.page import ablate, classify, compare

    for module in (ablate, classify, compare):
        for value in vars(module).values():
            for one in value if isinstance(value, list) else [value]:
                if isinstance(one, parts.Column):
                    yield one


def test_a_tag_of_ones_own(tmp_path, monkeypatch):
    class Own:
        """Looks at the last token.

        And more.
        """

    monkeypatch.setitem(SCORERS, "last", Own)
    assert tag_definition("last") == "Looks at the last token."
    assert tag_definition("unheard-of") == ""
    heads = madeup.tag_rows(1, 2, tags={("encoder", 0, 0): ["last"], ("encoder", 0, 1): ["unheard-of"]})
    rows = [madeup.score_rows(heads, tag, tag, lambda layer, head: 0.9) for tag in ("last", "unheard-of")]
    page = page_of(madeup.write_run(tmp_path / "own", pd.concat(rows), heads))
    texts = {dt.text: dt.getnext().text for dt in page.xpath("//dt")}
    assert texts["last"] == "Looks at the last token."
    assert texts["unheard-of"] == "A tag of your own scorer, which says nothing about itself."


@pytest.mark.parametrize(
    ("measure", "words"),
    [
        ("argmax@-1", "largest weights on offset -1"),
        ("mass@+2", "weight on offset +2"),
        ("obj:dependent->head", "obj, from dependent to head"),
        ("antecedent@words:pronoun", "pronoun mentions with an earlier one, among all earlier words"),
        ("something-else", "something-else"),
    ],
)
def test_measures_in_words(measure, words):
    assert measure_words(measure) == words


def test_the_same_page_twice(three):
    assert report_page(three) == report_page(three)


def test_one_line_makes_a_kind(tmp_path, monkeypatch):
    def section(path, run, place):
        frame = pd.read_csv(path / "numbers.csv")
        table = parts.Table("Numbers", [parts.Column("a", "a", "number")], frame, "numbers.csv")
        return parts.Section("Of my own", ["Found."], [table], [], [], files=["numbers.csv"])

    monkeypatch.setitem(KINDS, "own", section)
    (tmp_path / "numbers.csv").write_text("a\n1\n")
    (tmp_path / "run.json").write_text('{"command": "own"}')
    page = page_of(tmp_path)
    assert said(page) == ["Found."]
    assert cells(page, "Numbers") == [["1"]]


def broken(path, file, content):
    (path / file).write_text(content)
    return path


@pytest.mark.parametrize(
    ("spoil", "message"),
    [
        (
            lambda run: run / "nowhere",
            "there is no directory {run}/nowhere. Give what you gave a headlens classify, ",
        ),
        (lambda run: broken(run, "run.json", "{"), "{run}/run.json cannot be read: "),
        (lambda run: broken(run, "run.json", "[]"), "{run} holds one of headlens ?. "),
        (lambda run: broken(run, "run.json", '{"command": "prune"}'), "{run} holds one of headlens prune. "),
        (lambda run: broken(run, "ablation.csv", "condition\n"), "{run}/ablation.csv has no column sweep. "),
        (
            lambda run: broken(run, "ablation.csv", ",".join(ABLATION) + "\n"),
            "{run}/ablation.csv holds no rows. ",
        ),
        (lambda run: broken(run, "importance.csv", ""), "{run}/importance.csv cannot be read: "),
        (lambda run: broken(run, "examples.json", "no"), "{run}/examples.json cannot be read: "),
        (
            lambda run: broken(run, "run.json", '{"command": "ablate"}'),
            "{run}/run.json does not say which values of ",
        ),
    ],
)
def test_runs_that_cannot_be_shown(tmp_path, spoil, message):
    run = finishedruns.ablate_run(tmp_path / "a")
    with pytest.raises(RunError) as caught:
        report_page([spoil(run)])
    assert message.format(run=run) in str(caught.value)
    assert caught.value.remedy


def test_numbers_that_are_none_and_heads_that_are_none(tmp_path):
    table = finishedruns.ablation_rows()
    run = finishedruns.ablate_run(tmp_path / "a", table.assign(removed="all of them"))
    with pytest.raises(RunError, match=r"Expected heads such as encoder\.2\.8 in the column removed"):
        report_page([run])
    run = finishedruns.ablate_run(tmp_path / "b", table.assign(delta="much"))
    with pytest.raises(RunError, match=r"ablation\.csv cannot be read"):
        report_page([run])


def test_a_folder_of_runs_names_them(tmp_path):
    run = finishedruns.ablate_run(tmp_path / "a")
    with pytest.raises(RunError, match=re.escape(f"Give the runs inside it: {run}")):
        write_report([tmp_path], tmp_path / "out.html")
    assert not (tmp_path / "out.html").exists()
