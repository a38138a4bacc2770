"""A scorer of one's own: one small class and one line in `SCORERS`."""

from __future__ import annotations

import inspect

import pytest
import torch

import headlens
from headlens.scoring.base import Counts, Gold, Rule, Scorer, TokenView
from headlens.scoring.scorers import SCORERS
from support import planted


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
