"""Which models classify texts, and how a file's labels are matched with theirs."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any

from transformers.models.auto.modeling_auto import MODEL_FOR_SEQUENCE_CLASSIFICATION_MAPPING_NAMES

from headlens.benchmarks.inputs import Options
from headlens.benchmarks.labelled import Labelled, listed
from headlens.errors import InputError, ModelError
from headlens.model.lens import Lens, body_weights

_NUMBERED = re.compile(r"LABEL_\d+")  # what `transformers` calls labels that nobody named


def check_classifier(lens: Lens, options: Options) -> None:
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
