"""Translation, judged by BLEU and chrF."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, ClassVar

import torch

from headlens.benchmarks.base import (
    MIN_EXAMPLES,
    BenchmarkKind,
    BenchmarkOptions,
    Lot,
    longest_input,
    need_tokenizer,
)
from headlens.benchmarks.files import read_rows
from headlens.benchmarks.metrics import BLEU, CHRF, Array, CorpusScore, Ngrams
from headlens.benchmarks.predict import (
    check_head_weights,
    check_outputs,
    padded,
    predict,
    run_batches,
    tokens_at_once,
    writing_numbers,
)
from headlens.corpus.corpus import InputFile
from headlens.corpus.inputs import AsTarget, decoder_ids
from headlens.errors import InputError, ModelError
from headlens.model.lens import Lens
from headlens.util.files import from_home

COLUMNS = ("source", "reference")
STEP = 32  # limits of translations are rounded up to a multiple of it, so that batches can share one


@dataclass(frozen=True, slots=True)
class Pair:
    """A text and its translation by a person.

    Args:
        source: token ids that the encoder reads.
        labels: token ids of the reference, as its tokenizer makes them, the end included.
        shifted: what the decoder reads while it predicts them, as many.
        reference: the reference as text.
    """

    source: tuple[int, ...]
    labels: tuple[int, ...]
    shifted: tuple[int, ...]
    reference: str


@dataclass(frozen=True, eq=False)
class Translation(BenchmarkKind):
    """Translations by an encoder-decoder model, scored against references with sacrebleu.

    The model decodes greedily, or with --beams; never at random. What else the checkpoint's generation
    config states (forced first token, forbidden words, length penalty) stays in force. A translation ends
    after twice as many tokens as its source has, plus 10, rounded up to a multiple of 32; earlier where
    the model, or --max-length, allows fewer. Sources and references beyond that length are refused, not cut.

    BLEU misleads for languages without blanks between words (tokenizer 13a), and for short files. A model
    that needs to be told the languages must get them from its tokenizer and generation config.

    Args:
        name: how the user writes it.
        pairs: the examples.
        ngrams: counts what the scores are made of.
        longest: most tokens of a text; None for no limit.
        stacks: stacks of attention that are run.
        facts: what `run.json` says about it.
        options: how it is run.
    """

    name: str
    pairs: Sequence[Pair]
    ngrams: Ngrams
    longest: int | None
    stacks: tuple[str, ...]
    facts: Mapping[str, Any]
    options: BenchmarkOptions = field(default_factory=BenchmarkOptions)
    metrics: ClassVar[tuple[CorpusScore, ...]] = (BLEU, CHRF)
    kind: ClassVar[str] = "translation"
    form: ClassVar[str] = "translation:FILE.tsv"
    columns: ClassVar[tuple[tuple[str, ...], ...]] = (COLUMNS,)
    needs: ClassVar[str] = "translation"

    @classmethod
    def open(cls, target: str, lens: Lens, options: BenchmarkOptions) -> Translation:
        """Read a file of texts and their translations.

        Args:
            target: path of a tab-separated file with the columns source and reference.
            lens: the model that will be measured.
            options: how to read and run it.

        Returns:
            The benchmark.

        Raises:
            InputError: the file is unfit, or sacrebleu is not installed; the message says which.
            ModelError: the model does not write texts from texts, or weights of its head are missing.
        """
        check_writer(lens, options)
        file = InputFile(from_home(target))
        rows = read_rows(file, COLUMNS, options.columns)
        if len(rows) < MIN_EXAMPLES:
            raise InputError(
                f"{file}: expected at least {MIN_EXAMPLES} texts, found {len(rows)}.", "Give a longer file."
            )
        longest = longest_input(lens, options.max_length)
        ids = [
            _encode(lens, [(row.cells[side], row.place) for row in rows], COLUMNS[side], longest)
            for side in (0, 1)
        ]
        pairs = [
            Pair(tuple(source), tuple(labels), tuple(decoder_ids(lens.model, labels)), row.cells[1])
            for source, labels, row in zip(*ids, rows, strict=True)
        ]
        ngrams = Ngrams([pair.reference for pair in pairs])
        facts = {
            "kind": cls.kind,
            "path": str(file),
            "sha256": file.sha256,
            "examples": len(pairs),
            "example": "text with its translation",
            "reference_tokens": sum(len(pair.labels) for pair in pairs),
            "beams": options.beams,
            "signatures": ngrams.signatures,
        }
        return cls(
            f"{cls.kind}:{file.path.name}", pairs, ngrams, longest, lens.anatomy.stacks, facts, options
        )

    def measure(self, lens: Lens) -> Array:
        """Translate every source and count n-grams.

        Args:
            lens: the model, whatever is ablated in it now.

        Returns:
            What BLEU and chrF are made of, [text, 28]; see `headlens.benchmarks.metrics`.
        """
        return self.ngrams.count(self.translate(lens))

    def translate(self, lens: Lens) -> list[str]:
        """Translate every source.

        Args:
            lens: the model, whatever is ablated in it now.

        Returns:
            The translations, without special tokens, in the order of the file.
        """
        model: Any = lens.model
        by_limit: dict[int, list[int]] = defaultdict(list)  # of one limit, so that batches change nothing
        for index, pair in enumerate(self.pairs):
            by_limit[self._limit(pair)].append(index)
        written = [""] * len(self.pairs)
        for limit, members in by_limit.items():

            def work(group: list[int], limit: int = limit, members: list[int] = members) -> list[str]:
                inputs = padded(lens, [self.pairs[members[place]].source for place in group])
                settings = {"do_sample": False, "num_beams": self.options.beams, "max_new_tokens": limit}
                ids = model.generate(**inputs, **settings, max_length=None)
                texts: list[str] = lens.tokenizer.batch_decode(ids, skip_special_tokens=True)
                return texts

            lengths = [self.options.beams * (len(self.pairs[index].source) + limit) for index in members]
            with torch.inference_mode(), writing_numbers(model):
                for group, texts in run_batches(lens, lengths, work, self.options.batch_size):
                    for place, text in zip(group, texts, strict=True):
                        written[members[place]] = text
        return written

    def losses(self, lens: Lens) -> Iterator[Lot]:
        """Cross-entropy of the references, the decoder given the true tokens before each.

        The mean over texts is the loss per reference token, in nats; what the tokenizer adds (the end)
        counts as a token.

        Args:
            lens: the model, whatever is changed in it now.

        Yields:
            Losses of some texts after another; a text weighs as many tokens as its reference has.
        """
        weight = len(self.pairs) / self.facts["reference_tokens"]

        def work(group: list[int]) -> Lot:
            pairs = [self.pairs[index] for index in group]
            inputs = padded(lens, [pair.source for pair in pairs])
            decoder = padded(lens, [pair.shifted for pair in pairs])
            inputs |= {f"decoder_{name}": tensor for name, tensor in decoder.items()}
            rows = torch.tensor([row for row, pair in enumerate(pairs) for _ in pair.labels])
            places = torch.tensor([place for pair in pairs for place in range(len(pair.labels))])
            gold = torch.tensor([token for pair in pairs for token in pair.labels])
            loss = predict(lens, inputs, rows, places, gold).loss
            check_outputs(lens, loss, rows, [pair.source for pair in pairs])
            examples = torch.tensor(group)
            return Lot(examples, examples[rows], loss * weight)

        lengths = [len(pair.source) + len(pair.labels) for pair in self.pairs]
        for _, lot in run_batches(lens, lengths, work, self.options.batch_size, tokens_at_once(lens)):
            yield lot

    @property
    def input_keys(self) -> Sequence[tuple[int, ...]]:
        """What the encoder reads of each text."""
        return [pair.source for pair in self.pairs]

    def take(self, examples: Sequence[int]) -> Translation:
        """See `Benchmark.take`."""
        pairs = [self.pairs[example] for example in examples]
        tokens = sum(len(pair.labels) for pair in pairs)
        facts = {**self.facts, "examples": len(pairs), "reference_tokens": tokens}
        return replace(self, pairs=pairs, ngrams=Ngrams([pair.reference for pair in pairs]), facts=facts)

    def _limit(self, pair: Pair) -> int:
        """Most new tokens of a translation; the start token takes one of the decoder's places."""
        room = -(-(2 * len(pair.source) + 10) // STEP) * STEP
        return room if self.longest is None else max(1, min(room, self.longest - 1))


def _encode(
    lens: Lens, texts: Sequence[tuple[str, str]], column: str, longest: int | None
) -> list[list[int]]:
    """Token ids of texts that are given with their places."""
    empty = next((place for text, place in texts if not text), None)
    if empty is not None:
        raise InputError(f"{empty}: expected a text in the column {column}, found nothing.")
    tokenizer = need_tokenizer(lens)
    tokenizer = AsTarget(tokenizer) if column == COLUMNS[1] else tokenizer
    ids: list[list[int]] = tokenizer([text for text, _ in texts])["input_ids"]
    for row, (_, place) in zip(ids, texts, strict=True):
        if not row:
            raise InputError(f"{place}: the tokenizer makes no token of a text.", "Correct the line.")
        if longest is not None and len(row) > longest:
            raise InputError(
                f"{place}: the {column} has {len(row)} tokens, and texts may have {longest}.",
                "Shorten it; headlens cuts no text off.",
            )
    return ids


# ---- Which models write texts from texts, and whether their head was ever trained


def check_writer(lens: Lens, options: BenchmarkOptions) -> None:
    """Refuse a model that does not write texts from texts, or whose head is random.

    Args:
        lens: the model.
        options: whether random weights are accepted, and how many beams there are.

    Raises:
        InputError: there are fewer beams than 1.
        ModelError: it is no encoder-decoder with a language-model head, or weights of that are missing.
    """
    kind = type(lens.model).__name__
    head = lens.model.get_output_embeddings()  # type: ignore[no-untyped-call]
    if head is None or not lens.model.config.is_encoder_decoder:
        raise ModelError(
            "The benchmark translation needs an encoder-decoder model that writes text, but this is a "
            f"{kind}.",
            "Take a checkpoint whose class ends in ForConditionalGeneration or MTModel, or another "
            "benchmark: similarity:FILE.tsv works with every encoder.",
        )
    check_head_weights(lens, options)
    if options.beams < 1:
        raise InputError(
            f"Expected 1 beam or more, found {options.beams}.", "Type --beams 1 for greedy decoding."
        )
