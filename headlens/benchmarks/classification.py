"""``classification:FILE.csv``: how often does a classifier choose the right label?"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from inspect import signature
from typing import Any, ClassVar

import numpy as np
import torch
from torch import Tensor
from torch.nn.functional import log_softmax

from headlens.benchmarks.batching import padded, run_batches
from headlens.benchmarks.classifier import check_classifier, match_labels
from headlens.benchmarks.confusion import Accuracy, MacroF1, Matthews
from headlens.benchmarks.inputs import Options, longest_input
from headlens.benchmarks.labelled import Coded, below_chance, encode, read_labelled
from headlens.benchmarks.language_head import predicts_next
from headlens.benchmarks.lots import Lot
from headlens.benchmarks.metrics import Array, Metric
from headlens.benchmarks.numbers import check_outputs
from headlens.benchmarks.prediction import no_cache
from headlens.model.devices import moved
from headlens.model.lens import Lens
from headlens.util.files import file_sha256, from_home


@dataclass(frozen=True, eq=False)
class Classification:
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
    options: Options = field(default_factory=Options)
    metrics: ClassVar[tuple[Metric, ...]] = (Accuracy(2), MacroF1(0, 1), Matthews(0, 1))

    @classmethod
    def open(cls, target: str, lens: Lens, options: Options) -> Classification:
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
        path = from_home(target)
        examples = read_labelled(path, options.columns)
        gold, how = match_labels(lens, examples)
        coded = encode(lens, examples, longest_input(lens, options.max_length))
        facts = {
            "kind": "classification",
            "path": str(path),
            "sha256": file_sha256([path]),
            "examples": len(examples),
            "example": "text" if len(examples[0].texts) == 1 else "pair of texts",
            "tokens": sum(len(one.ids) for one in coded),
            "classes": lens.model.config.num_labels,
            "labels": how,
        }
        return cls(f"classification:{path.name}", coded, gold, lens.anatomy.stacks, facts, options)

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

    def take(self, examples: Sequence[int]) -> Classification:
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
