"""What an ablation found, in a few lines for a terminal."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

from headlens.util.formatting import counted

if TYPE_CHECKING:
    import pandas as pd

    from headlens.ablation.result import Sweep

TOP = 5  # rows shown


def ablation(result: Sweep) -> str:
    """Write what a sweep found.

    Args:
        result: of any kind.

    Returns:
        The benchmark and its baseline, the rows that say most, and what they come to.
    """
    from headlens.report.words import plain_number

    about = result.run["benchmark"]
    baseline = "   ".join(
        f"{name} {plain_number(value, '.4f')}" for name, value in result.run["baseline"].items()
    )
    lines = [f"{about['name']}, {about['examples']} examples", f"baseline: {baseline}", ""]
    lines += _KINDS[result.kind](result)
    if len(result.agreement):
        lines += ["", "Rank correlation (Spearman) of methods of importance:"]
        lines += [
            f"  {a} and {b}: {plain_number(rho, '.2f')} over {n} heads"
            for a, b, rho, n in result.agreement.to_numpy()
        ]
    return "\n".join(lines)


def _rows(result: Sweep, rows: pd.DataFrame) -> list[str]:
    width = max(14, *(len(name) + 2 for name in rows["condition"])) if len(rows) else 14
    name = result.metrics[0].name
    lines = [f"{'removed':<{width}}{name:>16}{'change':>10}   {'95 % interval':<22}{'q':>8}"]
    listed: list[Any] = list(rows.itertuples())
    for row in listed:
        interval = f"{row.ci_low:+.4f} to {row.ci_high:+.4f}" if row.ci_low == row.ci_low else "none"
        numbers = f"{_cell(row.value, '.4f'):>16}{_cell(row.delta, '+.4f'):>10}   {interval:<22}"
        numbers += f"{_cell(row.q_value, '.2g'):>8}"
        lines.append(f"{row.condition:<{width}}{numbers}")
    return lines


def _cell(value: Any, form: str) -> str:
    """A number of a table; a dash where it is not defined."""
    return format(value, form) if value == value else "-"


def _worst(result: Sweep) -> pd.DataFrame:
    """The rows of the primary metric, largest loss first."""
    from headlens.report.words import with_losses

    return with_losses(result.primary, result.metrics[0].larger_is_better)


def _each(result: Sweep) -> list[str]:
    from headlens.report.words import among, effects, judged

    rows, name = _worst(result), result.metrics[0].name
    known = judged(rows)
    worse, better = map(len, effects(known))
    lines = [*_rows(result, rows.head(TOP)), ""]
    lines.append(f"Significant on {name} (q < 0.05), of {among(len(known), len(rows), 'head')}:")
    lines.append(f"  {worse:>4} matter: without one of them it is worse")
    lines.append(f"  {better:>4} harm: without one of them it is better")
    if rest := len(known) - worse - better:
        lines += [
            f"Without {counted(rest, 'other head')}, each alone, nothing significant changes. They may have",
            "a role all the same: heads stand in for each other (--sweep cumulative, only or tags tells).",
        ]
    if len(rows) < (result.importance["method"] == "each").sum():
        method = next(name for name in result.importance["method"] if name != "each")
        lines.append(f"Only the heads that rank first by {method} were measured; q-values count all.")
    return lines


def _cumulative(result: Sweep) -> list[str]:
    from headlens.report.words import can_go, interval, last_without_loss, tested

    share = result.run["largest_share_without_significant_loss"]
    method, rows = result.importance["method"].iloc[0], result.primary
    last = last_without_loss(rows, share)
    of_model = result.run.get("heads_of_model")
    lines = [f"{can_go(rows, share, of_model, result.metrics[0].name)} (p < 0.05)"]
    steps: list[Any] = list(last.itertuples())
    for row in steps:
        lines[0] += f": {row.delta:+.4f}, {interval(row.ci_low, row.ci_high)}, {tested('p', row.p_value)}"
    lines.append(
        f"The least important by {method} went first, estimated on {result.run['importance_estimated_on']}."
    )
    lines.append("With few examples even a real loss is not significant: look at the interval.")
    return [*_rows(result, rows), "", *lines, *_controls(result)]


def _only(result: Sweep) -> list[str]:
    from headlens.ablation.result import best_of_layers
    from headlens.report.words import one_head

    best = best_of_layers(result)
    lines = ["One head kept in a layer, chosen on one half of the examples and measured on the other:"]
    lines.append(f"{'layer':<14}{'kept':<14}{'change':>10}{'p':>10}{'q':>10}")
    for row in best.itertuples():
        lines.append(
            f"{row.layer:<14}{row.kept:<14}{_cell(row.delta, '+.4f'):>10}{_cell(row.p_value, '.2g'):>10}"
            f"{_cell(row.q_value, '.2g'):>10}"
        )
    return [*lines, f"{one_head(best, result.metrics[0].larger_is_better)}."]


def _others(result: Sweep) -> list[str]:
    return [*_rows(result, _worst(result)), *_controls(result)]


def _controls(result: Sweep) -> list[str]:
    from headlens.report.words import as_bad_or_worse, plain_number

    rows = result.controls[result.controls["metric"] == result.metrics[0].name]
    if not len(rows):
        return []
    lines = ["", "Against random sets with as many heads of each layer:"]
    shares, draws = rows["at_least_as_bad"].to_numpy(float), rows["draws"].to_numpy(int)
    held: list[Any] = list(rows.itertuples())
    for row, share, n in zip(held, shares, draws, strict=True):
        known = share == share
        said = f"{as_bad_or_worse(share, n)} of {n} as bad or worse" if known else "which cannot be compared"
        lines.append(
            f"  {row.condition}: {plain_number(row.value, '.4f')}; random {plain_number(row.random_mean, '.4f')} "
            f"({plain_number(row.random_low, '.4f')} to {plain_number(row.random_high, '.4f')}), {said}"
        )
    return lines


_KINDS: Mapping[str, Callable[[Sweep], list[str]]] = {
    "each": _each,
    "cumulative": _cumulative,
    "only": _only,
    "layer": _others,
    "tags": _others,
    "set": _others,
}
