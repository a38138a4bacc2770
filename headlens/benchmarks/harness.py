"""Any task of lm-evaluation-harness."""

from __future__ import annotations

import copy
import hashlib
import io
import json
import logging
import random
import re
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, redirect_stderr
from dataclasses import dataclass, field, replace
from importlib.metadata import version
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import torch

from headlens.benchmarks.base import (
    MIN_EXAMPLES,
    BenchmarkKind,
    BenchmarkOptions,
    longest_input,
    need_tokenizer,
)
from headlens.benchmarks.metrics import Accuracy, Array, Ratio
from headlens.benchmarks.predict import check_head_weights, predicts_next, run_batches, writing_numbers
from headlens.errors import InputError, ModelError, first_line
from headlens.model.finite import holds_none
from headlens.model.lens import Lens
from headlens.util.files import from_home, is_there


@dataclass(frozen=True, eq=False)
class Harness(BenchmarkKind):
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
    documents: Sequence[TaskDocument]
    scores: Sequence[Score]
    longest: int | None
    stacks: tuple[str, ...]
    facts: Mapping[str, Any]
    options: BenchmarkOptions = field(default_factory=BenchmarkOptions)
    kind: ClassVar[str] = "harness"
    form: ClassVar[str] = "harness:TASK"
    needs: ClassVar[str] = "harness"
    reads_pooler: ClassVar[bool] = True

    @property
    def metrics(self) -> tuple[Ratio, ...]:
        """In the order of tasks, then as each task lists them."""
        return tuple(score.shown for score in self.scores)

    @classmethod
    def open(cls, target: str, lens: Lens, options: BenchmarkOptions) -> Harness:
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
            "kind": cls.kind,
            "examples": len(documents),
            "example": "document",
            "tasks": {name: about(task) for name, task in tasks.items()},
            "left_out": left_out,
            "lm_eval": version("lm_eval"),
        }
        longest = longest_input(lens, options.max_length)
        specs = (Path(spec.strip()) for spec in target.split(",") if spec.strip())
        name = f"{cls.kind}:{','.join(spec.stem if spec.suffix in YAML else spec.name for spec in specs)}"
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


# ---- The examples of a task of lm-evaluation-harness, and what `run.json` says about them


NEW_TOKENS = 256  # that a task lets a model write where it does not say how many; lm_eval's own default


@dataclass(frozen=True, slots=True)
class TaskDocument:
    """One example of a task.

    Args:
        task: name of the task.
        number: which of its examples, from 0.
        requests: lm_eval's requests, such as one for each choice.
        tokens: how many tokens they have together.
    """

    task: str
    number: int
    requests: tuple[Any, ...]
    tokens: int


def documents_of(lens: Lens, name: str, task: Any) -> list[TaskDocument]:
    """Gather a task's requests by example.

    Args:
        lens: the model that will answer them.
        name: of the task.
        task: lm_eval's, its requests built.

    Returns:
        The examples, in the task's order.
    """
    by_number: dict[int, list[Any]] = defaultdict(list)
    for request in task.instances:
        by_number[request.doc_id].append(request)
    return [
        TaskDocument(
            name,
            number,
            tuple(sorted(requests, key=lambda request: request.idx)),
            sum(_tokens(lens, request) for request in requests),
        )
        for number, requests in sorted(by_number.items())
    ]


def _tokens(lens: Lens, request: Any) -> int:
    texts = [part for part in request.args if isinstance(part, str)]
    settings = next((part for part in request.args if isinstance(part, dict)), None)
    new = 0 if settings is None else int(settings.get("max_gen_toks", NEW_TOKENS))
    return len(need_tokenizer(lens)("".join(texts))["input_ids"]) + new


def about(task: Any) -> dict[str, Any]:
    """Say what a task is, down to every word that a model reads.

    Args:
        task: lm_eval's, its requests built.

    Returns:
        Version, sizes, and hashes of its config and of its examples with their requests.
    """
    requests = [[request.request_type, request.args, request.doc] for request in task.instances]
    return {
        "version": task.VERSION,
        "examples": len({request.doc_id for request in task.instances}),
        "num_fewshot": task.get_config("num_fewshot"),
        "config_sha256": _digest(task.dump_config()),
        "data_sha256": _digest(requests),
    }


def _digest(thing: Any) -> str:
    text = json.dumps(thing, sort_keys=True, default=str, ensure_ascii=False)
    return hashlib.sha256(re.sub(" at 0x[0-9a-f]+", "", text).encode()).hexdigest()


# ---- A model as lm-evaluation-harness wants it, and left as it was; and which models it can ask


@contextmanager
def wrapped(lens: Lens, longest: int | None) -> Iterator[Any]:
    """Hand a model to lm_eval while the block lasts.

    lm_eval puts models into eval mode, ties weights, and may give tokenizers a padding token: here the mode
    is put back, nothing is tied, and the tokenizer is a copy.

    Args:
        lens: the model.
        longest: most tokens of an input.

    Yields:
        lm_eval's `HFLM`.
    """
    from lm_eval.models.huggingface import HFLM

    backend: Any = "seq2seq" if lens.model.config.is_encoder_decoder else "causal"
    tokenizer = copy.deepcopy(lens.tokenizer)
    first = _first_token(tokenizer)
    with _untouched(lens.model):
        with quietly():
            model = HFLM(lens.model, backend, tokenizer=tokenizer, max_length=longest, prefix_token_id=first)
        yield model


def _first_token(tokenizer: Any) -> int | None:
    """What stands before a text that has nothing before it: BOS or EOS as in lm_eval, else CLS."""
    known = (getattr(tokenizer, f"{name}_token_id", None) for name in ("bos", "eos", "cls"))
    return next((token for token in known if token is not None), None)


@contextmanager
def _untouched(model: Any) -> Iterator[None]:
    training = [module for module in model.modules() if module.training]
    own = vars(model).get("tie_weights")
    model.tie_weights = lambda *_, **__: None
    try:
        yield
    finally:
        del model.tie_weights
        if own is not None:
            model.tie_weights = own
        for module in training:
            module.training = True


def check_model(lens: Lens, options: BenchmarkOptions) -> None:
    """Refuse a model that does not write text, or whose head is random.

    Args:
        lens: the model.
        options: whether random weights are accepted.

    Raises:
        ModelError: it has no language-model head, predicts masked tokens, or lacks weights of its head.
    """
    kind = type(lens.model).__name__
    head = lens.model.get_output_embeddings()  # type: ignore[no-untyped-call]
    if head is None or not (lens.model.config.is_encoder_decoder or predicts_next(lens)):
        raise ModelError(
            f"The benchmark harness needs a model that writes text, but this is a {kind}.",
            "Take a checkpoint whose class ends in ForCausalLM, LMHeadModel or ForConditionalGeneration.",
        )
    check_head_weights(lens, options)


def check_tokenizer(lens: Lens, documents: Sequence[TaskDocument]) -> None:
    """Refuse a tokenizer that lacks a token which these tasks need.

    Args:
        lens: the model.
        documents: the examples.

    Raises:
        ModelError: there is no token to begin with, or none that ends what is written.
    """
    tokenizer = need_tokenizer(lens)
    writes = any(one.request_type == "generate_until" for two in documents for one in two.requests)
    if _first_token(tokenizer) is None or (writes and tokenizer.eos_token_id is None):
        raise ModelError(
            "lm-evaluation-harness needs a tokenizer with a BOS or EOS token, to write text one with an EOS "
            "token; this one has none.",
            "Set tokenizer.eos_token.",
        )


# ---- The metrics of lm-evaluation-harness that can be resampled example by example


def _bits(nats: Array) -> Array:
    bits: Array = nats / np.log(2)
    return bits


# aggregation in lm_eval -> sign of the values, and the growing function that their mean is shown through
_MEANS: Mapping[str, tuple[float, Callable[[Array], Array] | None]] = {
    "mean": (1, None),
    "nanmean": (1, None),
    "perplexity": (-1, np.exp),
    "weighted_perplexity": (-1, np.exp),
    "bits_per_byte": (-1, _bits),
}
# metrics that lm_eval itself makes 0 or 1 for each example
_RIGHT_OR_WRONG = ("acc", "acc_norm", "acc_bytes", "acc_mutual_info", "exact_match")


@dataclass(frozen=True, slots=True)
class Share(Ratio):
    """The share of a task's examples that come out right, each 0 or 1; tested as `Accuracy` is."""

    def paired_p(self, values: Array, baseline: Array) -> float:
        """See `OwnTest.paired_p`; examples of other tasks never change."""
        return Accuracy(self.numerator).paired_p(values, baseline)


@dataclass(frozen=True, slots=True)
class Score:
    """One metric of one task.

    Args:
        task: name of the task.
        metric: name of the metric.
        answers: name of the filter that the model's answers pass through.
        sign: what an example's value is multiplied with, so that the shown number grows with it.
        gaps: whether examples whose value is NaN do not count; else they make the metric NaN, as in lm_eval.
        shown: the metric, over two columns: value times weight, weight.
    """

    task: str
    metric: str
    answers: str
    sign: float
    gaps: bool
    shown: Ratio

    def cells(self, value: Any) -> tuple[float, float]:
        """Lay out what lm_eval makes of one example.

        Args:
            value: a number, or a number with its weight (words, bytes).

        Returns:
            Value times weight, weight; weight 0 where there is no value.
        """
        total, weight = value if isinstance(value, tuple | list) else (value, 1)
        if self.gaps and np.isnan(float(total)):
            return 0.0, 0.0
        return self.sign * float(total), float(weight)


def scores_of(tasks: Mapping[str, Any]) -> tuple[list[Score], list[str]]:
    """Find the metrics that are means over examples, or a growing function of one.

    Args:
        tasks: as loaded.

    Returns:
        These metrics; and the names of all others, such as F1, which cannot be resampled example by example.
    """
    from lm_eval.api import metrics

    known = {getattr(metrics, name): (name, *form) for name, form in _MEANS.items()}
    scores: list[Score] = []
    left_out: list[str] = []
    for task_name, task in tasks.items():
        filters = [one.name for one in task._filters]
        better, own = task.higher_is_better(), callable(task.get_config("process_results"))
        for metric, aggregate in task.aggregation().items():
            for answers in filters:
                name = f"{metric},{answers}" if len(filters) > 1 else metric
                name = f"{task_name}:{name}" if len(tasks) > 1 else name
                if aggregate not in known:
                    left_out.append(name)
                    continue
                form, sign, scale = known[aggregate]
                column = 2 * len(scores)
                kind = Share if metric in _RIGHT_OR_WRONG and scale is None and not own else Ratio
                shown = kind(name, name, bool(better[metric]), column, column + 1, scale)
                scores.append(Score(task_name, metric, answers, sign, form == "nanmean", shown))
    return scores, left_out


# ---- Tasks of lm-evaluation-harness: loaded once, quietly and the same every time


YAML = (".yaml", ".yml")
FEWSHOT_SEED = 1234  # lm_eval's own default; 0 for `random`, 1234 for numpy and torch are, too


def load_tasks(target: str) -> dict[str, Any]:
    """Load tasks with their data.

    What is on this machine is taken first; the network is asked only for what is not.

    Args:
        target: names of tasks, groups or tags, or paths of YAML files, between commas.

    Returns:
        The tasks by name, their requests built.

    Raises:
        InputError: lm_eval is not installed, there is no such task, or its data cannot be had.
    """
    specs = [spec.strip() for spec in target.split(",") if spec.strip()]
    with quietly(), seeded():
        manager_of = _harness()
        paths = {spec: from_home(spec) for spec in specs if Path(spec).suffix in YAML}
        for path in paths.values():
            if not is_there(path):
                raise InputError(f"Expected a file at {path}, found nothing.", "Check the path.")
        manager = manager_of(include_defaults=len(paths) < len(specs))  # finding the names takes seconds
        tasks: dict[str, Any] = {}
        for spec in specs:
            if spec not in paths and spec not in manager.task_index:
                raise InputError(
                    f"lm-evaluation-harness has no task {spec!r}.",
                    "Name one of `lm_eval ls tasks`, or the path of a task's .yaml file.",
                )
            tasks |= _loaded(manager, spec, str(paths.get(spec, spec)))
        for name, task in tasks.items():
            _build(name, task)
    return tasks


def _harness() -> Any:
    try:
        import lm_eval.models.huggingface
        import lm_eval.tasks
    except ImportError as error:
        raise InputError(
            f"The benchmark harness needs the package lm_eval, which cannot be imported: {first_line(error)}",
            "Type: pip install 'headlens[harness]'",
        ) from None
    return lm_eval.tasks.TaskManager


def _loaded(manager: Any, spec: str, place: str) -> dict[str, Any]:
    """Load one task: first without network, and only if that does not do, with it."""
    try:
        with _offline():
            return dict(manager.load([place])["tasks"])
    except ConnectionError as error:
        problem: BaseException = error
    except Exception as error:  # a task's file can be wrong in any way, and can run code
        raise InputError(
            f"The task {spec} cannot be loaded: {first_line(error)}", "Correct its .yaml file and its data."
        ) from error
    try:
        if _hub_answers():
            return dict(manager.load([place])["tasks"])
    except Exception as error:  # as above, and everything that can happen on the way to the hub
        problem = error
    raise InputError(
        f"The task {spec} cannot be loaded: {first_line(problem)}",
        "Load it once with network, or name a .yaml file whose data are on this machine.",
    ) from problem


def _build(name: str, task: Any) -> None:
    """Make a task's requests, few-shot examples included, as lm_eval's `simple_evaluate` does."""
    if getattr(task, "MULTIMODAL", False) or getattr(task, "UNSAFE_CODE", False):
        raise InputError(
            f"The task {name} needs pictures or sound, or runs code that a model wrote.",
            "Choose a task of plain text.",
        )
    if task.get_config("num_fewshot") is None:
        task.set_config(key="num_fewshot", value=0)
    task.set_fewshot_seed(seed=FEWSHOT_SEED)
    task.build_all_requests(rank=0, world_size=1)


@contextmanager
def quietly() -> Iterator[None]:
    """Keep lm_eval and what it calls from writing to the log and drawing bars, while the block lasts."""
    loggers = [logging.getLogger(name) for name in ("lm_eval", "datasets", "transformers")]
    levels = [logger.level for logger in loggers]
    for logger in loggers:
        logger.setLevel(logging.ERROR)
    try:
        with redirect_stderr(io.StringIO()):  # some of lm_eval's bars cannot be switched off
            yield
    finally:
        for logger, level in zip(loggers, levels, strict=True):
            logger.setLevel(level)


@contextmanager
def seeded() -> Iterator[None]:
    """Seed what tasks draw at random as lm_eval does, and put the generators back afterwards."""
    plain, legacy = random.getstate(), np.random.get_state()
    with torch.random.fork_rng(devices=range(torch.cuda.device_count())):
        random.seed(0)
        np.random.seed(FEWSHOT_SEED)
        torch.manual_seed(FEWSHOT_SEED)
        try:
            yield
        finally:
            random.setstate(plain)
            np.random.set_state(legacy)


@contextmanager
def _offline() -> Iterator[None]:
    """Have datasets look at this machine only, as with HF_HUB_OFFLINE=1, which is read at import."""
    import datasets.config
    from huggingface_hub import constants

    holders: Sequence[Any] = (datasets.config, constants)
    before = [holder.HF_HUB_OFFLINE for holder in holders]
    for holder in holders:
        holder.HF_HUB_OFFLINE = True
    try:
        yield
    finally:
        for holder, value in zip(holders, before, strict=True):
            holder.HF_HUB_OFFLINE = value


def _hub_answers() -> bool:
    """Whether the hub may be asked and is there, found out within seconds (datasets tries much longer)."""
    from huggingface_hub import constants, get_session

    if constants.HF_HUB_OFFLINE:
        return False
    try:
        get_session().head(constants.ENDPOINT, timeout=5)
    except Exception:  # whatever the client raises: there is no way to the hub
        return False
    return True
