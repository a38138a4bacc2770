"""What a sweep found: the table of its conditions and the importance of its heads."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd
from scipy import stats

from headlens.ablation.plan import Condition
from headlens.benchmarks.metrics import Array, Metric, OwnTest
from headlens.benchmarks.registry import Benchmark, Keyed
from headlens.errors import RunError
from headlens.model.heads import STACKS, Head
from headlens.runs.read import AGAIN, TableForm, at
from headlens.runs.result import Examples, Result
from headlens.util.files import ABLATION, AGREEMENT, CONTROLS, GATES, IMPORTANCE
from headlens.util.statistics import benjamini_hochberg, draws

if TYPE_CHECKING:
    from typing_extensions import Self  # of Python 3.11

SIGNIFICANT = 0.05  # q-values below it speak for an effect, p-values below it against "no loss"
BEST = ["layer", "kept", "delta", "ci_low", "ci_high", "p_value", "q_value"]
_ONE_HEAD = r"\w+\.\d{1,9}\.\d{1,9}"


@dataclass(frozen=True, slots=True)
class MetricName:
    """What a run says of a metric.

    Args:
        name: in tables.
        label: in words, with its unit.
        larger_is_better: which way it points.
    """

    name: str
    label: str
    larger_is_better: bool


@dataclass(frozen=True, eq=False, repr=False)
class Sweep(Result):
    """What a sweep measured.

    Args:
        table: a row per condition and metric, columns as in `ablation.csv`.
        importance: a row per method and head, columns as in `importance.csv`.
        run: what `run.json` says about it.
        controls: each condition against its random sets, columns as in `controls.csv`.
        gates: what learned gates came to, columns as in `gates.csv`.
        best: of the kind *only*, the best head of each layer, columns as in `best_of_layers.csv`.
        examples: a few inputs that a report shows the heads on.
        baseline: per-example values without ablation [example, column]; None in an opened run.
        values: the same under each condition, by its name; none in an opened run.
    """

    command = "ablate"
    forms = (
        TableForm(
            "table",
            ABLATION,
            ("condition", "sweep", "mode", "removed", "metric", "control_of", "kept", "tag"),
            ("no_significant_loss",),
            stem="ablation",
        ),
        TableForm("importance", IMPORTANCE, ("stack", "method")),
        TableForm("controls", CONTROLS, ("condition", "metric"), optional=True),
        TableForm("gates", GATES, ("stack", "role"), optional=True),
        TableForm("best", BEST, ("layer", "kept"), optional=True, stem="best_of_layers"),
    )
    table: pd.DataFrame
    importance: pd.DataFrame
    run: Mapping[str, Any]
    controls: pd.DataFrame = field(default_factory=lambda: pd.DataFrame(columns=CONTROLS))
    gates: pd.DataFrame = field(default_factory=lambda: pd.DataFrame(columns=GATES))
    best: pd.DataFrame = field(default_factory=lambda: pd.DataFrame(columns=BEST))
    examples: Examples | None = None
    baseline: Array | None = None
    values: Mapping[str, Array] = field(default_factory=dict)

    @property
    def kind(self) -> str:
        """A name in `headlens.ablation.plan.SWEEPS`."""
        return str(self.table["sweep"].iloc[0])

    @property
    def mode(self) -> str:
        """What stood in the place of removed heads, a name in `headlens.model.replacements.MODES`."""
        return str(self.table["mode"].iloc[0])

    @property
    def metrics(self) -> tuple[MetricName, ...]:
        """The benchmark's metrics, the primary one first."""
        labels, better = (at(self.run, name, default={}) for name in ("metric_labels", "larger_is_better"))
        names = map(str, self.table["metric"].unique())
        return tuple(MetricName(one, str(labels.get(one, one)), bool(better.get(one))) for one in names)

    @property
    def metric(self) -> MetricName:
        """The primary metric."""
        return self.metrics[0]

    @property
    def primary(self) -> pd.DataFrame:
        """The rows of the primary metric that are no random sets, in order."""
        rows = self._of_primary(self.table)
        return rows[rows["control_of"] == ""].reset_index(drop=True)

    @property
    def primary_controls(self) -> pd.DataFrame:
        """The primary metric against random sets."""
        return self._of_primary(self.controls)

    @property
    def conditions(self) -> tuple[Condition, ...]:
        """What was taken out, in the order of the table."""
        rows = self._of_primary(self.table)
        columns = (rows[name] for name in ("condition", "removed", "control_of", "kept", "tag"))
        return tuple(
            Condition(name, heads_in(removed), of, next(iter(heads_in(kept)), None), tag)
            for name, removed, of, kept, tag in zip(*columns, strict=True)
        )

    @property
    def heads(self) -> list[Head]:
        """Every head that it speaks of, in model order."""
        ranked = zip(*(self.importance[name] for name in ("stack", "layer", "head")), strict=True)
        known = {head for cell in set(self.table["removed"]) for head in heads_in(cell)}
        known |= {Head(str(stack), int(layer), int(head)) for stack, layer, head in ranked}
        order = {stack: number for number, stack in enumerate(STACKS)}
        return sorted(known, key=lambda head: (order.get(head.stack, len(order)), head))

    @property
    def agreement(self) -> pd.DataFrame:
        """Rank correlation rho of every two methods of importance, over n heads."""
        empty = {"method_a": "", "method_b": "", "rho": np.nan, "n": 0}
        rows = [
            [at(one, name, default=default) for name, default in empty.items()]
            for one in at(self.run, "importance_agreement", default=[])
        ]
        return pd.DataFrame(rows, columns=AGREEMENT)

    @property
    def benchmark(self) -> str:
        """The name of what it was measured on."""
        return str(at(self.run, "benchmark", "name", default="the benchmark"))

    @property
    def estimated_on(self) -> str:
        """On which examples importance was estimated, in words."""
        return str(at(self.run, "importance_estimated_on", default="all examples"))

    @property
    def can_go(self) -> float:
        """Of *cumulative*, the share of the heads that can go without a significant loss."""
        return float(at(self.run, "largest_share_without_significant_loss", default=0.0))

    @property
    def heads_of_model(self) -> int | None:
        """How many heads the whole model has; None where the run does not say."""
        of_model = at(self.run, "model", "heads", default=0)
        return int(at(self.run, "heads_of_model", default=of_model)) or None

    @property
    def notes(self) -> tuple[str, ...]:
        """What the user should know before believing the numbers."""
        return tuple(map(str, at(self.run, "notes", default=())))

    def _of_primary(self, table: pd.DataFrame) -> pd.DataFrame:
        rows: pd.DataFrame = table[table["metric"] == self.table["metric"].iloc[0]]
        return rows

    def fault(self) -> str:
        """See `Result`; there is a condition."""
        return super().fault() or ("ablation.csv holds no rows" if self.table.empty else "")

    @classmethod
    def read(cls, path: Path) -> Self:
        """Read a run of ``headlens ablate``, whole or not at all."""
        found = super().read(path)
        table, better = found.table, at(found.run, "larger_is_better", default={})
        if table.empty or table["metric"].iloc[0] not in better:
            what = (
                f"{path / 'ablation.csv'} holds no rows."
                if table.empty
                else f"{path / 'run.json'} does not say which values of {table['metric'].iloc[0]} are better."
            )
            raise RunError(what, "Type the same headlens ablate again: what was measured is kept.")
        for name in ("removed", "kept"):
            odd = table.loc[~table[name].str.fullmatch(rf"|({_ONE_HEAD})( {_ONE_HEAD})*"), name]
            if len(odd):
                raise RunError(
                    f"Expected heads such as encoder.2.8 in the column {name} of {path / 'ablation.csv'}; "
                    f"found {odd.iloc[0]!r}.",
                    AGAIN,
                )
        return found


def heads_in(cell: str) -> tuple[Head, ...]:
    """The heads that a cell of the columns `removed` and `kept` names."""
    parts = (name.split(".") for name in cell.split())
    return tuple(Head(stack, int(layer), int(head)) for stack, layer, head in parts)


def tabulate(
    conditions: Sequence[Condition],
    kind: str,
    mode: str,
    metrics: Sequence[Metric],
    compared: Sequence[pd.DataFrame],
    n_examples: int,
) -> pd.DataFrame:
    """Lay out comparisons as `ablation.csv`.

    `removed` names heads with their stack: a spreadsheet that reads ``4.10`` as the number 4.1 still has it.
    Random sets have no q-value: they are what others are held against. `no_significant_loss` goes by the
    p-value as it is: correcting it for many tests would make it easier to claim that nothing is lost.
    """
    rows = []
    for condition in conditions:
        for metric, found in zip(metrics, compared, strict=True):
            value, baseline, delta, low, high, p_value, q_value = found.loc[condition.name].to_numpy(float)
            lost = delta < 0 if metric.larger_is_better else delta > 0
            rows.append(
                (
                    condition.name, kind, mode, " ".join(map(str, condition.heads)), len(condition.heads),
                    metric.name, value, baseline, delta, low, high, p_value,
                    np.nan if condition.control_of else q_value, n_examples,
                    None if np.isnan(delta) else not (lost and p_value < SIGNIFICANT),
                    condition.control_of, str(condition.kept or ""), condition.tag,
                )
            )  # fmt: skip
    table = pd.DataFrame(rows, columns=ABLATION)
    return table.astype({"no_significant_loss": "boolean"})


def against_controls(
    conditions: Sequence[Condition], metrics: Sequence[Metric], table: pd.DataFrame
) -> pd.DataFrame:
    """Hold each condition against its random sets: mean and 95 % range of the metric over them.

    `at_least_as_bad` is the share of the sets, the condition itself counted in, without which the model is
    as bad or worse: (1 + so many) / (1 + draws), a one-sided p-value of "this set is like a random one"
    (Phipson and Smyth 2010).
    """
    random: dict[str, list[str]] = {}
    for one in conditions:
        if one.control_of:
            random.setdefault(one.control_of, []).append(one.name)
    rows = []
    values = table.set_index(["condition", "metric"])["value"]
    for name, names in random.items():
        for metric in metrics:
            value = float(values[name, metric.name])
            drawn = np.array([values[other, metric.name] for other in names], dtype=np.float64)
            drawn = drawn[~np.isnan(drawn)]
            low, high = np.percentile(drawn, [2.5, 97.5]) if len(drawn) else (np.nan, np.nan)
            mean = drawn.mean() if len(drawn) else np.nan
            worse = int((drawn <= value if metric.larger_is_better else drawn >= value).sum())
            share = (1 + worse) / (1 + len(drawn)) if np.isfinite(value) and len(drawn) else np.nan
            rows.append((name, metric.name, value, mean, low, high, share, len(drawn), worse))
    return pd.DataFrame(rows, columns=CONTROLS)


def headline(rows: pd.DataFrame, n_heads: int) -> float:
    """Find the largest share of heads, 0..1, that can go before the first significant loss of *cumulative*.

    A later step that happens to be insignificant again does not count, nor does one where the metric is not
    defined.
    """
    share = 0.0
    for row in rows.sort_values("n_removed").itertuples():
        if row.no_significant_loss is pd.NA or not row.no_significant_loss:
            break
        share = float(row.n_removed) / n_heads  # type: ignore[arg-type]
    return share


def notes(baseline: Array, measured: Mapping[str, Array]) -> tuple[str, ...]:
    """Say what the user should know before believing the numbers."""
    if any(not np.array_equal(values, baseline) for values in measured.values()):
        return ()
    return (
        f"None of the {len(measured)} ablations changed anything: every example came out as without it. "
        "Either these heads do nothing, or the model does not take the ablation: if taking out whole layers "
        "(--sweep layer) changes nothing either, believe none of these numbers.",
    )


def same_input(benchmark: Benchmark, baseline: Array) -> tuple[str, ...]:
    """Notice examples that are all the same one: nothing then varies that intervals and tests go by.

    A benchmark that does not tell its inputs goes by its values.
    """
    if isinstance(benchmark, Keyed):
        same, what = len(set(benchmark.input_keys)) == 1, "have the same input"
    else:
        same, what = bool((baseline == baseline[:1]).all()), "came out the same without ablation"
    if not same or len(baseline) < 2:
        return ()
    return (
        f"All {len(baseline)} examples of {benchmark.name} {what}. They tell as much as one, but are counted "
        f"as {len(baseline)}: do not believe intervals, p- and q-values.",
    )


def no_importance() -> pd.DataFrame:
    """Make an `importance.csv` without rows."""
    return pd.DataFrame(columns=list(IMPORTANCE))


# ---- Conditions against the baseline, paired over examples: deltas, intervals, p- and q-values


@dataclass(frozen=True, slots=True)
class PairedComparison:
    """One metric under every condition.

    Args:
        baseline: the metric without ablation.
        value: the metric under each condition, [condition]; NaN where it is not defined.
        delta: value minus baseline, in the metric's own direction.
        ci_low: lower end of the 95 % interval of delta.
        ci_high: its upper end.
        p_value: two-sided, of "delta is 0".
        q_value: Benjamini and Hochberg's (1995) over all conditions.
    """

    baseline: float
    value: Array
    delta: Array
    ci_low: Array
    ci_high: Array
    p_value: Array
    q_value: Array

    def table(self, names: Sequence[str]) -> pd.DataFrame:
        """The same as a table, a row per condition by its name; columns from `value` to `q_value`."""
        columns = ("value", "baseline", "delta", "ci_low", "ci_high", "p_value", "q_value")
        return pd.DataFrame({name: getattr(self, name) for name in columns}, index=list(names))


def compare(
    metric: Metric, baseline: Array, conditions: Sequence[Array], drawn: Array, tests: int = 0
) -> PairedComparison:
    """Compare conditions with the baseline over the same examples.

    The interval is the percentile interval of a paired bootstrap over examples: the same resamples for the
    baseline and every condition. The p-value is that of a studentised paired effect against a t
    distribution with n - 1 degrees of freedom, not a share of resamples, so that it can be small enough to
    pass a correction for many heads; its standard error is that of the paired difference of the linearised
    metrics (the infinitesimal jackknife: Efron 1982). A metric that has its own test (`OwnTest`, such as
    the exact one of accuracies) is tested by it. A condition whose per-example values equal the
    baseline's has delta 0, interval 0 to 0, and p 1.

    It misleads where examples are not independent, such as consecutive windows of one story: intervals are
    then too narrow.

    Args:
        metric: the metric.
        baseline: per-example values without ablation [example, column].
        conditions: the same under each condition.
        drawn: how often each example is in each resample, [resample, example]; see
            `headlens.util.statistics.draws`.
        tests: how many conditions were in question, if more than were measured: q-values are corrected for
            all of them.

    Returns:
        One entry per condition.
    """
    start = metric.value(baseline)
    resampled = metric.resampled(baseline, drawn)
    rows = np.array([_row(metric, baseline, values, drawn, resampled) for values in conditions])
    value, delta, low, high, p_value = rows.reshape(-1, 5).T
    unmeasured = np.ones(max(0, tests - len(p_value)))
    q_value = benjamini_hochberg(np.concatenate([p_value, unmeasured]))[: len(p_value)]
    return PairedComparison(start, value, delta, low, high, p_value, q_value)


def _row(
    metric: Metric, baseline: Array, values: Array, drawn: Array, resampled: Array
) -> tuple[float, float, float, float, float]:
    """Value, delta, interval and p-value of one condition."""
    start = metric.value(baseline)
    if np.array_equal(values, baseline):
        zero = 0.0 if np.isfinite(start) else float("nan")
        return start, zero, zero, zero, 1.0 + zero
    value = metric.value(values)
    if not np.isfinite(value - start):
        return value, float("nan"), float("nan"), float("nan"), float("nan")
    deltas = metric.resampled(values, drawn) - resampled
    low, high = np.nanpercentile(deltas, [2.5, 97.5])
    return value, value - start, float(low), float(high), paired_p(metric, values, baseline)


def paired_p(metric: Metric, values: Array, baseline: Array) -> float:
    """Test whether a metric differs between two conditions, by its own test if it has one.

    Args:
        metric: the metric.
        values: per-example values of one condition [example, column].
        baseline: the same examples under the other.

    Returns:
        Two-sided p-value.
    """
    if isinstance(metric, OwnTest):
        return metric.paired_p(values, baseline)
    effect, influence = metric.linearised(values)
    other, other_influence = metric.linearised(baseline)
    n = len(values)
    error = np.sqrt(np.sum((influence - other_influence) ** 2) * n / (n - 1))
    return two_sided(effect - other, float(error), n - 1)


def two_sided(effect: float, error: float, freedom: int) -> float:
    """Compute the two-sided p-value of an effect over its standard error."""
    if effect == 0:
        return 1.0
    if error <= 1e-12 * abs(effect):
        return 0.0
    return float(2 * stats.t.sf(abs(effect / error), freedom))


# ---- The best head of each layer, chosen on one half of the examples and measured on the other


def best_of_layers(
    conditions: Sequence[Condition],
    values: Mapping[str, Array],
    baseline: Array,
    metric: Metric,
    named: Callable[[Head], str],
    seed: int = 0,
) -> pd.DataFrame:
    """Find which head of each layer does best alone, and what the model then loses.

    Choosing and measuring on the same examples would flatter the head that is chosen (Michel et al. 2019
    choose on validation data, too).
    """
    layers: dict[str, list[tuple[Head, Array]]] = {}
    for condition in conditions:
        if condition.kept is not None:
            layer = named(condition.kept).rpartition(".")[0]
            layers.setdefault(layer, []).append((condition.kept, values[condition.name]))
    if not layers:
        return pd.DataFrame(columns=BEST)
    order = np.random.default_rng(seed).permutation(len(baseline))
    first, second = np.sort(order[: len(order) // 2]), np.sort(order[len(order) // 2 :])
    drawn = draws(len(second), seed)
    sign = 1 if metric.larger_is_better else -1
    rows = []
    base = baseline[second]
    for layer, kept in layers.items():
        worth = [sign * metric.value(found[first]) for _, found in kept]
        best, found = kept[int(np.argmax(np.nan_to_num(worth, nan=-np.inf)))]
        there = found[second]
        deltas = metric.resampled(there, drawn) - metric.resampled(base, drawn)
        low, high = np.nanpercentile(deltas, [2.5, 97.5]) if np.isfinite(deltas).any() else (np.nan, np.nan)
        delta = metric.value(there) - metric.value(base)
        p_value = paired_p(metric, there, base) if np.isfinite(delta) else np.nan
        rows.append((layer, named(best), delta, low, high, p_value))
    table = pd.DataFrame(rows, columns=BEST[:-1])
    return table.assign(q_value=benjamini_hochberg(table["p_value"].to_numpy(np.float64)))
