"""The note that a pruned model carries: what was taken out, and how to load it."""

from __future__ import annotations

import re

import headlens
from headlens.model.heads import number_ranges
from headlens.model.lens import Lens
from headlens.redundancy.pruning.forms import Pruned

_FRONT = re.compile(r"\A---\n.*?\n---\n", re.DOTALL)  # settings of a model card, which must stay on top
HOW = {
    "cut": "Their matrices were cut and the config says so: the model has fewer parameters and less to "
    "compute, and plain `transformers` loads it.",
    "masked": "Their rows of W_O were set to 0: the model computes what it computes without these heads, "
    "loads wherever the original loads, and is neither smaller nor faster.",
    "compact": "The matrices of each layer were cut by themselves: the model has fewer parameters and less "
    "to compute.",
}


def card(lens: Lens, pruned: Pruned, old: str = "") -> str:
    """Write the note, above the card of the original model.

    Args:
        lens: the model before.
        pruned: the model after.
        old: the original's model card.

    Returns:
        Markdown.
    """
    name = lens.source.name if lens.source is not None else lens.anatomy.architecture
    front = _FRONT.match(old)
    top, rest = (front[0], old[front.end() :].lstrip()) if front else ("", old)
    lines = [
        f"# {name}, without {len(pruned.plan.removed)} of {len(lens.anatomy.heads)} attention heads",
        "",
        f"Pruned by [headlens](https://pypi.org/project/headlens/) {headlens.__version__} from `{name}`. "
        f"{HOW[pruned.form]} Its outputs are those of the original with these heads ablated (set to 0 before "
        f"W_O); the largest difference measured was {pruned.difference:.1g}.",
        "",
        f"Removed (layer.head, both counted from 0): {removed_heads(lens, pruned)}.",
    ]
    if pruned.form != "masked" and pruned.plan.n_silent:
        lines += ["", silent_heads(pruned)]
    if pruned.compact is not None:
        lines += [
            "",
            "```python",
            "import headlens",
            "",
            'model = headlens.load("this directory").model',
            "```",
        ]
    lines += ["", "It was not trained after pruning."]
    return top + "\n".join(lines) + "\n" + (f"\n{rest}" if rest.strip() else "")


def removed_heads(lens: Lens, pruned: Pruned) -> str:
    """Name the removed heads as a selector does.

    Args:
        lens: the model before.
        pruned: the model after.

    Returns:
        Such as ``0.1,0.4-6,3.2``.
    """
    parts = []
    for site in lens.anatomy.sites:
        gone = [head for head in pruned.plan.removed if head in site.heads]
        for run in number_ranges(head.head for head in gone).split(",") if gone else ():
            parts.append(lens.anatomy.name(gone[0]).rpartition(".")[0] + "." + run)
    return ",".join(parts)


def silent_heads(pruned: Pruned) -> str:
    """Say that heads could not be cut.

    Args:
        pruned: the model after.

    Returns:
        A sentence.
    """
    count = pruned.plan.n_silent
    be, whose = ("is", "its") if count == 1 else ("are", "their")
    return f"{count} of them could not be cut and {be} silent: {whose} rows of W_O are 0."
