"""Planted heads are found, and no other head of the model gets their tag."""

from __future__ import annotations

import pytest

import headlens
from headlens.corpus.conllu import read_conllu
from headlens.model.heads import Head
from headlens.scoring.classify import Sources
from support import planted


@pytest.fixture(scope="module")
def corpus(tmp_path_factory):
    path = tmp_path_factory.mktemp("planted") / "planted.conllu"
    path.write_text(planted.corpus_text(), encoding="utf-8")
    return read_conllu([path])


def tagged(found: headlens.Classification, tag: str) -> set[Head]:
    rows = found.tags[found.tags["tags"].str.split(";").map(lambda tags: tag in tags)]
    return {Head(row.stack, row.layer, row.head) for row in rows.itertuples()}


def row(found: headlens.Classification, head: int, measure: str):
    scores = found.scores
    return scores[(scores["layer"] == 0) & (scores["head"] == head) & (scores["measure"] == measure)].iloc[0]


def test_bert(corpus):
    heads = {
        0: planted.previous_token(),
        1: planted.looks_at(["[SEP]"]),
        2: planted.gold_arc(),
        3: planted.same_entity(),
        4: planted.reversed_arc(),
    }
    lens = headlens.load(planted.bert(heads), planted.tokenizer())
    found = headlens.classify(lens, corpus)
    assert tagged(found, "positional") == {Head("encoder", 0, 0)}
    assert tagged(found, "delimiter") == {Head("encoder", 0, 1)}
    assert tagged(found, "syntactic") == {Head("encoder", 0, 2), Head("encoder", 0, 4)}
    assert tagged(found, "coreference") == {Head("encoder", 0, 3)}
    assert row(found, 0, "argmax@-1").score == 1
    assert row(found, 0, "mass@-1").score == pytest.approx(1, abs=1e-6)
    assert row(found, 1, "special").score == pytest.approx(1, abs=1e-6)
    assert row(found, 2, "obj:dependent->head").score == 1
    assert row(found, 2, "obj:head->dependent").score < 0.5
    assert row(found, 4, "obj:head->dependent").score == 1
    assert row(found, 4, "obj:dependent->head").score == 0
    assert row(found, 3, "antecedent").score == 1
    assert row(found, 3, "antecedent:proper").n == 42
    assert row(found, 3, "antecedent@words").score == 1


@pytest.mark.parametrize(("copies", "expected"), [(1.0, {Head("decoder", 1, 0)}), (-1.0, set())])
def test_induction_and_duplicate_token(copies, expected):
    lens = headlens.load(planted.induction_gpt2(copies), planted.tokenizer(special=False))
    found = headlens.classify(lens, tags=["induction", "duplicate-token"])
    assert tagged(found, "induction") == expected
    assert tagged(found, "duplicate-token") == {Head("decoder", 0, 1)}
    scores = found.scores.set_index(["layer", "head", "measure"])["score"]
    assert scores[1, 0, "prefix-matching"] > 0.9
    assert scores[1, 0, "copying"] == pytest.approx(copies, abs=1e-3)
    assert scores[0, 1, "duplicate-token"] == pytest.approx((1 / 2 + 2 / 3) / 2, abs=1e-3)


def test_rare_token(tmp_path):
    path = tmp_path / "rare.conllu"
    path.write_text(planted.rare_text(), encoding="utf-8")
    heads = {1: planted.previous_token(), 3: planted.rare_words()}
    lens = headlens.load(planted.bert(heads, uniform=True), planted.tokenizer())
    found = headlens.classify(lens, path, ["rare-token", "broad"])
    assert tagged(found, "rare-token") == {Head("encoder", 0, 3)}
    assert row(found, 3, "rare-token").score == 1
    uniform = {Head("encoder", 0, head) for head in (0, 2, 4, 5)}
    assert tagged(found, "broad") == uniform | {Head("encoder", 1, head) for head in range(6)}
    assert row(found, 0, "entropy").score == pytest.approx(1)


def test_semantic(corpus, tmp_path):
    table = tmp_path / "relations.tsv"
    table.write_text("".join(f"dep{i}\ttop{i}\n" for i in range(planted.PAIRS)), encoding="utf-8")
    heads = {2: planted.gold_arc(), 4: planted.same_entity(), 0: planted.previous_token()}
    lens = headlens.load(planted.bert(heads), planted.tokenizer())
    found = headlens.classify(lens, corpus, ["semantic"], sources=Sources(relations=table))
    assert tagged(found, "semantic") == {Head("encoder", 0, 2)}
    # half of the pairs are read from the other side, where the head does not look
    assert row(found, 2, "related").score == pytest.approx(0.5, abs=0.05)


def test_gpt2(corpus):
    heads = {
        0: planted.previous_token(),
        1: planted.first_position(),
        2: planted.gold_arc(),
        3: planted.same_entity(),
    }
    lens = headlens.load(planted.gpt2(heads), planted.tokenizer(special=False))
    found = headlens.classify(lens, corpus)
    assert tagged(found, "positional") == {Head("decoder", 0, 0)}
    assert tagged(found, "syntactic") == {Head("decoder", 0, 2)}
    assert tagged(found, "coreference") == {Head("decoder", 0, 3)}
    assert tagged(found, "delimiter") == {Head("decoder", 0, 1)}
    assert row(found, 1, "first-token").score == pytest.approx(1, abs=1e-6)
    assert row(found, 1, "special").n == 0
    assert row(found, 0, "argmax@+1").n == 0
    assert row(found, 2, "obj:dependent->head").score == 1
