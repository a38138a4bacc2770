"""Classification with the head that a checkpoint was trained with."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from inspect import signature
from typing import Any, ClassVar

import numpy as np
import torch
from torch import Tensor
from torch.nn.functional import log_softmax
from transformers.models.auto.modeling_auto import MODEL_FOR_SEQUENCE_CLASSIFICATION_MAPPING_NAMES

from headlens.benchmarks.base import BenchmarkKind, BenchmarkOptions, Lot, longest_input
from headlens.benchmarks.files import CHOICES, Coded, Labelled, below_chance, encode, listed, read_labelled
from headlens.benchmarks.metrics import Accuracy, Array, MacroF1, Matthews, Metric
from headlens.benchmarks.predict import check_outputs, no_cache, padded, predicts_next, run_batches
from headlens.corpus.corpus import InputFile
from headlens.errors import InputError, ModelError
from headlens.model.devices import moved
from headlens.model.lens import Lens, body_weights
from headlens.util.files import from_home


@dataclass(frozen=True, eq=False)
class ClassificationBenchmark(BenchmarkKind):
    """Labelled texts, or pairs of texts, against the label that a sequence classifier gives them.

    The loss is the cross-entropy of the right label. The file may hold some of the model's labels only; all
    of them can be predicted.

    Args:
        name: how the user writes it.
        coded: tokens of each example.
        gold: the model's number of each example's label.
        stacks: stacks of attention that are run.
        facts: what `run.json` says about it.
        options: how it is run.
    """

    name: str
    coded: Sequence[Coded]
    gold: Sequence[int]
    stacks: tuple[str, ...]
    facts: Mapping[str, Any]
    options: BenchmarkOptions = field(default_factory=BenchmarkOptions)
    metrics: ClassVar[tuple[Metric, ...]] = (Accuracy(2), MacroF1(0, 1), Matthews(0, 1))
    kind: ClassVar[str] = "classification"
    form: ClassVar[str] = "classification:FILE.csv|tsv|jsonl"
    columns: ClassVar[tuple[tuple[str, ...], ...]] = CHOICES
    reads_pooler: ClassVar[bool] = True

    @classmethod
    def open(cls, target: str, lens: Lens, options: BenchmarkOptions) -> ClassificationBenchmark:
        """Read a file of labelled texts.

        Args:
            target: path of a .csv, .tsv or .jsonl file with the columns text (or text_a and text_b) and
                label.
            lens: the model that will be measured.
            options: how to read and run it.

        Returns:
            The benchmark.

        Raises:
            InputError: the file is unfit, or has a label that the model does not know.
            ModelError: the model is no classifier, or weights of its head are missing.
        """
        check_classifier(lens, options)
        file = InputFile(from_home(target))
        examples = read_labelled(file, options.columns)
        gold, how = match_labels(lens, examples)
        coded = encode(lens, examples, longest_input(lens, options.max_length))
        facts = {
            "kind": cls.kind,
            "path": str(file),
            "sha256": file.sha256,
            "examples": len(examples),
            "example": "text" if len(examples[0].texts) == 1 else "pair of texts",
            "tokens": sum(len(one.ids) for one in coded),
            "classes": lens.model.config.num_labels,
            "labels": how,
        }
        return cls(f"{cls.kind}:{file.path.name}", coded, gold, lens.anatomy.stacks, facts, options)

    def measure(self, lens: Lens) -> Array:
        """Classify every example.

        Args:
            lens: the model, whatever is ablated in it now.

        Returns:
            The right label's number, the predicted one's, whether they are the same (1 or 0), and the loss
            in nats, [example, 4].
        """
        predicted, loss = np.zeros(len(self.gold)), np.zeros(len(self.gold))
        with torch.inference_mode():
            for group, log_p in self._classified(lens):
                predicted[group] = log_p.argmax(dim=1).cpu().numpy()
                loss[group] = self._losses(group, log_p).cpu().double().numpy()
        gold = np.array(self.gold, dtype=np.float64)
        return np.column_stack([gold, predicted, gold == predicted, loss])

    def losses(self, lens: Lens) -> Iterator[Lot]:
        """Cross-entropy of the right label.

        Args:
            lens: the model, whatever is changed in it now.

        Yields:
            Losses of some examples after another.
        """
        for group, log_p in self._classified(lens):
            examples = torch.tensor(group)
            yield Lot(examples, examples, self._losses(group, log_p))

    @property
    def input_keys(self) -> Sequence[Coded]:
        """What the model reads of each example."""
        return self.coded

    @property
    def to_show(self) -> Sequence[Sequence[int]]:
        """Token ids of what the model reads."""
        return [one.ids for one in self.coded]

    def take(self, examples: Sequence[int]) -> ClassificationBenchmark:
        """See `Benchmark.take`."""
        coded = [self.coded[example] for example in examples]
        tokens = sum(len(one.ids) for one in coded)
        facts = {**self.facts, "examples": len(coded), "tokens": tokens}
        return replace(self, coded=coded, gold=[self.gold[example] for example in examples], facts=facts)

    def warn(self, baseline: Array) -> tuple[str, ...]:
        """Say what looks wrong about the model without ablation.

        Args:
            baseline: per-example values without ablation.

        Returns:
            A sentence if the accuracy is below one over the number of the model's labels.
        """
        return below_chance(self.name, self.metrics[0].value(baseline), self.facts["classes"])

    def _losses(self, group: list[int], log_p: Tensor) -> Tensor:
        gold = moved(torch.tensor([self.gold[index] for index in group]), log_p.device)
        return -log_p.gather(1, gold[:, None])[:, 0]

    def _classified(self, lens: Lens) -> Iterator[tuple[list[int], Tensor]]:
        """Examples of each batch, and the log-probability of each label [example, label]."""

        def work(group: list[int]) -> Tensor:
            inputs = _inputs(lens, [self.coded[index] for index in group])
            logits: Tensor = lens.model(**inputs, **no_cache(lens)).logits
            log_p = log_softmax(logits if logits.dtype == torch.float64 else logits.float(), dim=1)
            check_outputs(lens, log_p, range(len(group)), [self.coded[index].ids for index in group])
            return log_p

        lengths = [len(one.ids) for one in self.coded]
        # without a padding token a decoder looks at the last position, which may be padding
        size = 1 if lens.model.config.pad_token_id is None and predicts_next(lens) else None
        yield from run_batches(lens, lengths, work, size or self.options.batch_size)


def _inputs(lens: Lens, coded: Sequence[Coded]) -> dict[str, Tensor]:
    inputs = padded(lens, [one.ids for one in coded])
    pad = lens.model.config.pad_token_id
    if pad is not None:  # decoders find the end of a text by the model's padding token, not the tokenizer's
        inputs["input_ids"] = inputs["input_ids"].masked_fill(inputs["attention_mask"] == 0, pad)
    takes = signature(lens.model.forward).parameters
    if coded[0].types and "token_type_ids" in takes:
        types = [torch.tensor(one.types) for one in coded]
        made = torch.nn.utils.rnn.pad_sequence(types, batch_first=True)
        inputs["token_type_ids"] = moved(made, lens.device)
    return inputs


# ---- Which models classify texts, and how a file's labels are matched with theirs


_NUMBERED = re.compile(r"LABEL_\d+")  # what `transformers` calls labels that nobody named


def check_classifier(lens: Lens, options: BenchmarkOptions) -> None:
    """Refuse a model that cannot choose one label of several, or whose classifier is random.

    Args:
        lens: the model.
        options: whether random weights are accepted.

    Raises:
        ModelError: it is no sequence classifier, a regression or a multi-label one, or the checkpoint lacks
            weights of its head; the pooler belongs to it.
    """
    kind = type(lens.model).__name__
    known = kind in MODEL_FOR_SEQUENCE_CLASSIFICATION_MAPPING_NAMES.values()
    if not known and not kind.endswith("ForSequenceClassification"):
        raise ModelError(
            f"The benchmark classification needs a sequence classifier, but this is a {kind}.",
            "Take a checkpoint whose class ends in ForSequenceClassification, or another benchmark: "
            "probe:TRAIN,TEST fits a classifier on any encoder or decoder.",
        )
    config: Any = lens.model.config
    what = {"regression": "gives a number", "multi_label_classification": "gives several labels at once"}
    found = "regression" if config.num_labels == 1 else config.problem_type
    if found in what:
        raise ModelError(
            f"The benchmark classification needs a model that chooses one of several labels, but this {kind} "
            f"{what[found]}.",
            "Take a checkpoint with two labels or more, one of which is right.",
        )
    body = set(body_weights(lens))
    lacking = [name for name in lens.missing if name not in body]
    if lacking and not options.allow_random_weights:
        raise ModelError(
            f"The checkpoint lacks weights of the classifier of {kind}: {', '.join(lacking)}.",
            "Use a complete checkpoint, or --allow-random-weights to measure it all the same.",
        )


def match_labels(lens: Lens, examples: Sequence[Labelled]) -> tuple[list[int], str]:
    """Match the labels of a file with those of a model.

    By name, as it is written, else without regard to case where that is unambiguous. Where the model's
    labels have no names but ``LABEL_0``, ``LABEL_1``, ..., whole numbers in the file are taken as the
    model's numbers.

    Args:
        lens: a sequence classifier.
        examples: what the file says.

    Returns:
        The model's number of each example's label, and "by name" or "by number".

    Raises:
        InputError: the model has no such label; the message names the line.
    """
    config: Any = lens.model.config
    names = [str(config.id2label[number]) for number in range(config.num_labels)]
    numbers = {str(i): i for i in range(len(names))}
    if all(map(_NUMBERED.fullmatch, names)) and all(example.label in numbers for example in examples):
        return [numbers[example.label] for example in examples], "by number"
    exact, folded = _unique(names), _unique([name.casefold() for name in names])
    found = []
    for example in examples:
        number = exact.get(example.label, folded.get(example.label.casefold()))
        if number is None:
            raise InputError(
                f"{example.place}: expected a label of the model, found {example.label!r}; it has "
                f"{listed(names)}.",
                "Write the model's names into the file, or the right ones into its config.json (id2label).",
            )
        found.append(number)
    return found, "by name"


def _unique(names: Sequence[str]) -> dict[str, int]:
    """The number of each name that stands for one label only."""
    return {name: number for number, name in enumerate(names) if names.count(name) == 1}
