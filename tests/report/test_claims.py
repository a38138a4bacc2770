"""Sentences that figures, pages and the screen share."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest

from headlens.ablation.result import BEST
from headlens.report.ablation_figures import pruning_figure
from headlens.report.page.ablate import on_screen
from headlens.report.words import one_head, too_few_draws
from headlens.util.files import CONTROLS, write_csv
from headlens.util.formatting import per_cent
from support import finishedruns
from support.pictures import said as said_by_figure
from support.runpages import page_of, said
from support.sweeps import cumulative, each, heads_of


def layers(rows):
    """Layers with one head kept: delta of a loss, p and q."""
    made = [(str(n), f"{n}.0", d, d - 0.1, d + 0.1, p, q) for n, (d, p, q) in enumerate(rows)]
    return pd.DataFrame(made, columns=BEST)


LAYERS = layers([(0.5, 0.001, 0.01), (0.2, 0.03, 0.06), (0.1, 0.4, 0.5), (-0.4, 0.001, 0.01), (np.nan,) * 3])


def test_nothing_lost_goes_by_p_and_a_loss_by_q():
    assert one_head(LAYERS, larger_is_better=False) == (
        "With one head kept, 1 of 5 layers is significantly worse (q < 0.05) and 2 lose nothing significant "
        "(p of at least 0.05), which does not show that one head is enough; 1 of those is significantly "
        "better; 1 loses by p alone, so neither is claimed; 1 could not be judged"
    )


def test_the_page_says_of_layers_what_the_figure_says(tmp_path):
    rows = finishedruns.ablation_rows("only", "loss", 2.0)
    run = finishedruns.ablate_run(tmp_path / "a", rows, larger_is_better={"loss": False})
    write_csv(LAYERS, run / "best_of_layers.csv", BEST)
    sentences = said(page_of(run))[1:]
    assert sentences[0].startswith(f"{one_head(LAYERS, larger_is_better=False)}. What is measured is loss;")
    assert sentences[1:] == [
        "Layer 0 with head 0.0 alone: +0.5000 (95 % interval +0.4000 to +0.6000, q = 0.01).",
        "Layer 3 with head 3.0 alone: -0.4000 (95 % interval -0.5000 to -0.3000, q = 0.01).",
    ]


def cumulative_run(path, share, **model):
    table = finishedruns.ablation_rows("cumulative").iloc[[1, 2, 0, 3]].reset_index(drop=True)
    names = [f"encoder.0.{head}" for head in range(4)]
    table["removed"] = [" ".join(names[: n + 1]) for n in range(4)]
    table["condition"] = [f"least important {n + 1} of 4" for n in range(4)]
    table["n_removed"] = [1, 2, 3, 4]
    more = {"largest_share_without_significant_loss": share, "importance_estimated_on": "one half"}
    return finishedruns.ablate_run(path, table, model={"name": "toy", **model}, **more)


def test_what_can_go_quotes_the_p_that_it_goes_by_and_says_of_which_heads(tmp_path):
    proof = (
        ": spearman 0.5000 instead of 0.5000, +0.0000 (95 % interval -0.0500 to +0.0500, p = 0.5, q = 1); "
        "what can go ends where p < 0.05."
    )
    whole = said(page_of(cumulative_run(tmp_path / "a", 0.5)))[1]
    assert whole == f"50% of the heads (2 of 4) can go without a significant loss of spearman{proof}"
    some = said(page_of(cumulative_run(tmp_path / "b", 0.5, heads=72)))[1]
    assert some == (
        "2 of the 4 heads in question (3% of the model's 72) can go without a significant loss of "
        f"spearman{proof}"
    )
    none = said(page_of(cumulative_run(tmp_path / "c", 0.0)))[1]
    assert none.startswith(
        "No step goes without a significant loss of spearman: already 1 head of 4 costs something: "
    )


def test_the_screen_says_of_which_heads(tmp_path):
    sweep = cumulative([0.0, 0.1, 0.4, 0.9], [1, 0.5, 0.01, 0.01], 0.5)
    sweep.run.update(heads_of_model=72)
    assert (
        "4 of the 8 heads in question (6% of the model's 72) can go without a significant loss of loss: "
        "loss 1.1000 instead of 1.0000, +0.1000 (95 % interval +0.0000 to +0.2000, p = 0.5, q = 0.5); what "
        "can go ends where p < 0.05.\n"
    ) in on_screen(sweep)
    assert said_by_figure(pruning_figure(sweep)).startswith("4 of the 8 heads in question (6% of the")


@pytest.mark.parametrize(
    ("draws", "count", "luck"),
    [
        (19, "1 of 1 set is", "with 19 random sets a p below 0.05 cannot come out."),
        (18, "none of 1 set are", "with 18 random sets a p of at most 0.05 cannot come out: it takes 19."),
    ],
)
def test_random_sets_on_the_page_as_in_the_figure(tmp_path, draws, count, luck):
    table = finishedruns.ablation_rows("tags").head(1).assign(condition="tag syntactic", tag="syntactic")
    row = ("tag syntactic", "spearman", 0.3, 0.45, 0.4, 0.48, 1 / (1 + draws), draws, 0)
    controls = pd.DataFrame([row], columns=CONTROLS)
    sentences = said(page_of(finishedruns.ablate_run(tmp_path / "a", table, controls)))
    assert sentences[3] == (
        f"Against random sets with as many heads of each layer: {count} worse than nearly all (p of at most "
        f"0.05, of each alone); {luck}"
    )
    assert bool(too_few_draws(controls)) == (draws == 18)


def undefined(table, place):
    table.loc[place, ["value", "delta", "ci_low", "ci_high", "p_value", "q_value"]] = np.nan
    return table


def test_what_is_not_defined_is_not_counted_as_unchanged(tmp_path):
    page = page_of(finishedruns.ablate_run(tmp_path / "a", undefined(finishedruns.ablation_rows(), 2)))
    assert said(page)[1].startswith(
        "Taken out alone, 1 of 3 heads that could be judged (1 could not) matters"
    )
    assert said(page)[3].startswith("Without 1 other head, each alone, nothing significant changes.")
    sweep = each([0.4, 0.0, np.nan], [0.01, 1, np.nan], heads_of(1, 3))
    text = on_screen(sweep)
    assert "Taken out alone, 1 of 2 heads that could be judged (1 could not) matters" in text
    assert "Without 1 other head, each alone, nothing significant changes." in text
    assert "nan" not in text


def test_no_sentence_says_nan(tmp_path):
    table = finishedruns.ablation_rows()
    table.loc[0, ["ci_low", "ci_high", "p_value", "q_value"]] = np.nan
    page = page_of(finishedruns.ablate_run(tmp_path / "a", table))
    assert said(page)[2] == (
        "The largest loss is that without head 0.0: spearman 0.3000 instead of 0.5000, -0.2000 (no interval, "
        "no q-value), which could not be tested."
    )
    table = finishedruns.ablation_rows("layer").assign(condition=[f"layer {n}" for n in range(4)])
    table.loc[0, ["ci_low", "ci_high", "p_value", "q_value"]] = np.nan
    table.loc[1, "value"] = np.inf
    table.loc[1, ["delta", "ci_low", "ci_high", "p_value", "q_value"]] = np.nan
    sentences = said(page_of(finishedruns.ablate_run(tmp_path / "b", table)))
    assert "Of 2 sets of heads taken out together that could be judged (2 could not), " in sentences[1]
    assert sentences[2] == (
        "Without layer 0 (1 head): spearman 0.3000 instead of 0.5000, -0.2000 (no interval, no q-value)."
    )
    assert "Without layer 1 (1 head): spearman is infinite." in sentences
    assert "nan" not in " ".join(sentences)


def test_one_head_of_a_set_is_a_head(tmp_path):
    table = finishedruns.ablation_rows("set").head(1).assign(condition="set")
    sentence = said(page_of(finishedruns.ablate_run(tmp_path / "a", table)))[1]
    assert sentence.startswith("Without head 0.0: spearman 0.3000 instead of 0.5000")


def test_per_cent_that_reads_0_or_100_is_that():
    assert [per_cent(x) for x in (0, 1, 0.5, 1 / 320, 319 / 320, 1 / 5000, 0.996)] == [
        "0", "100", "50", "0.3", "99.7", "0.02", "99.6",
    ]  # fmt: skip
