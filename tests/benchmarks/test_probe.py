from __future__ import annotations

import numpy as np
import pytest
import torch

import headlens
from headlens.benchmarks import probe as linear
from headlens.benchmarks.base import BenchmarkOptions
from headlens.benchmarks.registry import Differentiable, open_benchmark
from headlens.errors import InputError
from headlens.util.files import file_sha256
from support.families import build
from support.toytext import toy_text, toy_tokenizer

LABELS = ("high", "low", "mid")


def lens_of(family: str):
    return headlens.load(build(family), toy_tokenizer(pad=1 if family == "roberta" else 0))


def examples(n: int, seed: int, n_labels: int = 3) -> list[tuple[str, str]]:
    """Texts that mostly consist of the words of their label."""
    generator = np.random.default_rng(seed)
    rows = []
    for i in range(n):
        label = i % n_labels
        own = [f"w{8 + 15 * label + k}" for k in generator.integers(0, 15, 4 + i % 3)]
        rows.append((" ".join([*own, toy_text(1, seed + i)]), LABELS[label]))
    return rows


def write(folder, train, test) -> str:
    for name, rows in (("train.csv", train), ("test.csv", test)):
        lines = ["text,label", *(f"{text},{label}" for text, label in rows)]
        (folder / name).write_text("\n".join(lines), encoding="utf-8")
    return f"probe:{folder / 'train.csv'},{folder / 'test.csv'}"


@torch.no_grad()
def features(lens, rows) -> np.ndarray:
    """Mean of the last hidden states, by a plain loop over unbatched texts."""
    model = lens.model.get_encoder() if lens.model.config.is_encoder_decoder else lens.model.base_model
    ids = [torch.tensor([lens.tokenizer(text)["input_ids"]]) for text, _ in rows]
    return np.array([model(one).last_hidden_state[0].mean(dim=0).double().numpy() for one in ids])


@pytest.mark.parametrize("n_labels", [2, 3])
@pytest.mark.parametrize("family", ["bert", "roberta", "gpt2", "llama", "t5", "mpnet"])
def test_the_classifier_is_scikit_learns(tmp_path, family, n_labels):
    """Fitted without ablation; what it makes of features with and without one is scikit-learn's."""
    lens = lens_of(family)
    train, test = examples(60, 0, n_labels), examples(30, 1000, n_labels)
    own = linear.pipeline(features(lens, train), [label for _, label in train])
    benchmark = open_benchmark(write(tmp_path, train, test), lens, BenchmarkOptions(batch_size=7))
    assert list(benchmark.labels) == list(own.classes_)
    assert benchmark.facts["train_accuracy"] == round(
        own.score(features(lens, train), [label for _, label in train]), 4
    )
    gold = [benchmark.labels.index(label) for _, label in test]
    for heads in ((), lens.anatomy.heads[1:2]):
        with lens.ablate(heads):
            values = benchmark.measure(lens)
            log_p = own.predict_log_proba(features(lens, test))
        assert values[:, 0].tolist() == gold
        assert values[:, 1].tolist() == log_p.argmax(axis=1).tolist()
        assert values[:, 2].tolist() == (log_p.argmax(axis=1) == gold).tolist()
        np.testing.assert_allclose(values[:, 3], -log_p[range(30), gold], atol=1e-4, rtol=1e-4)
    assert benchmark.stacks == (("encoder",) if family == "t5" else lens.anatomy.stacks)


@pytest.mark.parametrize("n_classes", [2, 3, 9])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_log_probabilities_are_exact(n_classes, dtype):
    """Features of very unequal size, one of them constant, far from 0."""
    generator = np.random.default_rng(n_classes)
    classes = np.arange(90) % n_classes
    made = (generator.normal(0, 1, (90, 20)) + classes[:, None] % 3) * np.geomspace(0.01, 100, 20)
    made[:, 3] += 50
    made[:, 4] = 7
    made = made.astype(np.float32).astype(np.float64)
    own = linear.pipeline(made, classes)
    found = linear.fit(made, classes).log_probabilities(torch.from_numpy(made).to(dtype))
    assert found.dtype == dtype
    close = 1e-5 if dtype == torch.float64 else 1e-4
    np.testing.assert_allclose(found, own.predict_log_proba(made), atol=close, rtol=1e-5)
    assert torch.equal(linear.fit(made, classes).weight, linear.fit(made, classes).weight)


def test_words_of_a_label_are_told_apart(tmp_path):
    lens = lens_of("bert")
    benchmark = open_benchmark(write(tmp_path, examples(300, 0), examples(60, 5000)), lens)
    values = benchmark.measure(lens)
    accuracy, f1 = (metric.value(values) for metric in benchmark.metrics)
    assert accuracy > 0.8
    assert f1 > 0.8
    assert benchmark.warn(values) == ()
    wrong = values.copy()
    wrong[15:, 2] = 0
    assert benchmark.warn(wrong) == (
        f"Without ablation the accuracy of probe:train.csv,test.csv is {wrong[:, 2].mean():.3f}, below the "
        "0.333 of a guess among 3 labels: check that the model and the file mean the same by each label.",
    )


def test_losses_are_cross_entropies_of_the_frozen_classifier(tmp_path):
    lens = lens_of("bert")
    benchmark = open_benchmark(
        write(tmp_path, examples(30, 0), examples(12, 50)), lens, BenchmarkOptions(batch_size=5)
    )
    assert isinstance(benchmark, Differentiable)
    weight = lens.model.bert.encoder.layer[0].attention.output.dense.weight
    found, slope = torch.zeros(12), torch.zeros_like(weight)
    for lot in benchmark.losses(lens):
        assert lot.owners.tolist() == lot.examples.tolist()
        found[lot.examples] = lot.losses.detach()
        slope += torch.autograd.grad(lot.losses.sum(), weight)[0]
    np.testing.assert_allclose(found, benchmark.measure(lens)[:, 3], atol=1e-5)
    sums = []
    direction = slope / slope.norm()
    for step in (1e-2, -2e-2):  # there, and as far to the other side
        weight.data += step * direction
        sums.append(benchmark.measure(lens)[:, 3].sum())
    assert (sums[0] - sums[1]) / 2e-2 == pytest.approx(float(slope.norm()), rel=0.02)


def test_facts_and_parts(tmp_path):
    lens = lens_of("gpt2")
    benchmark = open_benchmark(write(tmp_path, examples(30, 0), examples(12, 50)), lens)
    facts = benchmark.facts
    train, test = tmp_path / "train.csv", tmp_path / "test.csv"
    assert (facts["path"], facts["train_sha256"], facts["sha256"]) == (
        f"{train},{test}",
        file_sha256([train]),
        file_sha256([test]),
    )
    assert (facts["examples"], facts["train_examples"], facts["labels"]) == (12, 30, ["high", "low", "mid"])
    part = benchmark.take([9, 3])
    np.testing.assert_allclose(part.measure(lens), benchmark.measure(lens)[[9, 3]], atol=1e-5)
    assert part.facts["examples"] == 2
    assert part.linear is benchmark.linear


def test_unfit_files_are_refused(tmp_path):
    lens = lens_of("bert")
    train, test = examples(30, 0), examples(12, 50)
    spec = write(tmp_path, train, [*test, ("w5", "odd")])
    faults = {
        spec: f"{tmp_path / 'test.csv'}, line 14: expected a label that occurs in {tmp_path / 'train.csv'}, "
        "found 'odd'; those are high, low, mid. Correct the line, or add examples of it to the training file."
    }
    for target in ("a.csv", "a.csv,", "a.csv,b.csv,c.csv"):
        faults[f"probe:{target}"] = (
            f"Expected probe:TRAIN,TEST, two files and one comma, found 'probe:{target}'. Type for example "
            "probe:train.csv,test.csv."
        )
    for spec, message in faults.items():
        with pytest.raises(InputError) as caught:
            open_benchmark(spec, lens)
        assert str(caught.value) == message
    spec = write(tmp_path, [(text, "high") for text, _ in train], test)
    with pytest.raises(InputError) as caught:
        open_benchmark(spec, lens)
    assert str(caught.value) == (
        f"{tmp_path / 'train.csv'}: expected two labels or more, found 'high' alone. Check the label column."
    )


def test_a_test_of_what_was_learned_is_refused_or_noticed(tmp_path):
    """The same file under two names, too; of texts that both files have the run says how many."""
    lens = lens_of("bert")
    train, test = examples(30, 0), examples(12, 50)
    spec = write(tmp_path, train, train)
    for target in (spec, f"probe:{tmp_path / 'train.csv'},{tmp_path / 'train.csv'}"):
        with pytest.raises(InputError, match="Expected two files that differ, found the same examples in"):
            open_benchmark(target, lens)
    test[3], test[7] = train[0], (train[4][0], train[5][1])  # one of them with another label
    benchmark = open_benchmark(write(tmp_path, train, test), lens)
    right = np.ones((12, 4))
    assert benchmark.warn(right) == (
        "The training file of probe:train.csv,test.csv holds the texts of 2 of the 12 examples, too: the "
        "classifier was fitted on them, and its accuracy says less about new texts.",
    )
    assert "of 1 of the 3 examples" in benchmark.take([1, 7, 2]).warn(right[:3])[0]
    assert benchmark.take([1, 2]).warn(right[:2]) == ()
    with pytest.warns(UserWarning, match="holds the texts of 2 of the 12 examples"):
        found = headlens.sweep(lens, benchmark, heads="0.0")
    assert any("2 of the 12 examples" in note for note in found.notes)
