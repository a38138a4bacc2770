"""``headlens prune``: a checkpoint without some of its heads."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import click

from headlens.cli.check import checked
from headlens.cli.options import Command, ModelOptions, model_options, said, say, spoken_warnings

if TYPE_CHECKING:
    from headlens.model.heads import Head
    from headlens.model.lens import Lens
    from headlens.pruning.prune import Result


@click.command(
    cls=Command,
    writes="directory",
    epilog="Examples:  headlens prune minilm --from runs/minilm-each --keep 0.75 --form compact "
    "--out models/minilm-75  |  headlens prune ./my-bert --heads 2.8,3.* --out models/masked  |  "
    "headlens prune ./my-llama --heads *.6-8 --form cut --out models/smaller",
)
@click.argument("model")
@click.option("--heads", metavar="SEL", help="The heads to remove, such as 2.8,3.*.")
@click.option(
    "--from",
    "run",
    type=click.Path(path_type=Path),
    metavar="RUN",
    help="A finished headlens ablate: the heads that it found least important go.",
)
@click.option("--keep", type=click.FloatRange(0, 1), help="With --from: share of all heads that stay.")
@click.option(
    "--form",
    type=click.Choice(["auto", "cut", "masked", "compact"]),
    default="auto",
    show_default=True,
    help="cut: smaller matrices where the config can say it, for plain transformers; masked: rows of W_O set "
    "to 0, loads anywhere, as large and as slow as before; compact: smaller matrices in each layer, for "
    "headlens.load; auto: cut where that takes all heads, else masked.",
)
@click.option("--out", type=click.Path(path_type=Path), required=True, help="Directory for the checkpoint.")
@model_options
def command(
    model: str,
    heads: str | None,
    run: Path | None,
    keep: float | None,
    form: str,
    out: Path,
    options: ModelOptions,
) -> None:
    """Remove heads of MODEL for good, and write a checkpoint.

    The outputs are checked against those of the model with the same heads ablated, before and after writing.
    Parameters, multiply-adds and measured speed are printed apart from each other: a masked head costs what
    it always cost.
    """
    if (heads is None) == (run is None):
        raise click.UsageError("Say which heads go: either --heads SEL, or --from RUN with --keep SHARE.")
    if options.device_map is not None:
        raise click.UsageError("A pruned model is saved from one device: leave --device-map out.")
    if (run is None) != (keep is None):
        raise click.UsageError("--from RUN and --keep SHARE go together, such as --from RUN --keep 0.75.")
    from headlens.pruning.prune import check_place, prune
    from headlens.runs import record as runs

    clock = runs.Clock.start()
    check_place(out)  # before the model is loaded: that takes a while
    click.get_current_context().with_resource(runs.prepare(out, "prune"))
    lens = options.load(model)
    checks = checked(lens)
    with spoken_warnings():
        chosen = _chosen(lens, heads, run, keep)
    found = prune(lens, chosen, out, form)
    facts = {
        "form": found.pruned.form,
        "removed": [str(head) for head in chosen],
        "silent": found.pruned.plan.n_silent,
        "before": found.before,
        "after": found.after,
        "bytes_on_disk": found.bytes_on_disk,
        "largest_difference": found.difference,
        "checks": checks,
    }
    runs.save(out, runs.record("prune", lens, said(), facts, clock))
    say(summary(lens, found, out))


def _chosen(lens: Lens, heads: str | None, run: Path | None, keep: float | None) -> tuple[Head, ...]:
    from headlens.pruning.plan import least_important

    if heads is not None:
        return lens.anatomy.select(heads)
    assert run is not None
    assert keep is not None
    return least_important(lens, run, keep)


def summary(lens: Lens, found: Result, out: Path) -> str:
    """Say what was removed, in which form, and what the model costs now."""
    from headlens.pruning.prune import HOW, removed_heads, silent_heads

    pruned, before, after = found.pruned, found.before, found.after
    rows = [
        ("heads that work", before.heads, after.heads),
        ("parameters", before.parameters, after.parameters),
        (f"attention multiply-adds, {before.tokens} tokens", before.multiply_adds, after.multiply_adds),
        (
            f"tokens per second, measured on {lens.device}",
            round(before.tokens_per_second),
            round(after.tokens_per_second),
        ),
    ]
    if all(found.bytes_on_disk):
        rows.insert(2, ("weights on disk, bytes", *found.bytes_on_disk))
    lines = [f"{'':<42}{'before':>16}{'after':>16}{'after / before':>16}"]
    lines += [f"{name:<42}{old:>16,}{new:>16,}{new / old:>16.3f}" for name, old, new in rows]
    n_gone, n_heads = len(pruned.plan.removed), len(lens.anatomy.heads)
    lines += [
        "",
        f"Removed {n_gone} of {n_heads} heads: {removed_heads(lens, pruned)}.",
        HOW[pruned.form],
    ]
    if lens.source is not None and "gguf_file" in lens.source.options:
        lines.append(
            "The .gguf file holds quantised weights; the checkpoint holds what they stand for, as float32."
        )
    if pruned.form != "masked" and pruned.plan.n_silent:
        lines.append(silent_heads(pruned))
    if pruned.compact is not None:
        lines.append(f"Plain transformers cannot load it: headlens.load({str(out)!r}).model is the model.")
    lines.append(
        f"Loaded again, its outputs differ by at most {found.difference:.1g} from those of the model with "
        "these heads ablated."
    )
    lines.append(f"Wrote {out}.")
    return "\n".join(lines)
