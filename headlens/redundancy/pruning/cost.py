"""What a model costs: parameters, multiply-adds, and its measured speed, which are three things."""

from __future__ import annotations

import statistics
import time
from dataclasses import dataclass

import torch
from transformers import PreTrainedModel

from headlens.model.anatomy import Anatomy, examine
from headlens.model.lens import Lens, longest_input
from headlens.model.trace import run

TOKENS, REPEATS = 128, 7  # of a speed test


@dataclass(frozen=True, slots=True)
class Cost:
    """What a model costs.

    Args:
        heads: attention heads whose output is not all 0.
        parameters: numbers in its weights.
        multiply_adds: of the attention layers, for one input of `tokens` tokens.
        tokens: length of an input.
        tokens_per_second: measured, one input at a time, on the model's device; the median of several passes.
    """

    heads: int
    parameters: int
    multiply_adds: int
    tokens: int
    tokens_per_second: float


def costs(before: Lens, after: PreTrainedModel, n_removed: int) -> tuple[Cost, Cost]:
    """Measure two models side by side.

    Args:
        before: one model.
        after: the other; they take turns, so that whatever else the machine does slows both.
        n_removed: how many heads are silent or gone in the other.

    Returns:
        What each costs.
    """
    tokens = min(TOKENS, longest_input(before) or TOKENS)
    models = (before.model, after)
    seconds: tuple[list[float], list[float]] = ([], [])
    for repeat in range(REPEATS + 1):
        for model, mine in zip(models, seconds, strict=True):
            took = _pass(model, tokens)
            if repeat:  # the first pass of each warms up
                mine.append(took)
    found = [examine(model) for model in models]
    n_heads = len(found[0].heads)
    return (
        _cost(found[0], n_heads, tokens, seconds[0]),
        _cost(found[1], n_heads - n_removed, tokens, seconds[1]),
    )


def _cost(anatomy: Anatomy, heads: int, tokens: int, seconds: list[float]) -> Cost:
    work = sum(part.multiply_adds(tokens, tokens) for part in anatomy.parts)
    return Cost(heads, anatomy.n_parameters, work, tokens, tokens / statistics.median(seconds))


def _pass(model: PreTrainedModel, tokens: int) -> float:
    device = next(model.parameters()).device
    _wait(device)
    began = time.perf_counter()
    with torch.inference_mode():
        run(model, lengths=(tokens, tokens))
    _wait(device)
    return time.perf_counter() - began


def _wait(device: torch.device) -> None:
    """GPUs work on after a call returns."""
    if device.type == "cuda":
        torch.cuda.synchronize(device)
    elif device.type == "mps":
        torch.mps.synchronize()
