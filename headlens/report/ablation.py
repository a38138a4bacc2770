"""The figures of an ablation sweep."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from matplotlib.figure import Figure

from headlens.ablation.result import Sweep
from headlens.report.ablation_curve import pruning_figure
from headlens.report.ablation_gates import gates_figure
from headlens.report.ablation_groups import layers_figure, one_head_figure, tags_figure
from headlens.report.ablation_heads import heads_figure, importance_figure, methods_of
from headlens.report.ablation_methods import methods_figure

KINDS: Mapping[str, tuple[str, Callable[[Sweep], Figure]]] = {
    "each": ("heads", heads_figure),
    "cumulative": ("pruning", pruning_figure),
    "only": ("one-head-per-layer", one_head_figure),
    "layer": ("layers", layers_figure),
    "tags": ("tags", tags_figure),
}
"""The figure of each kind of sweep and its name; *set* is one change per metric, which needs no figure."""


def figures(sweep: Sweep) -> list[tuple[str, Figure]]:
    """Draw what suits a sweep.

    Args:
        sweep: of any kind.

    Returns:
        Names and figures: that of the kind, a map of every estimate of importance (``importance-METHOD``),
        how methods agree (``methods``), and the roles that gates gave (``gates``).
    """
    drawn: list[tuple[str, Figure]] = []
    if sweep.kind in KINDS and len(sweep.primary):
        name, draw = KINDS[sweep.kind]
        drawn.append((name, draw(sweep)))
    drawn += [(f"importance-{method}", importance_figure(sweep, method)) for method in methods_of(sweep)]
    if len(sweep.agreement):
        drawn.append(("methods", methods_figure(sweep)))
    if len(sweep.gates):
        drawn.append(("gates", gates_figure(sweep)))
    return drawn
