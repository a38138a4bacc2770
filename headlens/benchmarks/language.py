"""``language:FILE.txt``: how well does a model predict the tokens of a text?"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from headlens.benchmarks.inputs import (
    MIN_EXAMPLES,
    Options,
    in_batches,
    longest_input,
    need_tokenizer,
    padded,
)
from headlens.benchmarks.language_head import check_head, predicts_next
from headlens.benchmarks.metrics import Array, Ratio
from headlens.benchmarks.tables import read_text
from headlens.benchmarks.windows import windows
from headlens.errors import InputError
from headlens.lens import Lens
from headlens.runs import file_sha256

WINDOW = 128  # tokens of a window unless --max-length says otherwise
MASKED_SHARE = 0.15  # of the non-special tokens (Devlin et al. 2019)
_LOGITS = 2**26  # logits that a batch may make, 256 MiB in float32
_SCORED = 2**24  # of these, in float32 at once

_CAUSAL = (
    Ratio("loss", "loss per token (nats)", False, 0, 2),
    Ratio("perplexity", "perplexity", False, 0, 2, scale=np.exp),
)
_MASKED = (
    Ratio("masked-loss", "loss per masked token (nats)", False, 0, 2),
    Ratio("masked-accuracy", "masked-token accuracy", True, 1, 2),
)


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


@dataclass(frozen=True, eq=False)
class Language:
    """Cross-entropy of a text's tokens under a causal or masked language model.

    An example is a window of whole lines (`headlens.benchmarks.windows`) of at most 128 tokens, or
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
    options: Options = field(default_factory=Options)

    @property
    def metrics(self) -> tuple[Ratio, ...]:
        """Loss first; then perplexity, or masked-token accuracy."""
        return _CAUSAL if self.causal else _MASKED

    @classmethod
    def open(cls, target: str, lens: Lens, options: Options) -> Language:
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
        path = Path(target).expanduser()
        texts = [[text] for text in windows(read_text(path), need_tokenizer(lens), _limit(lens, options))]
        facts = {"path": str(path), "sha256": file_sha256([path]), "example": "window of whole lines"}
        return cls.of_texts(f"language:{path.name}", texts, lens, options, facts)

    @classmethod
    def of_texts(
        cls, name: str, texts: Sequence[Sequence[str]], lens: Lens, options: Options, facts: Mapping[str, Any]
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
        about = {"kind": "language", **facts, "examples": examples, "scored_tokens": scored_tokens}
        about["predicts"] = "next token" if causal else "masked tokens"
        return cls(name, made, causal, about, lens.anatomy.stacks, options)

    def measure(self, lens: Lens) -> Array:
        """Predict every scored token.

        Args:
            lens: the model, whatever is ablated in it now.

        Returns:
            Summed loss in nats, right predictions, and scored tokens, [example, 3].
        """
        n_examples = self.windows[-1].example + 1
        sums = torch.zeros(n_examples, 3, dtype=torch.float64)
        lengths = [len(window.ids) for window in self.windows]
        vocabulary = lens.model.config.get_text_config().vocab_size
        at_once = max(1, _LOGITS // vocabulary)
        with torch.inference_mode():
            for group in in_batches(lengths, self.options.batch_size, at_once):
                batch = [self.windows[index] for index in group]
                outputs = lens.model(**padded(lens, [window.ids for window in batch]), **_no_cache(lens))
                logits = outputs["logits" if "logits" in outputs else "prediction_logits"]
                _add(sums, batch, logits)
        return sums.numpy()


def _limit(lens: Lens, options: Options) -> int:
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


def _add(sums: Tensor, batch: Sequence[Window], logits: Tensor) -> None:
    """Add what a batch's logits [window, token, vocabulary] are worth to the sums [example, 3]."""
    rows = torch.tensor([row for row, window in enumerate(batch) for _ in window.places])
    places = torch.tensor([place for window in batch for place in window.places])
    gold = torch.tensor([token for window in batch for token in window.gold])
    examples = torch.tensor([window.example for window in batch])[rows]
    step = max(1, _SCORED // logits.shape[-1])
    for start in range(0, len(rows), step):  # float32 copies of scored positions only, a few at a time
        part = slice(start, start + step)
        picked = logits[rows[part], places[part]]
        picked = picked.float() if picked.dtype in (torch.float16, torch.bfloat16) else picked
        target = gold[part].to(picked.device)
        loss = torch.nn.functional.cross_entropy(picked, target, reduction="none").double().cpu()
        right = (picked.argmax(dim=-1) == target).double().cpu()
        sums.index_add_(0, examples[part], torch.stack([loss, right, torch.ones_like(loss)], dim=1))


def _no_cache(lens: Lens) -> dict[str, Any]:
    return {"use_cache": False} if hasattr(lens.model.config, "use_cache") and predicts_next(lens) else {}
