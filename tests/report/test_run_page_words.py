"""What the page of finished runs says in sentences."""

import numpy as np
import pandas as pd

from headlens.util.files import CONTROLS
from support import finishedruns, scored
from support.runpages import cells, notes, page_of, said


def test_sentences_of_classify(tmp_path):
    page = page_of(finishedruns.classify_run(tmp_path / "c"))
    assert page.xpath("//h1")[0].text == "What the heads of toy look at"
    assert said(page) == [
        "4 heads of ToyModel were scored on toy.conllu: 3 documents, 12 sentences, 99 words.",
        "2 of 4 heads are tagged Ssyntactic; the clearest is 1.1, for obj, from dependent to head "
        "(obj:dependent->head): 70 % against 25 % for the best baseline (95 % interval of the difference "
        "+40 to "
        "+53 points, n = 1,234).",
        "1 of 4 heads is tagged Ppositional; the clearest is 0.0, for largest weights on offset -1 "
        "(argmax@-1): "
        "95 % against 25 % for the baseline (95 % interval of the difference +65 to +78 points, n = 1,234).",
        "1 of 4 heads is tagged Ddelimiter; the clearest is 0.1, for weight on special tokens (special): "
        "70 % "
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


def test_checks_that_failed(tmp_path):
    checks = {
        "rows": {"passed": True, "said": "rows sum to 1"},
        "padding": {"passed": False, "said": "states differ by 0.3", "meaning": "Scores <depend> on it."},
        "windows": {"passed": None, "said": "no masks"},
    }
    told = "The check padding failed: states differ by 0.3. Scores <depend> on it."
    assert notes(page_of(finishedruns.classify_run(tmp_path / "c", checks=checks)))[0] == told
    assert notes(page_of(finishedruns.ablate_run(tmp_path / "a", checks=checks)))[0] == told
    assert "padding" not in str(notes(page_of(finishedruns.classify_run(tmp_path / "d", checks=["padding"]))))


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
    table["control_of"], table["tag"] = ["", "tag syntactic"], ["syntactic", ""]
    controls = pd.DataFrame(
        [("tag syntactic", "spearman", 0.3, 0.45, 0.4, 0.48, 1 / 21, 20, 0)], columns=CONTROLS
    )
    page = page_of(finishedruns.ablate_run(tmp_path / "a", table, controls))
    assert said(page)[1:] == [
        "Of 1 set of heads taken out together, 1 makes spearman significantly worse, and none "
        "significantly better.",
        "Without all heads tagged Ssyntactic (1 head): spearman 0.3000 instead of 0.5000, -0.2000 (95 % "
        "interval "
        "-0.2500 to -0.1500, q = 0.001).",
        "Against random sets with as many heads of each layer: 1 of 1 set is worse than nearly all (p of "
        "at most "
        "0.05, of each alone); with 20 random sets a p below 0.048 cannot come out.",
        "tag syntactic: 0.3000; without random sets 0.4500 on average (0.4000 to 0.4800), 0 of 20 as bad "
        "or worse.",
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


def test_a_largest_loss_that_is_not_significant_is_not_claimed(tmp_path):
    table = finishedruns.ablation_rows().assign(q_value=0.3, no_significant_loss=True)
    sentences = said(page_of(finishedruns.ablate_run(tmp_path / "a", table)))
    assert sentences[1].startswith("Taken out alone, none of 4 heads matter ")
    assert sentences[2].endswith("q = 0.3), which is not significant.")
    assert sentences[3].startswith("Without 4 heads, each alone, nothing significant changes.")


def tagged(path, tag, score, baseline=0.0, **ends):
    """A run of four heads of which one carries a tag."""
    heads = scored.tag_rows(2, 2, tags={("encoder", 0, 0): [tag]})
    rows = scored.score_rows(
        heads, tag, "entropy", lambda layer, head: 0.1 if layer or head else score, baseline=baseline
    )
    rows["tagged"] = rows["score"] > 0.5
    scored.write_run(path, rows.assign(**ends), heads)
    return said(page_of(path))[1]


def test_a_level_is_no_difference(tmp_path):
    close = tagged(tmp_path / "a", "broad", 0.9034, ci_low=0.9012, ci_high=0.9049)
    assert close.endswith(
        "for entropy (entropy): 90.3 % of what it could be (95 % interval 90.1 to 90.5 %, n = 1,234)."
    )
    wide = tagged(tmp_path / "b", "broad", 0.93, ci_low=0.91, ci_high=0.96)
    assert wide.endswith(": 93 % of what it could be (95 % interval 91 to 96 %, n = 1,234).")


def test_what_classify_did_not_define_is_not_a_number(tmp_path):
    undefined = {"ci_low": np.nan, "ci_high": np.nan}
    assert tagged(tmp_path / "a", "broad", 0.93, **undefined).endswith(
        ": 93 % of what it could be (no interval, n = 1,234)."
    )
    assert tagged(tmp_path / "b", "own", 0.93, baseline=np.nan, **undefined).endswith(
        ": 93 %, no baseline (no interval, n = 1,234)."
    )
    assert tagged(tmp_path / "c", "own", 0.996, baseline=0.25).count("99.6 % against 25 %") == 1
