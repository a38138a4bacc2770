"""A scorer of one's own: one small class and one line in `SCORERS`."""

from __future__ import annotations

import inspect

import lxml.html
import pandas as pd
import pytest
import torch
from click.testing import CliRunner

import headlens
from headlens.cli import main
from headlens.report.artist import report_page
from headlens.report.canvas import style_of
from headlens.report.tag_figures import draw_all
from headlens.scoring.base import Counts, Gold, Rule, Scorer, TokenView
from headlens.scoring.scorers import SCORERS
from support import planted, scored
from support.pictures import said


class LastToken(Scorer):
    """Mean weight on the last token of the input, against uniform weights."""

    tag = "last-token"
    rules = {"last-token": Rule(on="score", margin=0.5)}  # noqa: RUF012
    measures = ("last-token",)

    def __call__(self, view: TokenView) -> Counts:
        real = view.batch.real
        last = view.keys(real & (real.flip(1).cumsum(1).flip(1) == 1))  # [input, key]
        counts = (view.visible & last[:, None]).any(-1) & view.counted  # [input, query]
        mass = torch.einsum("bhqk,bk,bq->bh", view.pattern, last.float(), counts.float())
        chance = (counts / view.n_visible.clamp(min=1)).sum(1)  # [input]
        return Counts(mass[:, None], Gold(counts.sum(1)[:, None], chance[:, None, None]))


@pytest.fixture
def found(monkeypatch, tmp_path):
    monkeypatch.setitem(SCORERS, LastToken.tag, LastToken)
    path = tmp_path / "planted.conllu"
    path.write_text(planted.corpus_text(), encoding="utf-8")
    lens = headlens.load(planted.bert({1: planted.looks_at(["[SEP]"])}), planted.tokenizer())

    def classify(**options):
        return headlens.classify(lens, path, ["last-token", "delimiter"], **options)

    return classify


def test_twenty_lines():
    assert len(inspect.getsource(LastToken).splitlines()) <= 20


def test_rows_tag_and_evidence(found):
    run = found()
    rows = run.scores[run.scores["tag"] == "last-token"]
    assert len(rows) == 12
    assert rows.loc[rows["tagged"], ["layer", "head"]].to_numpy().tolist() == [[0, 1]]
    planted_head = rows[rows["tagged"]].iloc[0]
    assert planted_head["score"] == pytest.approx(1, abs=1e-6)
    assert 0.05 < planted_head["baseline"] < 0.2
    assert planted_head["n"] == 1610  # every token of the corpus, special ones with them
    assert planted_head["ci_low"] > 0.8
    tags = run.tags.set_index(["layer", "head"])
    assert set(tags.loc[(0, 1), "tags"].split(";")) == {"last-token", "delimiter"}
    assert "last-token: last-token 1.00 against" in tags.loc[(0, 1), "evidence"]


def test_its_margin_is_an_option(found):
    from headlens.scoring.evidence import margins_in_force

    assert margins_in_force({})["last-token"] == 0.5
    everywhere = found(margins={"last-token": 0.0}).scores
    assert everywhere[everywhere["tag"] == "last-token"]["tagged"].sum() >= 1
    run = found(margins={"last-token": 1.0})
    rows = run.scores[run.scores["tag"] == "last-token"]
    assert (rows["tagged"] == (rows["score"] >= 1)).all()
    assert run.run["margins"]["last-token"] == 1.0


@pytest.mark.parametrize("causal", [False, True])
def test_it_is_right_about_padding_and_blocks(causal):
    from support.handmade import item, one_batch, random_pattern, site, tally

    batch = one_batch([item([("a", -1, "root")] * 5), item([("a", -1, "root")] * 2)])
    for left in (False, True):
        batch = one_batch(list(batch.items), left)
        pattern = random_pattern(batch, 2, causal)
        for size in (1, 3, None):
            made = tally(LastToken(), site(2, causal), batch, pattern, causal, size)
            expected = torch.zeros(2)
            for index, length in enumerate(len(thing.encoded) for thing in batch.items):
                start = 7 - length if left else 0
                queries = [start + length - 1] if causal else range(start, start + length)
                expected += sum(pattern[index, :, q, start + length - 1] for q in queries)
            torch.testing.assert_close(made.score[0, 0].float(), expected)
            assert made.n[0, 0].sum() == (2 if causal else 7 + 4)


def test_what_it_does_not_say_of_itself(found):
    assert (style_of("last-token").colour, style_of("last-token").letter) == ("#BBBBBB", "l")
    assert LastToken.in_words("last-token:x") == "last-token:x"


def test_what_it_says_of_itself_is_on_the_page_in_the_figures_and_in_help(tmp_path, monkeypatch):
    class Told(LastToken):
        """Not this."""

        colour, letter, meaning = "#123456", "L", "It looks at the end."
        held_against, axis, baseline, row = "even weights", "weight on the end", "uniform attention", "end"
        words = {"last-token": "weight at the end"}  # noqa: RUF012
        anywhere = True

    monkeypatch.setitem(SCORERS, "last-token", Told)
    heads = scored.tag_rows(1, 2, tags={("encoder", 0, 1): ["last-token"], ("encoder", 0, 0): ["other"]})
    rows = [scored.score_rows(heads, tag, tag, lambda layer, head: 0.9) for tag in ("other", "last-token")]
    scores = pd.concat(rows)
    run = scored.write_run(tmp_path / "run", scores, heads, inputs={"documents": {"read": 3}})
    page = lxml.html.fromstring(report_page([run]))
    texts = {dt.text: dt.getnext().text for dt in page.xpath("//dt")}
    assert texts["last-token"] == "It looks at the end."
    chip = page.xpath('//a[@class="tag"][contains(., "last-token")]/span')[0]
    assert (chip.text, chip.get("style")) == ("L", "background:#123456;color:white")
    assert "for weight at the end (last-token): 90 % against 25 % for even weights" in page.text_content()
    assert "rare-token, broad" in page.text_content().partition("Not looked for:")[2].partition("last-t")[0]
    assert "broad and last-token heads were scored on whole documents (3 inputs)" in page.text_content()
    figures = dict(draw_all(scores, heads, "toy"))
    assert figures["best-last-token"].axes[0].get_xlabel() == "weight on the end"
    assert "the baseline (uniform attention)" in said(figures["best-last-token"])
    assert [text.get_text() for text in figures["tags"].axes[0].texts] == ["o", "L"]
    told = CliRunner().invoke(main, ["classify", "-h"]).stdout
    told = " ".join(told.split()).replace("- ", "-")  # lines may break behind a hyphen
    assert "rare-token, broad, last-token." in told
    assert "score positional, delimiter, broad and last-token heads on whole documents" in told
