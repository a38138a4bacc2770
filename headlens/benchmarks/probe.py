"""A linear classifier on frozen features."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from importlib import import_module
from typing import Any, ClassVar

import numpy as np
import torch
from torch import Tensor
from torch.nn.functional import log_softmax

from headlens.benchmarks.base import BenchmarkKind, BenchmarkOptions, Lot, longest_input
from headlens.benchmarks.files import CHOICES, Labelled, below_chance, encode, listed, read_labelled
from headlens.benchmarks.metrics import Accuracy, Array, MacroF1, Metric
from headlens.benchmarks.predict import embed, embed_batch, run_batches
from headlens.corpus.corpus import InputFile
from headlens.errors import InputError
from headlens.model.devices import moved
from headlens.model.finite import diagnosing
from headlens.model.lens import Lens
from headlens.util.files import from_home


@dataclass(frozen=True, eq=False)
class Probe(BenchmarkKind):
    """A linear classifier that was fitted on the whole model's features, applied to those it has now.

    Features are the mean of the last hidden states over all tokens, as in `similarity`; of an encoder-
    decoder model the encoder alone is run. Of two texts the tokenizer's pair is read, without segment ids.
    The classifier is fitted once, on TRAIN, when the benchmark is opened. Heads are then taken out under
    it: it says how much of what the classifier reads depends on a head, not whether another classifier
    could still find it.

    Args:
        name: how the user writes it.
        ids: token ids of each text of TEST.
        gold: class of each, a number in `labels`.
        labels: those of TRAIN, sorted.
        linear: the classifier.
        stacks: stacks of attention that are run.
        facts: what `run.json` says about it.
        shared: whether each text of TEST stands in TRAIN, too.
        options: how it is run.
    """

    name: str
    ids: Sequence[tuple[int, ...]]
    gold: Sequence[int]
    labels: Sequence[str]
    linear: LinearClassifier
    stacks: tuple[str, ...]
    facts: Mapping[str, Any]
    shared: Sequence[bool]
    options: BenchmarkOptions = field(default_factory=BenchmarkOptions)
    metrics: ClassVar[tuple[Metric, ...]] = (Accuracy(2), MacroF1(0, 1))
    kind: ClassVar[str] = "probe"
    form: ClassVar[str] = "probe:TRAIN,TEST"
    columns: ClassVar[tuple[tuple[str, ...], ...]] = CHOICES

    @classmethod
    def open(cls, target: str, lens: Lens, options: BenchmarkOptions) -> Probe:
        """Read both files and fit the classifier, with the model as it is now.

        Args:
            target: paths of two .csv, .tsv or .jsonl files with the columns text (or text_a and text_b) and
                label, a comma between them.
            lens: the model that will be measured.
            options: how to read and run it.

        Returns:
            The benchmark.

        Raises:
            InputError: a file is unfit, both are the same, or TEST has a label that TRAIN lacks.
        """
        train_file, test_file = _files(target)
        train, test = (read_labelled(file, options.columns) for file in (train_file, test_file))
        _check_differ(train_file, test_file)
        labels = sorted({example.label for example in train})
        if len(labels) < 2:
            raise InputError(
                f"{train_file}: expected two labels or more, found {labels[0]!r} alone.",
                "Check the label column.",
            )
        classes, gold = (_numbered(part, labels, train_file) for part in (train, test))
        longest = longest_input(lens, options.max_length)
        train_ids, ids = ([one.ids for one in encode(lens, part, longest)] for part in (train, test))
        again = partial(embed, lens, train_ids, options.batch_size)
        with torch.inference_mode(), diagnosing(lens, again):
            features = again()
        linear = fit(features.numpy(), classes)
        right = linear.log_probabilities(features).argmax(dim=1) == torch.tensor(classes)
        facts = {
            "kind": cls.kind,
            "path": f"{train_file},{test_file}",
            "sha256": test_file.sha256,
            "train_sha256": train_file.sha256,
            "examples": len(test),
            "example": "text" if len(test[0].texts) == 1 else "pair of texts",
            "tokens": sum(map(len, ids)),
            "train_examples": len(train),
            "train_accuracy": round(float(right.double().mean()), 4),
            "labels": labels,
        }
        encoder = ("encoder",) if lens.model.config.is_encoder_decoder else lens.anatomy.stacks
        name = f"{cls.kind}:{train_file.path.name},{test_file.path.name}"
        known = {example.texts for example in train}
        shared = [example.texts in known for example in test]
        return cls(name, ids, gold, labels, linear, encoder, facts, shared, options)

    def measure(self, lens: Lens) -> Array:
        """Embed every text of TEST and classify it.

        Args:
            lens: the model, whatever is ablated in it now.

        Returns:
            The right class, the predicted one, whether they are the same (1 or 0), and the loss in nats,
            [example, 4].
        """
        with torch.inference_mode():
            log_p = self.linear.log_probabilities(embed(lens, self.ids, self.options.batch_size)).numpy()
        gold, predicted = np.array(self.gold), log_p.argmax(axis=1)
        loss = -log_p[np.arange(len(gold)), gold]
        return np.column_stack([gold, predicted, gold == predicted, loss]).astype(np.float64)

    def losses(self, lens: Lens) -> Iterator[Lot]:
        """Cross-entropy of the right class.

        Args:
            lens: the model, whatever is changed in it now.

        Yields:
            Losses of some texts after another.
        """

        def work(group: list[int]) -> Tensor:
            log_p = self.linear.log_probabilities(embed_batch(lens, [self.ids[index] for index in group]))
            gold = moved(torch.tensor([self.gold[index] for index in group]), log_p.device)
            return -log_p.gather(1, gold[:, None])[:, 0]

        for group, loss in run_batches(lens, list(map(len, self.ids)), work, self.options.batch_size):
            examples = torch.tensor(group)
            yield Lot(examples, examples, loss)

    @property
    def input_keys(self) -> Sequence[tuple[int, ...]]:
        """What the model reads of each example."""
        return self.ids

    @property
    def to_show(self) -> Sequence[Sequence[int]]:
        """Token ids of what the model reads."""
        return self.ids

    def take(self, examples: Sequence[int]) -> Probe:
        """See `Benchmark.take`; the classifier stays."""
        ids = [self.ids[example] for example in examples]
        facts = {**self.facts, "examples": len(ids), "tokens": sum(map(len, ids))}
        gold = [self.gold[example] for example in examples]
        shared = [self.shared[example] for example in examples]
        return replace(self, ids=ids, gold=gold, shared=shared, facts=facts)

    def warn(self, baseline: Array) -> tuple[str, ...]:
        """Say what looks wrong about the model without ablation.

        Args:
            baseline: per-example values without ablation.

        Returns:
            A sentence if the accuracy is below one over the number of labels, and one if texts of TEST stand
            in TRAIN.
        """
        low = below_chance(self.name, self.metrics[0].value(baseline), len(self.labels))
        if not any(self.shared):
            return low
        return (
            *low,
            f"The training file of {self.name} holds the texts of {sum(self.shared)} of the "
            f"{len(self.shared)} examples, too: the classifier was fitted on them, and its accuracy says "
            "less about new texts.",
        )


def _files(target: str) -> tuple[InputFile, InputFile]:
    parts = [part.strip() for part in target.split(",")]
    if len(parts) != 2 or not all(parts):
        raise InputError(
            f"Expected probe:TRAIN,TEST, two files and one comma, found 'probe:{target}'.",
            "Type for example probe:train.csv,test.csv.",
        )
    train, test = (InputFile(from_home(part)) for part in parts)
    return train, test


def _check_differ(train: InputFile, test: InputFile) -> None:
    if train.sha256 == test.sha256:
        raise InputError(
            f"Expected two files that differ, found the same examples in {train} and {test}.",
            "Name others for one of them: a classifier is not tested on what it was fitted on.",
        )


def _numbered(examples: Sequence[Labelled], labels: Sequence[str], train: InputFile) -> list[int]:
    number = {label: index for index, label in enumerate(labels)}
    for example in examples:
        if example.label not in number:
            raise InputError(
                f"{example.place}: expected a label that occurs in {train}, found {example.label!r}; those "
                f"are {listed(labels)}.",
                "Correct the line, or add examples of it to the training file.",
            )
    return [number[example.label] for example in examples]


# ---- A linear classifier on frozen features: fitted by scikit-learn, applied in torch


MOST_STEPS = 10_000  # of the solver; it stops by itself long before


@dataclass(frozen=True, eq=False)
class LinearClassifier:
    """A multinomial logistic regression on standardised features.

    Args:
        mean: of each feature, [feature].
        scale: its standard deviation, 1 for a constant one, [feature].
        weight: [class, feature].
        bias: [class].
    """

    mean: Tensor
    scale: Tensor
    weight: Tensor
    bias: Tensor

    def log_probabilities(self, features: Tensor) -> Tensor:
        """Classify; differentiable.

        Args:
            features: [example, feature].

        Returns:
            Log-probability of each class, [example, class].
        """
        mean, scale, weight, bias = (x.to(features) for x in (self.mean, self.scale, self.weight, self.bias))
        return log_softmax((features - mean) / scale @ weight.T + bias, dim=1)


def fit(features: Array, classes: Sequence[int]) -> LinearClassifier:
    """Fit a classifier: L2 penalty with C = 1, nothing drawn at random.

    Args:
        features: float64 [example, feature].
        classes: of each example, every number from 0 to the largest, two of them at least.

    Returns:
        The classifier.
    """
    scaler, regression = pipeline(features, classes)
    coefficients, intercept = regression.coef_, regression.intercept_
    if len(coefficients) == 1:  # of two classes scikit-learn keeps the second one's
        coefficients = np.concatenate([np.zeros_like(coefficients), coefficients])
        intercept = np.concatenate([np.zeros_like(intercept), intercept])
    return LinearClassifier(
        *(torch.from_numpy(x) for x in (scaler.mean_, scaler.scale_, coefficients, intercept))
    )


def pipeline(features: Array, classes: Sequence[int]) -> Any:
    """Fit scikit-learn's own pipeline, which `fit` takes apart.

    Args:
        features: see `fit`.
        classes: see `fit`.

    Returns:
        A scaler and a logistic regression, one after the other.
    """
    parts = [import_module(f"sklearn.{name}") for name in ("preprocessing", "linear_model", "pipeline")]
    scaler, regression = parts[0].StandardScaler(), parts[1].LogisticRegression(max_iter=MOST_STEPS)
    return parts[2].make_pipeline(scaler, regression).fit(features, classes)
