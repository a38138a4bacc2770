"""``headlens check``: whether what is measured on a model can be believed."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import asdict, replace
from typing import TYPE_CHECKING, Any

import click

from headlens.cli.options import ModelOptions, model_options, say

if TYPE_CHECKING:
    from headlens.checks.inputs import Finding
    from headlens.model.lens import Lens


@click.command(
    epilog="Examples:  headlens check minilm  |  headlens check model.gguf --json  |  "
    "headlens check ./my-bert --dtype bfloat16"
)
@click.argument("model")
@click.option("--json", "as_json", is_flag=True, help="Write JSON instead of lines.")
@model_options
@click.pass_context
def command(ctx: click.Context, model: str, as_json: bool, options: ModelOptions) -> None:
    """Check the measuring itself on MODEL: padding, causality, row sums, ablation, backends and so on.

    Every check is a line with its figure; one that fails says what that means, and the command ends with 1.
    A checkpoint that lacks weights is loaded all the same, and the line says so. Where a model has no
    tokenizer, random tokens are read. `classify`, `ablate` and `prune` make the quick ones of these checks
    first and keep the outcome in run.json.
    """
    from headlens.checks.check import check
    from headlens.checks.inputs import CheckOptions

    lens = replace(options, allow_random_weights=True).load(model)
    how = CheckOptions(options.max_length, options.batch_size, options.seed)
    findings = check(lens, options=how, quiet=options.quiet)
    say(_as_json(model, lens, findings) if as_json else _in_lines(model, lens, findings))
    if _failed(findings):
        ctx.exit(1)


def checked(lens: Lens) -> dict[str, Any]:
    """Make the quick checks before a run, and warn of each that fails."""
    from headlens.checks.check import as_record, check

    findings = check(lens, only_cheap=True)
    for one in _failed(findings):
        say(f"Warning: the check {one.name} failed: {one.said}. {one.meaning}", err=True)
    return as_record(findings)


def _failed(findings: Sequence[Finding]) -> list[Finding]:
    return [one for one in findings if one.passed is False]


def _in_lines(model: str, lens: Lens, findings: Sequence[Finding]) -> str:
    """A line for the model, one for each check, and one that sums up."""
    anatomy, failed = lens.anatomy, _failed(findings)
    dtype = str(lens.model.dtype).removeprefix("torch.")
    head = f"{model}: {anatomy.architecture}, {len(anatomy.heads)} heads, {dtype} on {lens.device}"
    marks = {True: "ok", False: "FAILED", None: "-"}
    longest = max(len(one.name) for one in findings)
    lines = [f"{marks[one.passed]:<7} {one.name:<{longest}}  {one.said}{_meaning(one)}" for one in findings]
    apply = [one for one in findings if one.passed is not None]
    summary = f"{len(apply) - len(failed)} of {len(apply)} checks passed"
    if failed:
        summary += f"; failed: {', '.join(one.name for one in failed)}"
    return "\n".join([head, *lines, f"{summary}."])


def _meaning(one: Finding) -> str:
    return f". {one.meaning}" if one.passed is False else ""


def _as_json(model: str, lens: Lens, findings: Sequence[Finding]) -> str:
    facts = {
        "model": model,
        "architecture": lens.anatomy.architecture,
        "dtype": str(lens.model.dtype).removeprefix("torch."),
        "device": str(lens.device),
        "passed": not _failed(findings),
        "checks": [asdict(one) for one in findings],
    }
    return json.dumps(facts, indent=2, ensure_ascii=False)
