"""Language modelling: loss per token, over windows of long texts."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, ClassVar

import numpy as np
import torch
from torch import Tensor

from headlens.benchmarks.base import (
    MIN_EXAMPLES,
    BenchmarkKind,
    BenchmarkOptions,
    Lot,
    longest_input,
    need_tokenizer,
)
from headlens.benchmarks.metrics import Array, Ratio
from headlens.benchmarks.predict import (
    Predicted,
    check_head,
    check_outputs,
    padded,
    predict,
    predicts_next,
    run_batches,
    tokens_at_once,
)
from headlens.corpus.corpus import InputFile
from headlens.errors import InputError
from headlens.model.lens import Lens
from headlens.util.files import from_home

WINDOW = 128  # tokens of a window unless --max-length says otherwise
MASKED_SHARE = 0.15  # of the non-special tokens (Devlin et al. 2019)

_CAUSAL = (
    Ratio("loss", "loss per token (nats)", False, 0, 1),
    Ratio("perplexity", "perplexity", False, 0, 1, scale=np.exp),
)
_MASKED = (
    Ratio("masked-loss", "loss per masked token (nats)", False, 0, 1),
    Ratio("masked-accuracy", "masked-token accuracy", True, 2, 1),
)


@dataclass(frozen=True, eq=False)
class Language(BenchmarkKind):
    """Cross-entropy of a text's tokens under a causal or masked language model.

    An example is a window of whole lines (`headlens.benchmarks.language`) of at most 128 tokens, or
    --max-length, as the tokenizer encodes it by itself: special tokens, BOS included, stand where the
    tokenizer adds them and are never scored. Causal: every token but the first of a window is scored
    from those before it in its window. Masked: 15 % of a window's non-special tokens, at least one, are
    replaced by the mask token, the same ones every time (seed and window decide), and only they are scored.

    A loss compares conditions of one model; between models it misleads where their tokens differ.

    Args:
        name: how the user writes it.
        windows: the inputs.
        causal: whether the model predicts the next token; else masked ones.
        facts: what `run.json` says about it.
        stacks: stacks of attention that are run.
        options: how it is run.
    """

    name: str
    windows: Sequence[Window]
    causal: bool
    facts: Mapping[str, Any]
    stacks: tuple[str, ...]
    options: BenchmarkOptions = field(default_factory=BenchmarkOptions)
    kind: ClassVar[str] = "language"
    form: ClassVar[str] = "language:FILE.txt"

    @property
    def metrics(self) -> tuple[Ratio, ...]:
        """Loss first; then perplexity, or masked-token accuracy."""
        return _CAUSAL if self.causal else _MASKED

    @classmethod
    def open(cls, target: str, lens: Lens, options: BenchmarkOptions) -> Language:
        """Read a text file.

        Args:
            target: path of a UTF-8 text file.
            lens: the model that will be measured.
            options: how to read and run it.

        Returns:
            The benchmark.

        Raises:
            InputError: the file is unfit or too short.
            ModelError: the model has no language-model head, or its weights are missing.
        """
        check_head(lens, options)
        file = InputFile(from_home(target))
        texts = [[text] for text in windows(file.text, need_tokenizer(lens), _limit(lens, options))]
        facts = {"path": str(file), "sha256": file.sha256, "example": "window of whole lines"}
        return cls.of_texts(f"{cls.kind}:{file.path.name}", texts, lens, options, facts)

    @classmethod
    def of_texts(
        cls,
        name: str,
        texts: Sequence[Sequence[str]],
        lens: Lens,
        options: BenchmarkOptions,
        facts: Mapping[str, Any],
    ) -> Language:
        """Make the benchmark of texts that are at hand.

        Args:
            name: what it is called.
            texts: for each example its texts, each short enough for the model; what is predicted in them
                adds up to the example.
            lens: the model that will be measured.
            options: how to run it.
            facts: where the texts come from.

        Returns:
            The benchmark.

        Raises:
            InputError: there are fewer than 10 examples.
            ModelError: the model has no language-model head, or its weights are missing.
        """
        check_head(lens, options)
        causal = predicts_next(lens)
        made: list[Window] = []
        examples = 0
        for parts in texts:
            found = [_window(lens, part, causal, (options.seed, examples, i)) for i, part in enumerate(parts)]
            scored = [Window(examples, *window) for window in found if window[1]]
            made += scored
            examples += bool(scored)
        if examples < MIN_EXAMPLES:
            raise InputError(
                f"{name}: expected text for at least {MIN_EXAMPLES} examples, found {examples}.",
                "Give a longer text, or a smaller --max-length.",
            )
        scored_tokens = sum(len(window.gold) for window in made)
        about = {"kind": cls.kind, **facts, "examples": examples, "scored_tokens": scored_tokens}
        about["predicts"] = "next token" if causal else "masked tokens"
        return cls(name, made, causal, about, lens.anatomy.stacks, options)

    def measure(self, lens: Lens) -> Array:
        """Predict every scored token.

        Args:
            lens: the model, whatever is ablated in it now.

        Returns:
            Summed loss in nats, scored tokens, and for a masked model right predictions, [example, 2 or 3].
        """
        sums = torch.zeros(self.facts["examples"], 2 if self.causal else 3, dtype=torch.float64)
        with torch.inference_mode():
            for batch, found in self._predicted(lens):
                loss = found.loss.cpu().double()
                columns = [loss, torch.ones_like(loss)]
                if found.right is not None:
                    columns.append(found.right.cpu().double())
                sums.index_add_(0, _owners(batch, scored=True), torch.stack(columns, dim=1))
        return sums.numpy()

    def losses(self, lens: Lens) -> Iterator[Lot]:
        """Predict every scored token, differentiably: the mean over examples is the loss per scored token.

        Args:
            lens: the model, whatever is changed in it now.

        Yields:
            Losses by windows; an example weighs as many tokens as are scored in it.
        """
        weight = self.facts["examples"] / self.facts["scored_tokens"]
        for batch, found in self._predicted(lens):
            yield Lot(_owners(batch), _owners(batch, scored=True), found.loss * weight)

    @property
    def input_keys(self) -> Sequence[tuple[tuple[int, ...], ...]]:
        """The texts of each example, with what is masked put back."""
        made: list[tuple[tuple[int, ...], ...]] = [()] * self.facts["examples"]
        for one in self.windows:
            made[one.example] += (one.ids if self.causal else one.unmasked,)
        return made

    @property
    def to_show(self) -> Sequence[Sequence[int]]:
        """Token ids of what the model reads."""
        return [one.ids for one in self.windows]

    def take(self, examples: Sequence[int]) -> Language:
        """See `Benchmark.take`."""
        number = {example: index for index, example in enumerate(examples)}
        kept = [replace(one, example=number[one.example]) for one in self.windows if one.example in number]
        scored = sum(len(window.gold) for window in kept)
        facts = {**self.facts, "examples": len(examples), "scored_tokens": scored}
        return replace(self, windows=kept, facts=facts)

    def _predicted(self, lens: Lens) -> Iterator[tuple[list[Window], Predicted]]:
        def work(group: list[int]) -> tuple[list[Window], Predicted]:
            batch = [self.windows[index] for index in group]
            rows = torch.tensor([row for row, window in enumerate(batch) for _ in window.places])
            places = torch.tensor([place for window in batch for place in window.places])
            gold = torch.tensor([token for window in batch for token in window.gold])
            inputs = padded(lens, [window.ids for window in batch])
            found = predict(lens, inputs, rows, places, gold, right=not self.causal)
            check_outputs(lens, found.loss, rows, [window.ids for window in batch])
            return batch, found

        lengths = [len(window.ids) for window in self.windows]
        for _, made in run_batches(lens, lengths, work, self.options.batch_size, tokens_at_once(lens)):
            yield made


def _owners(batch: Sequence[Window], scored: bool = False) -> Tensor:
    """The example of each window, or of each scored token."""
    return torch.tensor([window.example for window in batch for _ in (window.places if scored else [0])])


def _limit(lens: Lens, options: BenchmarkOptions) -> int:
    longest = longest_input(lens, options.max_length) or WINDOW
    return longest if options.max_length is not None else min(WINDOW, longest)


def _window(
    lens: Lens, text: str, causal: bool, seed: tuple[int, ...]
) -> tuple[tuple[int, ...], tuple[int, ...], tuple[int, ...]]:
    """Token ids, places of the logits, and gold tokens of one text."""
    coded = lens.tokenizer(text, return_special_tokens_mask=True)
    ids, special = list(coded["input_ids"]), coded["special_tokens_mask"]
    own = [place for place, flag in enumerate(special) if not flag]
    if causal:
        chosen = [place for place in own if place > 0]
        return tuple(ids), tuple(place - 1 for place in chosen), tuple(ids[place] for place in chosen)
    if not own:
        return tuple(ids), (), ()
    count = max(1, round(MASKED_SHARE * len(own)))
    chosen = sorted(np.random.default_rng(seed).choice(own, count, replace=False).tolist())
    gold = tuple(ids[place] for place in chosen)
    for place in chosen:
        ids[place] = lens.tokenizer.mask_token_id
    return tuple(ids), tuple(chosen), gold


# ---- Cuts a long text into windows that a model can read, losing nothing but blanks at the cuts


@dataclass(frozen=True, slots=True)
class Window:
    """One input of the model and what it has to predict.

    Args:
        example: the example that it belongs to.
        ids: token ids that the model reads.
        places: positions of the logits that are scored.
        gold: the token that each of them should predict.
    """

    example: int
    ids: tuple[int, ...]
    places: tuple[int, ...]
    gold: tuple[int, ...]

    @property
    def unmasked(self) -> tuple[int, ...]:
        """Its ids with the masked tokens put back, for a masked model."""
        gold = dict(zip(self.places, self.gold, strict=True))
        return tuple(gold.get(place, token) for place, token in enumerate(self.ids))


def windows(text: str, tokenizer: Any, limit: int) -> list[str]:
    """Pack whole lines of a text, in order, into windows.

    A window takes lines until the next one would not fit; a line that does not fit alone is halved, at the
    blank nearest to its middle (where there is none, in the middle), until its parts do. Blank lines stay
    inside a window and vanish at its ends.

    Args:
        text: the text.
        tokenizer: a tokenizer of `transformers`.
        limit: longest window in tokens, special ones included.

    Returns:
        The windows; every line is in them, in order.
    """
    lines = text.split("\n")
    room = limit - tokenizer.num_special_tokens_to_add()
    # the end of a line may be a token too
    lengths = [len(ids) + 1 for ids in tokenizer(lines, add_special_tokens=False)["input_ids"]]
    packed: list[str] = []
    group: list[str] = []
    used = 0
    for line, length in zip(lines, lengths, strict=True):
        if group and used + length > room:
            packed.append("\n".join(group))
            group, used = [], 0
        if group or line.strip():
            group.append(line)
            used += length
    packed.append("\n".join(group))
    return [part for window in packed for part in _fitting(window.strip("\n"), tokenizer, limit)]


def _fitting(text: str, tokenizer: Any, limit: int) -> list[str]:
    if not text.strip():
        return []
    if len(text) == 1 or len(tokenizer(text)["input_ids"]) <= limit:
        return [text]
    end, start = _cut(text)
    return _fitting(text[:end], tokenizer, limit) + _fitting(text[start:], tokenizer, limit)


def _cut(text: str) -> tuple[int, int]:
    """Where the first half ends and the second begins: at the line end, else blank, nearest the middle."""
    middle = len(text) // 2
    for mark in ("\n", " "):
        places = [i for i in range(1, len(text) - 1) if text[i] == mark]
        if places:
            place = min(places, key=lambda i: abs(i - middle))
            return place, place + 1
    return middle, middle
