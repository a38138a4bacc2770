"""``harness:TASK[,TASK]``: any task of lm-evaluation-harness, run inside the ablation."""

from __future__ import annotations

import copy
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from importlib.metadata import version
from pathlib import Path
from typing import Any

import numpy as np

from headlens.benchmarks.batching import run_batches
from headlens.benchmarks.harness_documents import Document, about, documents_of
from headlens.benchmarks.harness_model import check_model, check_tokenizer, wrapped
from headlens.benchmarks.harness_scores import Score, scores_of
from headlens.benchmarks.harness_tasks import YAML, load_tasks, quietly, seeded
from headlens.benchmarks.inputs import MIN_EXAMPLES, Options, longest_input
from headlens.benchmarks.metrics import Array, Ratio
from headlens.benchmarks.numbers import writing_numbers
from headlens.errors import InputError
from headlens.model.finite import holds_none
from headlens.model.lens import Lens


@dataclass(frozen=True, eq=False)
class Harness:
    """Tasks of lm-evaluation-harness (Gao et al. 2021), their numbers equal to those of `lm_eval`.

    An example is a document of a task; examples stand in the order of tasks and documents. Metrics are those
    that are means over documents, and perplexities; others are named in ``facts["left_out"]``. With several
    tasks a metric is called ``task:metric``, rests on its task's examples alone, and the first is the primary
    one; with several filters it is called ``metric,filter``. Few-shot examples are drawn once, with lm_eval's
    seeds. No chat template is applied, and too long a context loses its beginning, as lm_eval has it.

    A relative path in a task's ``data_files`` is looked for where headlens was started.

    Args:
        name: how the user writes it.
        tasks: lm_eval's tasks by name.
        documents: the examples.
        scores: its metrics.
        longest: most tokens of an input.
        stacks: stacks of attention that are run.
        facts: what `run.json` says about it.
        options: how it is run.
    """

    name: str
    tasks: Mapping[str, Any]
    documents: Sequence[Document]
    scores: Sequence[Score]
    longest: int | None
    stacks: tuple[str, ...]
    facts: Mapping[str, Any]
    options: Options = field(default_factory=Options)

    @property
    def metrics(self) -> tuple[Ratio, ...]:
        """In the order of tasks, then as each task lists them."""
        return tuple(score.shown for score in self.scores)

    @classmethod
    def open(cls, target: str, lens: Lens, options: Options) -> Harness:
        """Load tasks.

        Args:
            target: names of tasks, or paths of their YAML files, between commas.
            lens: the model that will be measured.
            options: how to run it.

        Returns:
            The benchmark.

        Raises:
            InputError: a task does not exist, its data cannot be had, or none of its metrics is a mean.
            ModelError: the model does not write text, or weights of its head are missing.
        """
        check_model(lens, options)
        tasks = load_tasks(target)
        scores, left_out = scores_of(tasks)
        if not scores:
            raise InputError(
                f"No metric of {target} is a mean over examples: {', '.join(left_out)}.",
                "Choose another task, or list the metric acc in its metric_list.",
            )
        documents = [one for name, task in tasks.items() for one in documents_of(lens, name, task)]
        if len(documents) < MIN_EXAMPLES:
            raise InputError(
                f"{target}: expected at least {MIN_EXAMPLES} examples, found {len(documents)}.",
                "Take a longer task, or several.",
            )
        check_tokenizer(lens, documents)
        facts = {
            "kind": "harness",
            "examples": len(documents),
            "example": "document",
            "tasks": {name: about(task) for name, task in tasks.items()},
            "left_out": left_out,
            "lm_eval": version("lm_eval"),
        }
        longest = longest_input(lens, options.max_length)
        specs = (Path(spec.strip()) for spec in target.split(",") if spec.strip())
        name = f"harness:{','.join(spec.stem if spec.suffix in YAML else spec.name for spec in specs)}"
        return cls(name, tasks, documents, scores, longest, lens.anatomy.stacks, facts, options)

    def measure(self, lens: Lens) -> Array:
        """Have the model answer every request, and score the answers as the tasks do.

        Args:
            lens: the model, whatever is ablated in it now.

        Returns:
            For each metric value times weight and weight, [document, 2 x metric]; 0 and 0 for documents of
            other tasks, or without a value.
        """
        answered = self._answered(lens, self.options.batch_size)
        values = np.zeros((len(self.documents), 2 * len(self.scores)))
        with quietly(), seeded():
            for name, task in self.tasks.items():
                rows = [row for row, document in enumerate(self.documents) if document.task == name]
                if not rows:
                    continue
                task._instances = [request for row in rows for request in answered[row]]
                task.apply_filters()
                for row in rows:
                    values[row] = self._cells(name, answered[row])
        return values

    def show(self, lens: Lens) -> None:
        """Run every input once, one by one, so that there is no padding among the tokens.

        Args:
            lens: the model, whatever looks at it now.
        """
        self._answered(lens, 1)

    @property
    def input_keys(self) -> Sequence[str]:
        """What is asked of the model in each document."""
        return [str([request.args for request in document.requests]) for document in self.documents]

    def take(self, examples: Sequence[int]) -> Harness:
        """See `Benchmark.take`; few-shot examples stay those that were drawn."""
        documents = [self.documents[example] for example in examples]
        return replace(self, documents=documents, facts={**self.facts, "examples": len(documents)})

    def _cells(self, name: str, requests: Sequence[Any]) -> Array:
        """Score the answers to one document of a task, [2 x metric]."""
        cells = np.zeros((len(self.scores), 2))
        found: dict[str, Mapping[str, Any]] = {}
        for place, score in enumerate(self.scores):
            if score.task == name:
                if score.answers not in found:
                    answers = [request.filtered_resps[score.answers] for request in requests]
                    found[score.answers] = self.tasks[name].process_results(requests[0].doc, answers)
                if score.metric in found[score.answers]:
                    cells[place] = score.cells(found[score.answers][score.metric])
        return cells.reshape(-1)

    def _answered(self, lens: Lens, batch_size: int | None) -> list[list[Any]]:
        """Copies of every document's requests with what the model answers."""
        asked = [[_fresh(request) for request in document.requests] for document in self.documents]
        with seeded(), wrapped(lens, self.longest) as model, writing_numbers(lens.model):

            def work(group: list[int]) -> list[int]:
                kinds: dict[str, list[Any]] = defaultdict(list)
                for index in group:
                    for request in asked[index]:
                        kinds[request.request_type] += [request] * request.repeats
                for kind, requests in kinds.items():
                    model.batch_size_per_gpu = len(requests) if batch_size is None else len(group)
                    with quietly():
                        answers = getattr(model, kind)(requests, disable_tqdm=True)
                    for request, answer in zip(requests, answers, strict=True):
                        request.resps.append(_number(request, answer))
                return group

            lengths = [document.tokens for document in self.documents]
            for _ in run_batches(lens, lengths, work, batch_size):
                pass
        return asked


def _number(request: Any, answer: Any) -> Any:
    """The model's answer: a text, or a log-probability, alone or with more; refused where that is none."""
    value = answer[0] if isinstance(answer, tuple | list) else answer
    if isinstance(value, float) and np.isnan(value):
        raise holds_none(f"The log-probability of the request that begins {str(request.args[0])[:40]!r}")
    return answer


def _fresh(request: Any) -> Any:
    mine = copy.copy(request)
    mine.resps, mine.filtered_resps = [], {}
    return mine
