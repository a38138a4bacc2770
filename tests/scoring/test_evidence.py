"""From sums to tags: cross-fitting, margins, false-discovery control."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
import torch

import headlens
from headlens.errors import InputError
from headlens.model.devices import HostTransfer
from headlens.scoring.base import Counts, Tally, cross_fit
from headlens.scoring.evidence import Settings, margins_in_force, score_table, tag_table
from headlens.scoring.scorers.copying import Induction
from headlens.scoring.scorers.coreference import Coreference
from headlens.scoring.scorers.delimiter import Delimiter
from headlens.scoring.scorers.positional import Positional
from headlens.scoring.scorers.rare_token import RareToken
from headlens.scoring.scorers.syntactic import FARTHEST, Syntactic
from headlens.util.files import SCORES, TAGS
from support.handmade import item, one_batch, site


def made(scorer, score, n, baseline) -> Tally:
    """A tally of one measure from arrays [unit, head], [unit], [unit, baseline]; other measures are empty."""
    score, n, baseline = (np.asarray(x, dtype=float) for x in (score, n, baseline))
    where = site(score.shape[1])
    tally = Tally.empty(scorer, (where,), len(n), shared=True)
    tally.score[:, 0] = torch.from_numpy(score)
    tally.n[:, 0, 0] = torch.from_numpy(n)
    tally.baseline[:, 0, 0, : baseline.shape[1]] = torch.from_numpy(baseline)
    return tally


def test_cross_fit_counts_each_half_by_the_others_choice():
    # units 0, 2 like baseline 0; units 1, 3 like baseline 1: each half is judged by the wrong one
    sums = np.array([[5, 1], [2, 7], [6, 0], [1, 9]], dtype=float)[:, None]
    assert cross_fit(sums)[:, 0].tolist() == [1, 2, 0, 1]
    # what both halves like is kept
    sums = np.array([[1, 4], [0, 3], [2, 2], [5, 6]], dtype=float)[:, None]
    assert cross_fit(sums)[:, 0].tolist() == [4, 3, 2, 6]


def test_cross_fit_breaks_ties_by_all_units():
    # the first half likes baselines 0 and 2 alike; over all units 2 does better
    sums = np.array([[1, 0, 1], [0, 0, 2], [1, 0, 1], [0, 0, 2]], dtype=float)[:, None]
    assert cross_fit(sums)[:, 0].tolist() == [1, 2, 1, 2]


@pytest.mark.parametrize("share", [float("nan"), float("inf"), 2, -0.1])
def test_margins_are_shares(share):
    with pytest.raises(InputError) as error:
        margins_in_force({"mass": share})
    assert str(error.value) == (
        f"Expected a share from 0 to 1 for the margin mass, found {share}. Its default is 0.5."
    )


def test_cross_fit_of_a_half_that_saw_nothing_uses_the_best_of_all():
    sums = np.array([[1, 4], [0, 0], [2, 3], [0, 0]], dtype=float)[:, None]
    assert cross_fit(sums)[:, 0].tolist() == [4, 0, 3, 0]


def test_score_baseline_and_effect_are_ratios_of_sums():
    tally = made(Delimiter(), [[3], [1], [5]], [4, 2, 10], [[1], [1], [2]])
    row = score_table([tally], {}, Settings(min_n=2)).iloc[0]
    assert row["score"] == pytest.approx(9 / 16)
    assert row["baseline"] == pytest.approx(4 / 16)
    assert row["effect"] == pytest.approx(5 / 16)
    assert row["n"] == 16
    assert row["ci_low"] <= row["effect"] <= row["ci_high"]


def test_columns():
    table = score_table([made(Delimiter(), [[1], [1]], [2, 2], [[0], [0]])], {}, Settings())
    assert list(table.columns) == SCORES
    assert list(tag_table(table).columns) == TAGS


def test_few_decisions_are_written_but_not_tested():
    units = 20
    tally = made(Delimiter(), np.full((units, 1), 0.95), np.ones(units), np.full((units, 1), 0.1))
    row = score_table([tally], {}, Settings(min_n=30)).iloc[0]
    assert row["score"] == pytest.approx(0.95)
    assert np.isnan(row["p_value"])
    assert np.isnan(row["q_value"])
    assert not row["tagged"]
    assert score_table([tally], {}, Settings(min_n=20)).iloc[0]["tagged"]


def test_not_measured_is_nan_and_no_tag():
    table = score_table([made(Delimiter(), [[0], [0]], [0, 0], [[0], [0]])], {}, Settings())
    assert table[["score", "baseline", "effect", "p_value", "q_value"]].isna().all().all()
    assert not table["tagged"].any()
    assert (tag_table(table)["tags"] == "").all()


@pytest.mark.parametrize(
    ("scorer", "measure", "share", "baseline", "expected"),
    [
        (Positional((-1,)), "argmax@-1", 0.91, 0.1, True),
        (Positional((-1,)), "argmax@-1", 0.89, 0.1, False),
        (Delimiter(), "special", 0.61, 0.1, True),
        (Delimiter(), "special", 0.60, 0.1, False),
        (Syntactic(("obj",)), "obj:dependent->head", 0.41, 0.3, True),
        (Syntactic(("obj",)), "obj:dependent->head", 0.39, 0.3, False),
        (Syntactic(("punct",)), "punct:dependent->head", 0.99, 0.3, False),
        (Syntactic(("dep",)), "dep:dependent->head", 0.99, 0.3, False),
        (Coreference(), "antecedent", 0.56, 0.5, True),
        (Coreference(), "antecedent", 0.54, 0.5, False),
    ],
)
def test_margins(scorer, measure, share, baseline, expected):
    units, rng = 40, np.random.default_rng(0)
    noise = rng.normal(0, 0.01, (units, 1))
    tally = made(
        scorer, 100 * (share + noise - noise.mean()), np.full(units, 100), np.full((units, 1), 100 * baseline)
    )
    row = score_table([tally], {}, Settings()).iloc[0]
    assert row["measure"] == measure
    assert row["tagged"] == expected


def test_coreference_must_beat_both_baselines_overall():
    # each half would choose the baseline that is weak on the other: the head beats the chosen one by far
    units = 40
    even = np.arange(units) % 2 == 0
    nearest, same = np.where(even, 80, 0), np.where(even, 0, 70)
    tally = made(Coreference(), np.full((units, 1), 42), np.full(units, 100), np.stack([nearest, same], 1))
    row = score_table([tally], {}, Settings()).iloc[0]
    assert row["baseline"] == 0
    assert row["effect"] == pytest.approx(0.42)
    assert not row["tagged"]  # 0.42 is not 0.05 above the nearest mention's 0.40


def test_false_discoveries_are_controlled_within_a_tag_and_among_its_grounds():
    rng = np.random.default_rng(1)
    units, heads = 30, 200
    score = rng.normal(0.3, 0.2, (units, heads)) * 10
    score[:, :5] += 3
    syntactic = made(Syntactic(("obj",)), score, np.full(units, 10), np.full((units, 1), 3))
    table = score_table([syntactic], {}, Settings())
    obj = table[table["measure"] == "obj:dependent->head"]
    from scipy.stats import false_discovery_control

    assert np.allclose(obj["q_value"], false_discovery_control(obj["p_value"]))
    assert set(obj.index[obj["tagged"]]) == set(obj.index[:5])
    punct = made(Syntactic(("punct",)), score, np.full(units, 10), np.full((units, 1), 3))
    assert score_table([punct], {}, Settings())["q_value"].isna().all()
    delimiter = made(Delimiter(), score, np.full(units, 10), np.full((units, 1), 3))
    both = score_table([syntactic, delimiter], {}, Settings())
    assert np.allclose(both[both["measure"] == "obj:dependent->head"]["q_value"], obj["q_value"])


def test_the_best_offset_explains_a_positional_head_away():
    units = 30
    right = np.full((units, 1), 9.0)
    offsets = np.zeros((units, 2 * FARTHEST + 1))
    offsets[:, FARTHEST + 1] = 9
    row = score_table([made(Syntactic(("det",)), right, np.full(units, 10), offsets)], {}, Settings()).iloc[0]
    assert (row["score"], row["baseline"], row["effect"]) == (0.9, 0.9, 0.0)
    assert not row["tagged"]


def test_a_syntactic_head_must_beat_what_popular_words_give():
    units = np.full(40, 100)
    tally = made(Syntactic(("obj",)), np.full((40, 2), 60), units, np.full((40, 1), 30))
    tally.chance[:, 0] = torch.tensor([40.0, 55.0])
    rows = score_table([tally], {}, Settings()).iloc[:2]
    assert rows["baseline"].tolist() == [0.3, 0.3]
    assert rows["effect"].tolist() == pytest.approx([0.3, 0.3])
    assert rows["tagged"].tolist() == [True, False]


def test_a_rare_token_head_must_beat_the_chance_of_its_own():
    # 100 decisions of a unit: both heads hit 60; chance gives the first 20 and the second 55
    tally = made(RareToken(), np.full((40, 2), 60), np.full(40, 100), np.zeros((40, 1)))
    tally.chance[:, 0] = torch.tensor([20.0, 55.0])
    rows = score_table([tally], {}, Settings()).iloc[:2]
    assert rows["baseline"].tolist() == pytest.approx([0.2, 0.55])
    assert rows["effect"].tolist() == pytest.approx([0.4, 0.05])
    assert rows["tagged"].tolist() == [True, False]


def test_layers_of_unequal_numbers_of_heads_stay_apart():
    sites = tuple(replace(site(heads), index=layer, layer=layer) for layer, heads in enumerate((2, 3, 1)))
    batch = one_batch([item([("x", -1, "root")])])
    tally = Tally.empty(RareToken(), sites, 1, shared=True)
    for layer, where in enumerate(sites):
        scores = 10.0 * layer + torch.arange(where.n_heads)
        tally.add(where, batch, Counts(scores[None, None], chance=scores[None, None] + 5), HostTransfer())
    assert tally.score[0, 0].tolist() == [0, 1, 10, 11, 12, 20]
    assert tally.chance[0, 0].tolist() == [5, 6, 15, 16, 17, 25]
    assert [(head.layer, head.head) for head in tally.heads] == [
        (0, 0),
        (0, 1),
        (1, 0),
        (1, 1),
        (1, 2),
        (2, 0),
    ]


def test_strongest_evidence_comes_first():
    units = np.full(40, 100)
    first = made(Delimiter(), np.full((40, 1), 65), units, np.full((40, 1), 10))
    second = made(Syntactic(("obj",)), np.full((40, 1), 95), units, np.full((40, 1), 30))
    tags = tag_table(score_table([first, second], {}, Settings()))
    assert tags["tags"].tolist() == ["syntactic;delimiter"]
    assert tags["evidence"].tolist() == [
        "syntactic: obj:dependent->head 0.95 against 0.30 (n=4000); "
        "delimiter: special 0.65 against 0.10 (n=4000)"
    ]


def test_margins_can_be_set_and_are_checked():
    units = np.full(40, 100)
    tally = made(Delimiter(), np.full((40, 1), 45), units, np.full((40, 1), 10))
    assert not score_table([tally], {}, Settings()).iloc[0]["tagged"]
    assert score_table([tally], {"special": 0.4}, Settings()).iloc[0]["tagged"]
    assert margins_in_force({"special": 0.4})["special"] == 0.4
    assert margins_in_force({})["mass"] == 0.5
    with pytest.raises(InputError) as error:
        margins_in_force({"speshul": 0.3})
    assert str(error.value) == (
        "There is no margin 'speshul'. Choose one of: argmax, mass, special, punctuation, first-token, "
        "syntactic, coreference, semantic, prefix-matching, duplicate-token, rare-token, entropy."
    )


@pytest.mark.parametrize(("copying", "expected"), [(0.5, True), (-0.5, False), (None, True)])
def test_induction_needs_copying_where_it_can_be_measured(copying, expected):
    tally = made(Induction(), np.full((40, 1), 80), np.full(40, 100), np.full((40, 1), 5))
    if copying is not None:
        tally.score[:, 1] = 2 * copying
        tally.n[:, 1] = 2
    table = score_table([tally], {}, Settings())
    assert table["tagged"].tolist() == [expected, False]


def test_public_names():
    assert callable(headlens.classify)
