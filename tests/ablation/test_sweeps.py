"""Every kind of sweep, on models in which it is known what each head carries."""

from __future__ import annotations

from itertools import pairwise

import numpy as np
import pandas as pd
import pytest
import torch
from scipy import stats

import headlens
from headlens.ablation.plan import Choice, cumulative, tags
from headlens.ablation.result import headline
from headlens.ablation.sweep import halves, sweep
from headlens.benchmarks.base import BenchmarkOptions
from headlens.benchmarks.registry import open_benchmark
from headlens.errors import InputError, RunError
from headlens.model.heads import Head
from headlens.util.files import TAGS, write_csv
from headlens.util.statistics import draws
from support.carriers import CARRIER, NOISE, backup_pair, benchmark_of, carriers
from support.families import build
from support.toytext import toy_pairs, toy_tokenizer, write_lines, write_pairs


def one_carrier():
    return carriers({CARRIER: (0, 16, 3.0)})


def rows_of(result):
    return result.primary.set_index("condition")


def test_a_backup_pair_hides_from_each_but_not_from_set(tmp_path):
    """Each alone: no loss. Both together: all of it."""
    lens = backup_pair()
    benchmark = benchmark_of(lens, tmp_path)
    alone = rows_of(sweep(lens, benchmark))
    assert alone["delta"].abs().max() < 0.01
    assert alone["no_significant_loss"].all()
    both = rows_of(sweep(lens, benchmark, "set", heads=[CARRIER, NOISE])).loc["set"]
    assert both["delta"] < -0.4
    assert both["q_value"] < 0.01
    assert not both["no_significant_loss"]
    assert both["removed"] == "encoder.0.1 encoder.0.2"
    assert both["n_removed"] == 2


def test_a_backup_pair_in_every_other_sweep(tmp_path):
    """One of the two is enough; a layer or a step that takes both out loses all."""
    lens = backup_pair()
    benchmark = benchmark_of(lens, tmp_path, n=48)
    layers = rows_of(sweep(lens, benchmark, "layer"))
    assert layers.loc["layer 0", "delta"] < -0.4 or np.isnan(layers.loc["layer 0", "delta"])
    assert layers.loc["layer 1", "delta"] == 0
    kept = rows_of(sweep(lens, benchmark, "only", heads="0.*"))["delta"]
    assert (kept.loc[["only head 0.1", "only head 0.2"]].abs() < 0.01).all()
    lost = kept.loc[["only head 0.0", "only head 0.3"]]
    assert (lost.isna() | (lost < -0.4)).all()
    pruned = sweep(
        lens, benchmark, "cumulative", order="shapley", permutations=4, step=0.125, draws=2
    ).primary
    out = pruned["removed"].str.split()
    both = out.map(lambda heads: {str(CARRIER), str(NOISE)} <= set(heads))
    assert both.tolist() == [False] * 7 + [True]  # shapley sees what each alone would hide
    assert (pruned["delta"][:7].abs() < 0.01).all()
    assert pruned["delta"].isna()[7] or pruned["delta"][7] < -0.4


def test_cumulative_leaves_the_carrier_to_the_end(tmp_path):
    lens = one_carrier()
    result = sweep(lens, benchmark_of(lens, tmp_path, n=48), "cumulative", step=0.25, draws=20)
    rows = result.primary
    assert rows["condition"].tolist() == [f"least important {n} of 8" for n in (2, 4, 6, 8)]
    assert rows["n_removed"].tolist() == [2, 4, 6, 8]
    assert all(str(CARRIER) not in removed.split() for removed in rows["removed"][:3])
    assert (rows["delta"][:3] == 0).all()
    assert rows["delta"][3] < -0.4 or np.isnan(rows["delta"][3])
    assert rows["no_significant_loss"].tolist()[:3] == [True] * 3
    assert result.run["largest_share_without_significant_loss"] == 0.75
    assert (result.run["heads_in_question"], result.run["heads_of_model"]) == (8, 8)
    assert result.importance["method"].unique().tolist() == ["gradient"]
    assert result.importance.sort_values("rank").iloc[0][["layer", "head"]].tolist() == [0, 1]
    assert result.run["benchmark"]["examples"] == 24
    assert result.run["importance_estimated_on"] == "a random half, 24 examples, and measured on the other"
    controls = result.controls[result.controls["metric"] == "spearman"].set_index("condition")
    assert controls["draws"].iloc[:3].tolist() == [20] * 3
    # four heads are all of layer 1, six are those and two of layer 0, every other time with the carrier
    assert (controls["random_low"] < 0.9).tolist()[:3] == [False, False, True]
    assert (controls["value"] == rows["baseline"][0]).iloc[:3].all()


def test_random_order_is_drawn_again_and_again(tmp_path):
    lens = one_carrier()
    result = sweep(lens, benchmark_of(lens, tmp_path), "cumulative", order="random", step=0.5, draws=25)
    sizes = {one.name: len(one.heads) for one in result.conditions}
    assert len(sizes) == 2 + 2 * 25
    assert {sizes[name] for name in sizes if name.endswith("4 of 8")} == {4}
    sets = {one.heads for one in result.conditions if len(one.heads) == 4}
    assert len(sets) > 15
    spread = {sum(head.layer == 0 for head in heads) for heads in sets}
    assert len(spread) > 1  # not matched by layer


def test_controls_match_size_and_layers():
    anatomy = headlens.load(build("bart")).anatomy
    order = anatomy.heads[::2] + anatomy.heads[1::2]
    made = cumulative(Choice(anatomy, anatomy.heads, order=order, step=0.2, draws=20, seed=3))
    ordered = {one.name: one for one in made if not one.control_of}
    assert [len(one.heads) for one in ordered.values()] == [5, 10, 14, 19, 24]
    random = [one for one in made if one.control_of]
    assert len(random) == 20 * 5

    def spread(heads):
        return sorted((head.stack, head.layer) for head in heads)

    for one in random:
        assert spread(one.heads) == spread(ordered[one.control_of].heads)
        assert list(one.heads) == [head for head in anatomy.heads if head in one.heads]
    assert len({one.heads for one in random if one.control_of.startswith("least important 10")}) > 15
    for draw in range(20):  # each draw grows
        sets = [set(one.heads) for one in random if one.name.startswith(f"control {draw} ")]
        assert all(small < large for small, large in pairwise(sets))
    again = cumulative(Choice(anatomy, anatomy.heads, order=order, step=0.2, draws=20, seed=3))
    assert made == again
    assert made != cumulative(Choice(anatomy, anatomy.heads, order=order, step=0.2, draws=20, seed=4))


def test_draws_of_a_tag_are_uniform_within_a_layer():
    anatomy = headlens.load(build("bert")).anatomy
    tagged = {"x": (Head("encoder", 1, 0), Head("encoder", 1, 2))}
    made = tags(Choice(anatomy, anatomy.heads, tagged=tagged, draws=3000))
    drawn = [one.heads for one in made[1:]]
    assert {head.layer for heads in drawn for head in heads} == {1}
    pairs = pd.Series([str(heads) for heads in drawn]).value_counts()
    assert len(pairs) == 6
    assert pairs.between(400, 600).all()


@pytest.mark.filterwarnings("ignore:.* does not say which model it is about")
def test_tags_against_random_sets(tmp_path):
    lens = one_carrier()
    run = tmp_path / "classify"
    named = [("encoder", layer, head) for layer in range(2) for head in range(4)]
    table = pd.DataFrame([(*name, "", "") for name in named], columns=TAGS)
    table.loc[1, "tags"] = "syntactic;broad"
    table.loc[5, "tags"] = "broad"
    table.loc[6, "tags"] = "idle"
    write_csv(table, run / "tags.csv")
    result = sweep(lens, benchmark_of(lens, tmp_path), "tags", tagged_by=run, draws=40)
    rows = rows_of(result)
    assert list(rows.index) == ["tag broad", "tag idle", "tag syntactic"]
    assert rows["removed"].tolist() == ["encoder.0.1 encoder.1.1", "encoder.1.2", "encoder.0.1"]
    assert rows["no_significant_loss"].tolist() == [False, True, False]
    controls = result.controls[result.controls["metric"] == "spearman"].set_index("condition")
    assert controls["draws"].tolist() == [40] * 3
    names = {one.name: one for one in result.conditions}
    alike = [o for o in names.values() if o.control_of == "tag syntactic" and o.heads == (CARRIER,)]
    assert 2 <= len(alike) <= 20  # one of four heads
    assert controls.loc["tag syntactic", "at_least_as_bad"] == (1 + len(alike)) / 41
    assert controls.loc["tag syntactic", "as_bad_or_worse"] == len(alike)
    assert controls.loc["tag idle", ["at_least_as_bad", "as_bad_or_worse"]].tolist() == [1, 40]
    table = result.table.set_index(["condition", "metric"])
    drawn = [table.loc[(o.name, "spearman"), "value"] for o in names.values() if o.control_of == "tag broad"]
    assert controls.loc["tag broad", "random_mean"] == pytest.approx(np.mean(drawn))
    assert controls.loc["tag broad", "random_low"] == pytest.approx(np.percentile(drawn, 2.5))
    assert table.loc[("control 0 of tag broad", "spearman"), "q_value"] is not None
    assert table[["q_value"]].isna()["q_value"].sum() == 2 * 3 * 40  # random sets have none


def test_only_one_head_of_a_layer_is_kept(tmp_path):
    lens = one_carrier()
    result = sweep(lens, benchmark_of(lens, tmp_path), "only")
    rows = rows_of(result)
    assert list(rows.index) == [f"only head {i}.{j}" for i in range(2) for j in range(4)]
    assert rows.loc["only head 0.1", "removed"] == "encoder.0.0 encoder.0.2 encoder.0.3"
    assert rows.loc["only head 0.1", "delta"] == 0
    assert (rows.loc[["only head 0.0", "only head 0.2", "only head 0.3"], "delta"] < -0.4).all()
    assert (rows["delta"].iloc[4:] == 0).all()
    best = result.best.set_index("layer")
    assert best["kept"].tolist() == ["0.1", "1.0"]
    assert (best["delta"] == 0).all()
    fewer = sweep(lens, benchmark_of(lens, tmp_path), "only", heads="0.0-1")
    assert [one.name for one in fewer.conditions] == ["only head 0.0", "only head 0.1"]
    assert fewer.conditions[0].heads == tuple(Head("encoder", 0, n) for n in (1, 2, 3))


def test_what_the_best_head_of_a_layer_loses_by_another_way(tmp_path):
    """Chosen on one half, measured on the other; the interval is that of a loop over its resamples."""
    lens = headlens.load(build("bert").bert, toy_tokenizer())
    result = sweep(lens, write_pairs(tmp_path / "p.tsv", toy_pairs()), "only")
    order = np.random.default_rng(0).permutation(24)
    first, second = sorted(order[:12]), sorted(order[12:])

    def rank(rows):  # a row is the cosine and the gold of a pair
        return stats.spearmanr(rows[:, 0], rows[:, 1]).statistic

    for row in result.best.itertuples():
        names = [f"only head {row.layer}.{head}" for head in range(4)]
        best = max(names, key=lambda name: rank(result.values[name][first]))
        assert best == f"only head {row.kept}"
        there, all_heads = result.values[best][second], result.baseline[second]
        assert row.delta == pytest.approx(rank(there) - rank(all_heads))
        picked = [np.repeat(np.arange(12), counts.astype(int)) for counts in draws(12, 0)]
        deltas = [rank(there[pick]) - rank(all_heads[pick]) for pick in picked]
        assert [row.ci_low, row.ci_high] == pytest.approx(np.nanpercentile(deltas, [2.5, 97.5]))


def test_whole_layers(tmp_path):
    lens = one_carrier()
    rows = rows_of(sweep(lens, benchmark_of(lens, tmp_path), "layer"))
    assert rows["removed"].str.split().str.len().tolist() == [4, 4]
    assert rows.loc["layer 0", "delta"] < -0.4 or np.isnan(rows.loc["layer 0", "delta"])
    assert rows.loc["layer 1", "delta"] == 0
    lens = headlens.load(build("bart"), toy_tokenizer())
    rows = rows_of(sweep(lens, write_pairs(tmp_path / "p.tsv", toy_pairs()), "layer"))
    assert list(rows.index) == ["layer encoder.0", "layer encoder.1"]


@pytest.mark.filterwarnings("ignore:None of the 1 ablations changed anything")
@pytest.mark.parametrize(("mode", "loss"), [("zero", True), ("mean", False), ("uniform", False)])
def test_a_head_with_constant_output_matters_to_zero_alone(tmp_path, mode, loss):
    """All that a constant head does is shift what the last LayerNorm sees; without it every cosine moves."""
    lens = one_carrier()
    first = lens.model.encoder.layer[0].attention
    with torch.no_grad():
        first.self.value.weight[16:24], first.self.value.bias[16:24] = (
            0,
            2.0,
        )  # head 0.2 puts out the same at every token
        first.output.dense.weight[24:32, 16:24] = 3 * torch.eye(8)
    values = sweep(lens, benchmark_of(lens, tmp_path), mode=mode, heads="0.2")
    change = np.abs(values.values["head 0.2"] - values.baseline)[:, 0].max()
    assert change > 0.05 if loss else change < 1e-6


def test_screening_measures_the_heads_that_rank_first(tmp_path):
    lens = headlens.load(build("bert"), toy_tokenizer())
    spec = write_lines(tmp_path / "t.txt", 60)
    whole = sweep(lens, spec, max_length=12)
    some = sweep(lens, spec, max_length=12, screen=3)
    gradient = some.importance[some.importance["method"] == "gradient"]
    first = gradient[gradient["rank"] <= 3]
    names = [f"head {row.layer}.{row.head}" for row in first.itertuples()]
    assert [one.name for one in some.conditions] == names
    table, full = rows_of(some), rows_of(whole)
    exact = ["value", "delta", "ci_low", "ci_high", "p_value"]
    assert table[exact].equals(full.loc[names, exact])
    padded = np.concatenate([table["p_value"], np.ones(5)])  # the five that were not measured count as well
    ranks = np.argsort(np.argsort(padded, kind="stable"))[:3] + 1
    assert (table["q_value"] <= table["p_value"] * 8 / ranks + 1e-12).all()
    assert (table["q_value"] >= full.loc[names, "q_value"] - 1e-12).all()
    each = some.importance[some.importance["method"] == "each"]
    assert each["importance"].notna().sum() == 3
    assert sorted(each["rank"].dropna()) == [1, 2, 3]
    assert some.agreement["n"].tolist() == [3]


def test_screening_by_another_order(tmp_path):
    lens = headlens.load(build("bert"), toy_tokenizer())
    some = sweep(
        lens, write_lines(tmp_path / "t.txt", 60), max_length=12, screen=2, order=("taylor", "gradient")
    )
    taylor = some.importance[some.importance["method"] == "taylor"]
    first = taylor[taylor["rank"] <= 2]
    assert [one.name for one in some.conditions] == [f"head {r.layer}.{r.head}" for r in first.itertuples()]


def test_importance_by_several_methods(tmp_path):
    lens = headlens.load(build("bert").bert, toy_tokenizer())
    spec = write_pairs(tmp_path / "p.tsv", toy_pairs())
    result = sweep(lens, spec, order=("gradient", "integrated", "each"), heads="0.*")
    assert result.importance["method"].unique().tolist() == ["each", "gradient", "integrated"]
    assert len(result.importance) == 12
    assert result.agreement[["method_a", "method_b"]].to_numpy().tolist() == [
        ["each", "gradient"], ["each", "integrated"], ["gradient", "integrated"],
    ]  # fmt: skip
    facts = result.run["importance"]["integrated"]
    assert facts["sum"] == pytest.approx(facts["all_off"] - facts["all_on"], rel=0.01)
    each = result.importance.query("method == 'each'")["importance"].to_numpy()
    np.testing.assert_allclose(each, -result.primary["delta"])


def test_halves_share_nothing(tmp_path):
    lens = headlens.load(build("gpt2"), toy_tokenizer((), mask=False))
    benchmark = open_benchmark(write_lines(tmp_path / "t.txt", 90), lens, BenchmarkOptions(max_length=9))
    first, second = (benchmark.take(half) for half in halves(benchmark, seed=1))
    texts = [[window.ids for window in half.windows] for half in (first, second)]
    assert not set(texts[0]) & set(texts[1])
    assert sorted(texts[0] + texts[1]) == sorted(window.ids for window in benchmark.windows)
    whole = benchmark.measure(lens)
    apart = np.concatenate([half.measure(lens) for half in (first, second)])
    np.testing.assert_allclose(np.sort(whole[:, 0]), np.sort(apart[:, 0]), atol=1e-5)
    other = benchmark.take(halves(benchmark, seed=2)[0])
    assert [window.ids for window in other.windows] != texts[0]


def test_the_headline_ends_at_the_first_loss():
    rows = pd.DataFrame(
        {"n_removed": [2, 4, 6, 8], "no_significant_loss": pd.array([True, True, False, True], "boolean")}
    )
    assert headline(rows, 8) == 0.5
    rows["no_significant_loss"] = pd.array([True, None, True, True], "boolean")
    assert headline(rows, 8) == 0.25
    rows["no_significant_loss"] = False
    assert headline(rows, 8) == 0


def test_a_model_without_any_head(tmp_path):
    """The last step of cumulative is the model whose attention adds the bias of W_O alone."""
    lens = headlens.load(build("gpt2"), toy_tokenizer((), mask=False))
    spec = write_lines(tmp_path / "t.txt", 60)
    result = sweep(lens, spec, "cumulative", step=0.5, draws=2, max_length=9)
    last = result.primary.iloc[-1]
    whole = open_benchmark(spec, lens, BenchmarkOptions(max_length=9))
    second = whole.take(halves(whole, 0)[1])
    with torch.no_grad():
        for part in lens.anatomy.parts:
            lens.model.get_submodule(part.projections.output).weight.zero_()
    assert last["n_removed"] == 8
    assert last["value"] == pytest.approx(second.metrics[0].value(second.measure(lens)), abs=1e-5)


@pytest.mark.filterwarnings("ignore:.* does not say which model it is about")
def test_what_cannot_be_done_is_said_at_once(tmp_path):
    lens = headlens.load(build("bert").bert, toy_tokenizer())
    spec = write_pairs(tmp_path / "p.tsv", toy_pairs(18))
    for options, message in (
        ({"sweep": "tags"}, "The sweep tags needs to know which heads carry them. Run headlens classify "
         "first, and name its directory with --from."),
        ({"sweep": "set"}, "The sweep set needs its heads. Name them with --heads, such as 2.8,3.*."),
        ({"sweep": "only", "screen": 3}, "Screening is for --sweep each, and measures 1 head or more. Type "
         "--sweep each --screen 20."),
        ({"order": "best"}, "There is no order 'best'. Choose one of: each, gradient, taylor, integrated, "
         "shapley, gates, random."),
        ({"sweep": "cumulative", "step": 0.0}, "Expected a step above 0 and up to 100 %, found 0%. Type "
         "--step 10%."),
        ({"sweep": "cumulative", "draws": 1}, "Expected 2 random sets or more, found 1. Type --draws 20."),
        ({"sweep": "cumulative"}, "similarity:p.tsv has 18 examples. Importance is estimated on one half of "
         "them and measured on the other, which takes 20 or more. Give a longer file, or choose another "
         "sweep."),
        ({"permutations": 0}, "Expected 1 or more permutations, found 0. Write permutations=1 or more."),
        ({"normalise": "all"}, "There is no way 'all' to normalise importance. Choose one of: layer; or "
         "none."),
    ):  # fmt: skip
        with pytest.raises(InputError) as caught:
            sweep(lens, spec, **options)
        assert str(caught.value) == message
    with pytest.raises(RunError) as caught:
        sweep(lens, spec, "tags", tagged_by=tmp_path)
    assert str(caught.value) == (
        f"Expected the --out of a headlens classify; {tmp_path} has no tags.csv. Type first: headlens "
        f"classify MODEL --out {tmp_path}"
    )
    table = pd.DataFrame([("encoder", 7, 0, "broad", "")], columns=TAGS)
    write_csv(table, tmp_path / "tags.csv")
    with pytest.raises(RunError) as caught:
        sweep(lens, spec, "tags", tagged_by=tmp_path)
    assert str(caught.value) == (
        f"{tmp_path} is about another model: this model has no head encoder.7.0. Give a run of the same "
        "model."
    )
    heads = [(head.stack, head.layer, head.head, "", "") for head in lens.anatomy.heads]
    write_csv(pd.DataFrame(heads, columns=TAGS), tmp_path / "tags.csv")
    with pytest.raises(RunError, match="No head has a tag in "):
        sweep(lens, spec, "tags", tagged_by=tmp_path)


@pytest.mark.filterwarnings("ignore:.* does not say which model it is about", "ignore:None of the")
@pytest.mark.parametrize(
    ("kind", "options"),
    [
        ("each", {"order": ("gates", "gradient", "random"), "screen": 3}),
        ("cumulative", {"draws": 3, "step": 0.5}),
        ("only", {}),
        ("tags", {"draws": 3}),
        ("set", {"heads": "0.*"}),
    ],
)
def test_an_opened_sweep_is_the_one_that_was_saved(tmp_path, kind, options):
    lens = headlens.load(build("bert"), toy_tokenizer())
    rows = [(head.stack, head.layer, head.head, "broad" * (head.head < 2), "") for head in lens.anatomy.heads]
    write_csv(pd.DataFrame(rows, columns=TAGS), tmp_path / "tagged" / "tags.csv")
    more = {"tagged_by": tmp_path / "tagged"} if kind == "tags" else {}
    found = sweep(lens, write_lines(tmp_path / "t.txt", 60), kind, max_length=12, **options, **more)
    again = headlens.open(found.save(tmp_path / "run"))
    assert again == found
    assert (again.kind, again.metrics, again.conditions) == (found.kind, found.metrics, found.conditions)
    assert again.agreement.equals(found.agreement)
    assert (again.baseline, again.values) == (None, {})
    again.save(tmp_path / "copy")
    for file in (tmp_path / "run").rglob("*.*"):
        told = (tmp_path / "copy" / file.relative_to(tmp_path / "run")).read_bytes()
        assert told == file.read_bytes() or file.suffix in (".html", ".svg", ".png")
    assert list((tmp_path / "copy").rglob("*.svg")) or kind == "set"
    assert "With all heads: " in again._repr_html_()
