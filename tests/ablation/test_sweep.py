from __future__ import annotations

import copy
import json
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from scipy import stats

import headlens
from headlens.ablation.importance import ranked
from headlens.ablation.plan import SWEEPS, SweepPlan
from headlens.ablation.result import same_input
from headlens.ablation.sweep import open_for, run_sweep, sweep
from headlens.benchmarks.base import BenchmarkOptions
from headlens.benchmarks.registry import open_benchmark
from headlens.errors import InputError, RunError
from headlens.model.heads import Head
from headlens.model.replacements import MODES
from headlens.util.files import ABLATION, IMPORTANCE
from support.families import build
from support.toytext import toy_pairs, toy_tokenizer, write_lines, write_pairs


def lens_of(family: str, **options):
    return headlens.load(build(family), toy_tokenizer(**options))


@torch.no_grad()
def without_columns(lens, head: Head):
    """A copy of the model in which a head's columns of W_O are 0."""
    model = copy.deepcopy(lens.model)
    part = next(p for p in lens.anatomy.parts if (p.site.stack, p.site.layer) == (head.stack, head.layer))
    layer = model.get_submodule(part.projections.output)
    place = slice(head.head * part.site.head_width, (head.head + 1) * part.site.head_width)
    if type(layer).__name__ == "Conv1D":  # GPT-2 keeps its weights transposed
        layer.weight[place] = 0
    else:
        layer.weight[:, place] = 0
    return model


@torch.no_grad()
@pytest.mark.parametrize("family", ["bert", "mpnet", "llama"])
def test_similarity_without_each_head_by_another_way(tmp_path, family):
    lens, pairs = lens_of(family, pad=1 if family == "mpnet" else 0), toy_pairs()
    result = sweep(lens, write_pairs(tmp_path / "p.tsv", pairs))
    gold = [score for _, _, score in pairs]
    rows = result.table[result.table["metric"] == "spearman"].set_index("removed")
    for head in lens.anatomy.heads:
        model = without_columns(lens, head).base_model
        cosine = []
        for texts in pairs:
            ids = [torch.tensor([lens.tokenizer(text)["input_ids"]]) for text in texts[:2]]
            x, y = (model(i).last_hidden_state[0].mean(dim=0).double() for i in ids)
            cosine.append(float(x @ y / x.norm() / y.norm()))
        np.testing.assert_allclose(result.values[f"head {lens.anatomy.name(head)}"][:, 0], cosine, atol=1e-5)
        assert rows.loc[str(head), "value"] == pytest.approx(
            stats.spearmanr(cosine, gold).statistic, abs=1e-9
        )


@torch.no_grad()
@pytest.mark.parametrize("family", ["gpt2", "llama", "bloom"])
def test_loss_without_each_head_by_another_way(tmp_path, family):
    lens = lens_of(family, frame=(), mask=False)
    spec = write_lines(tmp_path / "t.txt", 20)
    result = sweep(lens, spec, max_length=9)
    windows = open_benchmark(spec, lens, BenchmarkOptions(max_length=9)).windows
    rows = result.table[result.table["metric"] == "loss"].set_index("removed")
    for head in lens.anatomy.heads:
        model = without_columns(lens, head)
        total = tokens = 0
        for window in windows:
            ids = torch.tensor([window.ids])
            total += float(model(ids, labels=ids).loss) * (len(window.ids) - 1)  # transformers' own loss
            tokens += len(window.ids) - 1
        assert rows.loc[str(head), "value"] == pytest.approx(total / tokens, abs=1e-5)
    perplexity = result.table[result.table["metric"] == "perplexity"].set_index("removed")
    np.testing.assert_allclose(perplexity["delta"], np.exp(rows["value"]) - np.exp(rows["baseline"]))


@torch.no_grad()
def planted():
    """A BERT in which head 0.1 alone carries what texts are about; no other head reaches the output.

    Words stand in features 0-15, which the last LayerNorm hides; head 0.1 carries 8 of them to 16-23.
    """
    model = build("bert").bert
    word = model.embeddings.word_embeddings.weight
    word[:, :16].normal_(generator=torch.Generator().manual_seed(1))
    word[:, 16:].normal_(0, 0.05, generator=torch.Generator().manual_seed(2))
    model.embeddings.position_embeddings.weight.zero_()
    for layer in model.encoder.layer:
        layer.attention.output.dense.weight.zero_()
        layer.output.dense.weight.zero_()
    first = model.encoder.layer[0].attention
    first.self.value.weight[8:16] = torch.eye(32)[:8]
    first.output.dense.weight[16:24, 8:16] = 3 * torch.eye(8)
    last = model.encoder.layer[-1].output.LayerNorm
    last.weight[:16], last.bias[:] = 0, 0
    return headlens.load(model, toy_tokenizer())


def test_the_head_that_carries_the_answer(tmp_path):
    lens, pairs = planted(), toy_pairs(40)
    spec = write_pairs(tmp_path / "p.tsv", pairs)
    cosine = open_benchmark(spec, lens).measure(lens)[:, 0]
    result = sweep(
        lens,
        write_pairs(tmp_path / "q.tsv", [(*p[:2], round(c, 4)) for p, c in zip(pairs, cosine, strict=True)]),
    )
    rows = result.table[result.table["metric"] == "spearman"].set_index("condition")
    carrier, dead = rows.loc["head 0.1"], rows.drop("head 0.1")
    assert carrier["baseline"] > 0.999
    assert carrier["delta"] < -0.4
    assert carrier["ci_high"] < 0
    assert carrier["q_value"] < 0.01
    assert (dead[["delta", "ci_low", "ci_high"]] == 0).all(axis=None)
    assert (dead[["p_value", "q_value"]] == 1).all(axis=None)
    importance = result.importance.set_index(["layer", "head"])
    assert importance.loc[(0, 1), "rank"] == 1
    assert importance["importance"].drop((0, 1)).eq(0).all()
    assert importance["rank"].tolist() == [2, 1, 3, 4, 5, 6, 7, 8]  # of equals the first of the model
    assert result.notes == ()


def test_ablations_that_change_nothing_are_reported(tmp_path):
    spec = write_pairs(tmp_path / "p.tsv", toy_pairs())
    message = "None of the 2 ablations changed anything: every example came out as without it."
    with pytest.warns(UserWarning, match=message):
        found = sweep(planted(), spec, heads="1.0-1")
    assert found.notes[-1].endswith(
        "Either these heads do nothing, or the model does not take the ablation: if taking out whole layers "
        "(--sweep layer) changes nothing either, believe none of these numbers."
    )


def same_inputs(folder):
    """Files of examples that differ in nothing the model reads, by kind and family."""
    texts = {
        "s.txt": "w5 w6 w7\n" * 400,
        "p.jsonl": '{"sentence_good": "w5 w6", "sentence_bad": "w6 w5"}\n' * 12,
        "s.tsv": "text_a\ttext_b\tscore\n" + "".join(f"w5\tw6\t{i}\n" for i in range(12)),
        "train.csv": "text,label\n" + "w5 w7,a\nw8 w6,b\n" * 6,
        "test.csv": "text,label\n" + "w5 w6,a\nw5 w6,b\n" * 6,
        "t.tsv": "source\treference\n" + "".join(f"w5 w6\tw{i}\n" for i in range(12)),
    }
    for name, text in texts.items():
        (folder / name).write_text(text)
    probe = f"probe:{folder / 'train.csv'},{folder / 'test.csv'}"
    return {
        "gpt2": [f"language:{folder / 's.txt'}", f"pairs:{folder / 'p.jsonl'}", probe],
        "bert": [f"language:{folder / 's.txt'}", f"similarity:{folder / 's.tsv'}"],
        "bart": [f"translation:{folder / 't.tsv'}"],
    }


@pytest.mark.filterwarnings("ignore:Without ablation")
@pytest.mark.parametrize("family", ["gpt2", "bert", "bart"])
def test_examples_that_are_all_the_same_are_noticed(tmp_path, family):
    """Twelve times one example has no spread: its interval is a point, and means nothing."""
    lens = lens_of(family)
    for spec in same_inputs(tmp_path)[family]:
        benchmark = open_benchmark(spec, lens, BenchmarkOptions(max_length=30))
        benchmark = benchmark.take(range(10))  # the last window may be shorter
        message = f"All 10 examples of {benchmark.name} have the same input. They tell as much as one"
        with pytest.warns(UserWarning, match=message):
            found = sweep(lens, benchmark, heads=lens.anatomy.heads[:1])
        assert sum(message in note for note in found.notes) == 1


def test_a_benchmark_that_does_not_tell_its_inputs_goes_by_its_values():
    made = SimpleNamespace(name="own:x")
    assert same_input(made, np.array([[1.0, 0], [1, 0], [1, 1]])) == ()
    assert same_input(made, np.ones((1, 2))) == ()
    assert same_input(made, np.ones((3, 2))) == (
        "All 3 examples of own:x came out the same without ablation. They tell as much as one, but are "
        "counted as 3: do not believe intervals, p- and q-values.",
    )


def test_tables(tmp_path):
    lens = lens_of("bart")
    result = sweep(lens, write_pairs(tmp_path / "p.tsv", toy_pairs()))
    assert tuple(result.table.columns) == tuple(ABLATION)
    assert tuple(result.importance.columns) == tuple(IMPORTANCE)
    heads = [head for head in lens.anatomy.heads if head.stack == "encoder"]  # the decoder is never run
    assert result.table["removed"].tolist() == [str(head) for head in heads for _ in range(2)]
    assert result.table["condition"].tolist() == [f"head {name}" for name in result.table["removed"]]
    assert result.table["metric"].tolist() == ["spearman", "pearson"] * 8
    constant = {"sweep": "each", "mode": "zero", "n_removed": 1, "n": 24}
    assert all((result.table[name] == value).all() for name, value in constant.items())
    np.testing.assert_allclose(
        result.table["delta"], result.table["value"] - result.table["baseline"], atol=1e-15
    )
    primary = result.table[result.table["metric"] == "spearman"]
    assert result.importance["importance"].tolist() == [0.0 - delta for delta in primary["delta"]]
    order = result.importance.sort_values("importance", ascending=False)["rank"].tolist()
    assert order == list(range(1, 9))
    with pytest.raises(InputError) as caught:
        sweep(lens, f"similarity:{tmp_path / 'p.tsv'}", heads="encoder.0.0,decoder.1.2")
    assert str(caught.value) == "similarity:p.tsv never runs head decoder.1.2. Choose heads of: encoder."


def test_a_larger_loss_is_importance(tmp_path):
    result = sweep(lens_of("bert"), write_lines(tmp_path / "t.txt", 60), max_length=20)
    assert result.table["metric"].tolist() == ["masked-loss", "masked-accuracy"] * 8
    primary = result.table[result.table["metric"] == "masked-loss"]
    assert result.importance["importance"].tolist() == primary["delta"].tolist()


def test_heads_that_were_not_measured_have_no_rank():
    table = ranked([Head("encoder", 0, i) for i in range(4)], "each", np.array([0.5, np.nan, 0.5, 0.7]))
    assert table["rank"].fillna(0).tolist() == [2, 0, 3, 1]


def test_batch_size_and_seed(tmp_path):
    lens, spec = lens_of("bert"), write_pairs(tmp_path / "p.tsv", toy_pairs())
    first, again = sweep(lens, spec), sweep(lens, spec)
    assert first.table.equals(again.table)
    single = sweep(lens, spec, batch_size=1)
    np.testing.assert_allclose(single.table["delta"], first.table["delta"], atol=1e-5)
    assert not sweep(lens, spec, seed=1).table["ci_low"].equals(first.table["ci_low"])


def test_unknown_names_say_what_there_is(tmp_path):
    lens, spec = lens_of("bert"), write_pairs(tmp_path / "p.tsv", toy_pairs())
    for options, message in (
        ({"sweep": "some"}, f"There is no sweep 'some'. Choose one of: {', '.join(SWEEPS)}."),
        ({"mode": "some"}, f"There is no ablation mode 'some'. Choose one of: {', '.join(MODES)}."),
    ):
        with pytest.raises(InputError) as caught:
            sweep(lens, spec, **options)
        assert str(caught.value) == message


def test_finished_conditions_are_never_lost(tmp_path, monkeypatch):
    lens, spec, out = lens_of("bert"), write_pairs(tmp_path / "p.tsv", toy_pairs()), tmp_path / "run"
    whole = sweep(lens, spec)
    plan = SweepPlan(out=out)
    benchmark = open_for(lens, spec, BenchmarkOptions())
    kind = type(benchmark)
    measure, calls = kind.measure, []

    def count(self, lens):
        calls.append(1)
        if len(calls) == 4:
            raise KeyboardInterrupt
        return measure(self, lens)

    monkeypatch.setattr(kind, "measure", count)
    with pytest.raises(KeyboardInterrupt):
        run_sweep(lens, benchmark, plan)
    assert sorted(path.name for path in (out / "units").iterdir()) == [
        "baseline.npy",
        "head 0.0.npy",
        "head 0.1.npy",
        "key.json",
    ]
    (out / "units" / "head 0.1.npy").write_bytes(b"half")  # a damaged file is measured again
    result = run_sweep(lens, benchmark, plan)
    assert result.table.equals(whole.table)
    assert len(calls) == 4 + 8  # seven conditions, and the clean run again for what lies below them
    assert result.run["conditions_reused"] == 1
    assert run_sweep(lens, benchmark, plan).run["conditions_reused"] == 8
    assert len(calls) == 4 + 8


def test_another_run_is_not_overwritten(tmp_path):
    lens, spec, out = lens_of("bert"), write_pairs(tmp_path / "p.tsv", toy_pairs()), tmp_path / "run"
    sweep(lens, spec, out=out, heads="0.*")
    for options, difference in (
        ({"heads": "0.0-1"}, 'its heads is "0.0 0.1 0.2 0.3", and now it is "0.0 0.1"'),
        ({"heads": "0.*", "seed": 3}, "its seed is 0, and now it is 3"),
    ):
        with pytest.raises(RunError) as caught:
            sweep(lens, spec, out=out, **options)
        assert str(caught.value) == (
            f"{out} holds another run: {difference}. Choose another --out, or type --overwrite to replace it."
        )
    with torch.no_grad():
        lens.model.bert.encoder.layer[1].output.dense.weight[0, 0] += 1
    with pytest.raises(RunError, match="holds another run: its weights is"):
        sweep(lens, spec, out=out, heads="0.*")
    result = sweep(lens, spec, out=out, heads="0.1", overwrite=True)
    assert result.run["conditions_reused"] == 0
    assert sorted(path.stem for path in (out / "units").glob("*.npy")) == ["baseline", "head 0.1"]
    assert json.loads((out / "units" / "key.json").read_text())["heads"] == "0.1"
