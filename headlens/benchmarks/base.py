"""What every benchmark is made with: its options, the inputs it reads, and batches of losses."""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import Any, ClassVar

from torch import Tensor

from headlens.errors import InputError, ModelError
from headlens.model import lens as limits
from headlens.model.lens import Lens

MIN_EXAMPLES = 10  # with fewer, resampling examples says nothing


@dataclass(frozen=True, slots=True)
class BenchmarkOptions:
    """What a user may say about how a benchmark is read and run.

    Args:
        columns: names of the columns to read, or numbers from 0 for a file without header; by default
            those that the kind of benchmark expects.
        batch_size: inputs at once; by default as suits their length.
        max_length: longest input in tokens, special ones included; by default the benchmark's own choice.
        seed: of what is drawn at random, such as masked positions; 0 or more.
        allow_random_weights: accept a task head whose weights the checkpoint lacks.
        beams: hypotheses that a translating model keeps at each step; 1 is greedy decoding.
    """

    columns: tuple[str, ...] = ()
    batch_size: int | None = None
    max_length: int | None = None
    seed: int = 0
    allow_random_weights: bool = False
    beams: int = 1


class BenchmarkKind(ABC):
    """What a kind of benchmark says of itself; what it does is `headlens.benchmarks.registry.Benchmark`.

    Attributes:
        kind: its name, which a user types before the colon.
        form: how it is typed, in help.
        columns: names of the columns that it reads, in one or more ways; none where it reads no table.
        needs: the extra that has to be installed for it.
        reads_pooler: whether a model's pooler counts, which checkpoints often lack.
    """

    kind: ClassVar[str]
    form: ClassVar[str]
    columns: ClassVar[tuple[tuple[str, ...], ...]] = ()
    needs: ClassVar[str] = ""
    reads_pooler: ClassVar[bool] = False

    @classmethod
    @abstractmethod
    def open(cls, target: str, lens: Lens, options: BenchmarkOptions) -> Any:
        """Make the benchmark of what stands after the colon."""


def need_tokenizer(lens: Lens) -> Any:
    """Get the tokenizer of a model.

    Args:
        lens: the model.

    Returns:
        Its tokenizer.

    Raises:
        ModelError: it has none.
    """
    if lens.tokenizer is None:
        raise ModelError(
            "A benchmark needs the model's tokenizer, and there is none.",
            "Take a checkpoint that brings one, or write headlens.load(model, tokenizer=...).",
        )
    return lens.tokenizer


def longest_input(lens: Lens, wanted: int | None = None) -> int | None:
    """Find how many tokens an input may have.

    Args:
        lens: the model.
        wanted: what the user asks for.

    Returns:
        `wanted`, else what model and tokenizer allow; None where they know no limit.

    Raises:
        InputError: the user asks for more than the model takes.
    """
    most = limits.longest_input(lens)
    if wanted is not None and most is not None and wanted > most:
        raise InputError(
            f"Inputs of {wanted} tokens are asked for, but {type(lens.model).__name__} takes at most {most}.",
            f"Type --max-length {most} or less.",
        )
    return most if wanted is None else wanted


# ---- What gradients of a benchmark are taken of: losses, and the examples that they belong to


@dataclass(frozen=True, slots=True)
class Lot:
    """Some inputs that passed through the model together, and the losses that came of them.

    Args:
        owners: the example that each row of the batch belongs to, int64 [row].
        examples: the example that each loss belongs to, int64 [loss]; an example's losses, of all lots,
            add up to its loss.
        losses: differentiable, in float32 or better, [loss].
    """

    owners: Tensor
    examples: Tensor
    losses: Tensor
