"""Minimal pairs: which of two sentences a model finds likelier."""

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
from headlens.benchmarks.files import Row, read_json_lines
from headlens.benchmarks.metrics import Accuracy, Array, Metric, Ratio
from headlens.benchmarks.predict import (
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
from headlens.model.devices import moved
from headlens.model.lens import Lens
from headlens.util.files import from_home

FIELDS = ("sentence_good", "sentence_bad")  # of BLiMP (Warstadt et al. 2020)


@dataclass(frozen=True, eq=False)
class Pairs(BenchmarkKind):
    """Minimal pairs of sentences, against a language model's log-probability of each.

    Causal: the sum of the log-probabilities of a sentence's tokens, each given those before it. Special
    tokens that the tokenizer adds are read and never scored. Where it adds none in front, its BOS token, or
    its EOS token if it has no other, is put there, so that the first token is scored as well: lm-evaluation-
    harness's ``loglikelihood`` of a sentence after an empty context. (The harness's own BLiMP tasks put a
    blank before every sentence; write it into the file to have theirs.) A tokenizer with neither token
    leaves first tokens unscored, which misleads where the two sentences of a pair begin differently; the
    fact `_context_token` says so.

    Masked: the pseudo-log-likelihood (Salazar et al. 2020): every token that is not special is masked
    alone, and its log-probabilities are added up. It misleads for words of several tokens, which give
    each other away.

    Sums are not divided by length: of two sentences of unequal length the shorter one has an advantage. A
    tie counts as wrong; two sentences that are the same to the tokenizer tie exactly.

    Args:
        name: how the user writes it.
        sentences: the acceptable and the unacceptable one of each pair, one pair after another.
        mask: the mask token, None for a causal model.
        stacks: stacks of attention that are run.
        facts: what `run.json` says about it.
        options: how it is run.
    """

    name: str
    sentences: Sequence[_ScoredSentence]
    mask: int | None
    stacks: tuple[str, ...]
    facts: Mapping[str, Any]
    options: BenchmarkOptions = field(default_factory=BenchmarkOptions)
    metrics: ClassVar[tuple[Metric, ...]] = (
        Accuracy(0),
        Ratio("margin", "log-probability margin (nats)", True, 1),
    )
    kind: ClassVar[str] = "pairs"
    form: ClassVar[str] = "pairs:FILE.jsonl"
    columns: ClassVar[tuple[tuple[str, ...], ...]] = (FIELDS,)

    @classmethod
    def open(cls, target: str, lens: Lens, options: BenchmarkOptions) -> Pairs:
        """Read a file of pairs.

        Args:
            target: path of a file with a JSON object a line, fields sentence_good and sentence_bad.
            lens: the model that will be measured.
            options: how to read and run it.

        Returns:
            The benchmark.

        Raises:
            InputError: the file is unfit; the message names file and line.
            ModelError: the model has no language-model head, or its weights are missing.
        """
        check_head(lens, options, cls.kind)
        file = InputFile(from_home(target))
        rows = read_json_lines(file, [FIELDS], options.columns)
        _check(file, rows)
        causal = predicts_next(lens)
        sentences = _encode(lens, rows, causal, longest_input(lens, options.max_length))
        facts = {
            "kind": cls.kind,
            "path": str(file),
            "sha256": file.sha256,
            "examples": len(rows),
            "example": "pair of sentences",
            "scored_tokens": sum(len(sentence.scored) for sentence in sentences),
            "score": "log-probability" if causal else "pseudo-log-likelihood",
        }
        facts["same_to_the_tokenizer"] = len(_same(sentences))
        if causal:
            facts["context_token"] = _context_token(lens)[1]
        mask = None if causal else lens.tokenizer.mask_token_id
        return cls(f"{cls.kind}:{file.path.name}", sentences, mask, lens.anatomy.stacks, facts, options)

    def measure(self, lens: Lens) -> Array:
        """Score both sentences of every pair.

        Args:
            lens: the model, whatever is ablated in it now.

        Returns:
            Whether the acceptable sentence is the more probable one (1 or 0; 0 if both are equally so), by
            how many nats, and the log-probabilities of both, [pair, 4].
        """
        sums = torch.zeros(len(self.sentences), dtype=torch.float64)
        with torch.inference_mode():
            for _, owners, loss in self._scored(lens):
                sums.index_add_(0, owners, -loss.cpu().double())
        good, bad = sums.view(-1, 2).numpy().T.copy()
        same = _same(self.sentences)
        bad[same] = good[same]  # whatever batches they were in
        return np.column_stack([good > bad, good - bad, good, bad])

    def losses(self, lens: Lens) -> Iterator[Lot]:
        """Minus the margin of each pair, token by token.

        Args:
            lens: the model, whatever is changed in it now.

        Yields:
            Losses by inputs: tokens of acceptable sentences count as they are, those of others negatively.
        """
        for rows, owners, loss in self._scored(lens):
            sign = 1 - 2 * (owners % 2)
            yield Lot(rows // 2, owners // 2, loss * sign.to(loss))

    @property
    def input_keys(self) -> Sequence[tuple[_ScoredSentence, _ScoredSentence]]:
        """The two sentences of each pair."""
        return list(zip(self.sentences[::2], self.sentences[1::2], strict=True))

    @property
    def to_show(self) -> Sequence[Sequence[int]]:
        """Token ids of what the model reads."""
        return [sentence.ids for sentence in self.sentences]

    def take(self, examples: Sequence[int]) -> Pairs:
        """See `Benchmark.take`."""
        sentences = [self.sentences[2 * example + side] for example in examples for side in (0, 1)]
        scored = sum(len(sentence.scored) for sentence in sentences)
        facts = {**self.facts, "examples": len(examples), "scored_tokens": scored}
        facts["same_to_the_tokenizer"] = len(_same(sentences))
        return replace(self, sentences=sentences, facts=facts)

    def warn(self, baseline: Array) -> tuple[str, ...]:
        """Say what looks wrong about the model without ablation.

        Args:
            baseline: per-example values without ablation.

        Returns:
            A sentence if the tokenizer cannot tell some pairs apart.
        """
        same = self.facts["same_to_the_tokenizer"]
        if not same:
            return ()
        return (
            f"{same} of the {self.facts['examples']} pairs of {self.name} are the same to the tokenizer (an "
            "unknown word?), and count as wrong whatever is ablated.",
        )

    def _scored(self, lens: Lens) -> Iterator[tuple[Tensor, Tensor, Tensor]]:
        """By batch: the sentence of each input, and the sentence and loss of each scored token."""
        inputs = [(i, places) for i, one in enumerate(self.sentences) for places in self._passes(one)]
        lengths = [len(self.sentences[i].ids) for i, _ in inputs]

        def work(group: list[int]) -> tuple[Tensor, Tensor, Tensor]:
            batch = [inputs[index] for index in group]
            ids = torch.tensor([self.sentences[i].ids[place] for i, places in batch for place in places])
            rows = torch.tensor([row for row, (_, places) in enumerate(batch) for _ in places])
            places = torch.tensor([place for _, places in batch for place in places])
            owners = torch.tensor([i for i, _ in batch])
            read = [self.sentences[i].ids for i, _ in batch]
            made = padded(lens, read)
            if self.mask is None:
                places -= 1  # what predicts a token stands before it
            else:
                made["input_ids"][moved((rows, places), lens.device)] = self.mask
            loss = predict(lens, made, rows, places, ids).loss
            check_outputs(lens, loss, rows, read)
            return owners, owners[rows], loss

        for _, found in run_batches(lens, lengths, work, self.options.batch_size, tokens_at_once(lens)):
            yield found

    def _passes(self, sentence: _ScoredSentence) -> list[tuple[int, ...]]:
        """The scored places of each input that a sentence makes: all at once, or one at a time masked."""
        return [sentence.scored] if self.mask is None else [(place,) for place in sentence.scored]


def _same(sentences: Sequence[_ScoredSentence]) -> list[int]:
    """The pairs of which both sentences have the same tokens."""
    return [i for i in range(len(sentences) // 2) if sentences[2 * i] == sentences[2 * i + 1]]


def _check(file: InputFile, rows: Sequence[Row]) -> None:
    for row in rows:
        for name, text in zip(FIELDS, row.cells, strict=True):
            if not text.strip():
                raise InputError(f"{row.place}: expected a sentence in the field {name}, found nothing.")
        if row.cells[0] == row.cells[1]:
            raise InputError(
                f"{row.place}: expected two sentences that differ, found the same one twice.",
                "Correct the line.",
            )
    if len(rows) < MIN_EXAMPLES:
        raise InputError(
            f"{file}: expected at least {MIN_EXAMPLES} pairs, found {len(rows)}.", "Give a longer file."
        )


# ---- Sentences as a language model reads them whole, and which of their tokens are scored


NO_CONTEXT = "none: first tokens are not scored"


@dataclass(frozen=True, slots=True)
class _ScoredSentence:
    """One sentence.

    Args:
        ids: its token ids, special ones included.
        scored: places of those that are scored.
    """

    ids: tuple[int, ...]
    scored: tuple[int, ...]


def _context_token(lens: Lens) -> tuple[int | None, str]:
    """Find what stands before the first token of a sentence for a causal model: a token, and it in words.

    The token is None where the tokenizer puts one itself or knows none. Ids in the model's config are not
    asked, since they are often those of its class and name any token.
    """
    tokenizer = need_tokenizer(lens)
    coded = tokenizer("a", return_special_tokens_mask=True)
    if coded["special_tokens_mask"][:1] == [1]:
        return None, str(tokenizer.convert_ids_to_tokens(coded["input_ids"][0]))
    for name in ("bos", "eos"):
        found = getattr(tokenizer, f"{name}_token_id", None)
        if found is not None:
            return int(found), str(getattr(tokenizer, f"{name}_token"))
    return None, NO_CONTEXT


def _encode(lens: Lens, rows: Sequence[Row], causal: bool, longest: int | None) -> list[_ScoredSentence]:
    """Encode the sentences of a file."""
    texts = [text for row in rows for text in row.cells]
    places = [row.place for row in rows for _ in row.cells]
    first = _context_token(lens)[0] if causal else None
    coded = need_tokenizer(lens)(texts, return_special_tokens_mask=True)
    made = []
    for place, ids, special in zip(places, coded["input_ids"], coded["special_tokens_mask"], strict=True):
        if first is not None and ids[:1] != [first]:
            ids, special = [first, *ids], [1, *special]
        # nothing stands before place 0
        scored = [at for at, flag in enumerate(special) if not flag and (at or not causal)]
        if not scored:
            raise InputError(f"{place}: no token of a sentence can be scored.", "Correct the line.")
        if longest is not None and len(ids) > longest:
            raise InputError(
                f"{place}: a sentence has {len(ids)} tokens, and inputs may have {longest}.",
                "Shorten it; headlens cuts no text off.",
            )
        made.append(_ScoredSentence(tuple(ids), tuple(scored)))
    return made
