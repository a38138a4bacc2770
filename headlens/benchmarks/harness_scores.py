"""The metrics of lm-evaluation-harness that can be resampled example by example."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from headlens.benchmarks.confusion import Accuracy
from headlens.benchmarks.metrics import Array, Ratio


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
