"""A model that is being checked: the inputs of the checks, and what several of them look at."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from inspect import signature
from typing import Any

from torch import Tensor

from headlens.checks.fed import Fed, feed
from headlens.checks.rounding import amplified
from headlens.checks.seen import Seen, look
from headlens.checks.texts import Pair, drawn_pairs, pairs_of_text
from headlens.model.lens import Lens, longest_input

LONGEST = 64  # tokens


@dataclass(frozen=True, slots=True)
class Options:
    """How a model is run when it is checked.

    Args:
        max_length: longest input in tokens; 64 by default, or what the model takes.
        batch_size: rows at once where a text is repeated; as many as hold 2,048 tokens by default.
        seed: of random tokens, which are read where there is no tokenizer.
    """

    max_length: int | None = None
    batch_size: int | None = None
    seed: int = 0


class Subject:
    """A model that is being checked; whatever several checks need is worked out once.

    Args:
        lens: the model.
        options: how it is run.
    """

    def __init__(self, lens: Lens, options: Options | None = None) -> None:
        self.lens = lens
        self.options = options or Options()

    @property
    def longest(self) -> int:
        """How many tokens an input may have."""
        return min(self.options.max_length or LONGEST, longest_input(self.lens) or LONGEST, LONGEST)

    @cached_property
    def pairs(self) -> list[Pair]:
        """The inputs, shortest first."""
        return pairs_of_text(self.lens, self.longest) or drawn_pairs(
            self.lens, self.longest, self.options.seed
        )

    @cached_property
    def alone(self) -> list[Seen]:
        """What is seen of each input by itself."""
        return [look(self.lens, feed(self.lens, [pair])) for pair in self.pairs]

    @cached_property
    def together(self) -> Fed:
        """All inputs side by side, padded on the right."""
        return feed(self.lens, self.pairs)

    @cached_property
    def rounding(self) -> float:
        """How far numbers may lie apart that were computed in other ways, see `amplified`."""
        return amplified(self.lens, self.alone[-1])

    @cached_property
    def plain_logits(self) -> Tensor:
        """The logits of the longest input by itself, while nobody looks at the model."""
        return self.logits(self.alone[-1].fed)

    def logits(self, fed: Fed) -> Tensor:
        """Run inputs through the whole model, its task's head included.

        Args:
            fed: the inputs.

        Returns:
            Its logits, or its states where it has none, float32 on the CPU.
        """
        device, model = self.lens.device, self.lens.model
        taken = signature(model.forward).parameters
        outputs: Any = model(**{name: x.to(device) for name, x in fed.inputs.items() if name in taken})
        found: Tensor = outputs.logits if "logits" in outputs else outputs[0]
        return found.float().cpu()
