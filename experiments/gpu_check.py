"""Whether a GPU computes what the CPU does, and how fast: one run of a few minutes.

A line that is wrong makes the exit code 1. Ratios come from one run, the things compared taking turns.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import click
import numpy as np
import pandas as pd
import torch
import transformers
from measure.ablation import zeroed
from measure.setting import forward
from measure.timing import Row, against, timed
from parity import Check, check, exact_float32, inputs_of, parity, placed
from torch import Tensor

from headlens.ablation.measure import Measuring
from headlens.ablation.plan import Choice, each
from headlens.ablation.prefix import MEMORY
from headlens.benchmarks.metrics import Ratio
from headlens.benchmarks.registry import Benchmark
from headlens.corpus.read import read_corpus
from headlens.errors import ModelError
from headlens.lens import Lens, load
from headlens.model.heads import Site
from headlens.model.load import pick_device
from headlens.model.seam import Block


@dataclass(frozen=True, slots=True)
class Sizes:
    """How much is run.

    Args:
        sentences: of the bundled sample, where scores are compared.
        layers: of the Llama shape.
        shapes: inputs and tokens where capture is timed.
        sweep: inputs and tokens where ablation is timed.
        longest: tokens of one input, where memory is measured.
        rounds: turns that each thing compared gets.
        tags: whose scores are compared; None for all.
    """

    sentences: int
    layers: int
    shapes: tuple[tuple[int, int], ...]
    sweep: tuple[int, int]
    longest: int
    rounds: int
    tags: tuple[str, ...] | None = None


SAME = 1e-4  # of mean states: what the sweep and the plain loop may differ by
FULL = Sizes(150, 12, ((32, 128), (8, 512), (1, 4096)), (64, 128), 32768, 5)
SMALL = Sizes(8, 1, ((2, 32),), (1, 8), 256, 1, ("positional", "delimiter", "syntactic"))


def llama(layers: int, tokenizer: Any = None, longest: int = 4096) -> Lens:
    """A Llama shape with random weights: 9 heads on 3 key-value heads."""
    torch.manual_seed(0)
    sizes = {"vocab_size": 30522, "hidden_size": 576, "intermediate_size": 1536}
    heads = {"num_attention_heads": 9, "num_key_value_heads": 3, "num_hidden_layers": layers}
    config = transformers.LlamaConfig(**sizes, **heads, max_position_embeddings=longest)
    return load(transformers.LlamaForCausalLM(config).eval(), tokenizer)


def capture(what: str, lens: Lens, shape: tuple[int, int], rounds: int) -> list[Check]:
    """Tokens a second of capture, and its cost against plain passes."""
    inputs = inputs_of(lens, shape)

    def observed() -> None:
        with torch.inference_mode(), lens.observe(lambda site, block: None):
            lens.run(inputs)

    part = f"capture: {what}, {shape[0]} x {shape[1]} tokens"
    ours, bare = {"observed": observed}, {"an sdpa pass": lambda: forward(lens, [inputs], "sdpa")}
    rows = against(part, ours, bare, rounds)
    for name, work in {**ours, **bare}.items():
        least = min(timed(work) for _ in range(rounds))
        rows.append(Row(part, name, shape[0] * shape[1] / least, "tokens per second"))
    return [(row, True) for row in rows]


@dataclass(frozen=True, eq=False)
class Tokens:
    """Random tokens as a benchmark: each row's value is the mean of its last hidden states."""

    inputs: dict[str, Tensor]
    name: str = "random"
    metrics: tuple[Ratio, ...] = (Ratio("state", "mean state", False, 0, 1),)
    stacks: tuple[str, ...] = ("encoder", "decoder")

    @property
    def facts(self) -> dict[str, Any]:
        """How many rows there are."""
        return {"examples": len(self.inputs["input_ids"])}

    def take(self, examples: Sequence[int]) -> Benchmark:
        """Some of the rows."""
        return Tokens({name: value[list(examples)] for name, value in self.inputs.items()})

    def measure(self, lens: Lens) -> Any:
        """Run the model's body."""
        with torch.inference_mode():
            found = lens.run(self.inputs).last_hidden_state.float().mean(dim=(1, 2))
        return np.column_stack([found.cpu().double().numpy(), np.ones(len(found))])


def sweeping(what: str, lens: Lens, shape: tuple[int, int]) -> list[Check]:
    """A sweep over all heads against the loop that runs the whole model for each."""
    benchmark, heads = Tokens(inputs_of(lens, shape)), lens.anatomy.heads
    conditions = each(Choice(lens.anatomy, heads))
    found: dict[str, list[Any]] = {"loop": []}

    def loop() -> None:
        for head in heads:
            with zeroed(lens, head):
                found["loop"].append(benchmark.measure(lens))

    def sweep() -> None:
        found["sweep"] = Measuring(lens, benchmark, prefix_memory=MEMORY).values(conditions)

    benchmark.measure(lens)  # warm up
    spent = {"loop": timed(loop), "sweep": timed(sweep)}
    apart = max(np.abs(a - b).max() for a, b in zip(found["loop"], found["sweep"], strict=True))
    part = f"ablation: {what}, {shape[0]} x {shape[1]} tokens, {len(heads)} heads"
    return [
        (Row(part, "a sweep", spent["sweep"] / spent["loop"], "the plain loop"), True),
        check(part, "off the plain loop: mean state", float(apart), SAME),
    ]


def memory(lens: Lens, longest: int) -> list[Check]:
    """Most memory above the weights while every block of one long input is looked at."""
    ids = torch.full((1, longest), 7)
    sums: dict[Site, Tensor] = {}

    def see(site: Site, block: Block) -> None:
        sums[site] = sums.get(site, 0) + block.pattern[..., 0].sum()

    weights = torch.cuda.memory_allocated() if lens.device.type == "cuda" else 0
    if lens.device.type == "cuda":
        torch.cuda.reset_peak_memory_stats()
    with torch.inference_mode(), lens.observe(see):
        lens.run({"input_ids": ids, "attention_mask": torch.ones_like(ids)})
    if lens.device.type != "cuda":
        return []
    most = (torch.cuda.max_memory_allocated() - weights) / 2**20
    return [(Row(f"memory: Llama shape, 1 x {longest} tokens", "peak above the weights", most, "MB"), True)]


def run(device: torch.device, sizes: Sizes) -> list[Check]:
    """Everything, each line with whether it holds."""
    encoder, corpus = load("minilm", device="cpu"), read_corpus(None, max_sentences=sizes.sentences)
    decoder = llama(sizes.layers, encoder.tokenizer)
    models = {"minilm": encoder, "Llama shape": decoder}
    found: list[Check] = []
    for what, lens in models.items():
        found += parity(what, lens, device, (corpus, sizes.tags))
    for what, lens in models.items():
        there = placed(lens, device, torch.float32)
        for shape in sizes.shapes:
            if shape[1] <= lens.model.config.max_position_embeddings:
                found += capture(what, there, shape, sizes.rounds)
        found += sweeping(what, there, sizes.sweep)
    long = llama(sizes.layers, longest=sizes.longest)
    return [*found, *memory(placed(long, device, torch.float32), sizes.longest)]


def device_name(device: torch.device) -> str:
    """What people call the device."""
    return torch.cuda.get_device_name(device) if device.type == "cuda" else device.type


@click.command(context_settings={"help_option_names": ["-h", "--help"]})
@click.option("--device", default="cuda", show_default=True, metavar="cuda|cuda:N|mps|cpu")
@click.option("--small", is_flag=True, help="Little of everything, for a CPU: seconds instead of minutes.")
@click.option("--out", type=click.Path(path_type=Path), default=Path("reports/gpu.csv"), show_default=True)
def main(device: str, small: bool, out: Path) -> None:
    """Hold a device against the CPU, measure it, and write both as a table."""
    try:
        chosen = pick_device(device)
    except ModelError as error:
        raise click.ClickException(str(error)) from error
    with exact_float32():
        found = run(chosen, SMALL if small else FULL)
    versions = Row("device", f"{device_name(chosen)}, torch {torch.__version__}", float("nan"), "")
    table = pd.DataFrame([versions, *(row for row, _ in found)])
    click.echo(table.to_string(index=False, float_format="{:.3g}".format))
    out.parent.mkdir(parents=True, exist_ok=True)
    table.to_csv(out, index=False, float_format="%.6g", lineterminator="\n")
    click.echo(f"\nWrote {out}.")
    wrong = [row for row, holds in found if not holds]
    for row in wrong:
        click.echo(f"Failed: {row.part}: {row.what} is {row.value:.3g}, expected {row.of}.", err=True)
    sys.exit(1 if wrong else 0)


if __name__ == "__main__":
    main()
