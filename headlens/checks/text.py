"""Checks of what stands before the model: tokens are the tokenizer's, and words own their pieces."""

from __future__ import annotations

import unicodedata
from collections.abc import Iterator
from typing import Any

from headlens.checks.base import Outcome, does_not_apply
from headlens.checks.subject import Subject
from headlens.checks.texts import TEXTS, sample, unknown_ids
from headlens.corpus.inputs import AsTarget, sentence_inputs
from headlens.corpus.words import AlignmentError, Encoded, encode_text, encode_words
from headlens.model.lens import n_known
from headlens.util.formatting import counted

NO_TOKENIZER = "the model came without a tokenizer"
AROUND = 3  # tokens shown on either side of a difference


def tokens(subject: Subject) -> Outcome:
    """Ids are exactly those that the tokenizer makes of the text, and the model knows them."""
    lens = subject.lens
    if lens.tokenizer is None:
        return does_not_apply(NO_TOKENIZER)
    known, n = n_known(lens), 0
    for tokenizer, text, found in _read(subject):
        wanted = list(tokenizer(text)["input_ids"])
        if found != wanted:
            return Outcome(False, _first_difference(text, found, wanted))
        if known is not None and max(found, default=0) >= known:
            problem = f"the tokenizer makes the id {max(found)}, the model knows ids below {known}"
            return Outcome(False, problem)
        n += len(found)
    special, beyond = _beyond(lens.tokenizer, known)
    if beyond:
        token, number = next(iter(beyond.items()))
        problem = f"the model has no embedding for {counted(len(beyond), 'token')} of the tokenizer, such as "
        return Outcome(False, f"{problem}{token!r} ({number}); it knows ids below {known}")
    rest = f" ({counted(len(special), 'special token')} without embedding: {', '.join(special)})"
    return Outcome(True, f"{n} tokens are those of the tokenizer{rest if special else ''}", n)


def _beyond(tokenizer: Any, known: int | None) -> tuple[dict[str, int], dict[str, int]]:
    """Tokens without a row: added special ones, as for padding, that no text needs, and all others."""
    every = sorted(tokenizer.get_vocab().items(), key=lambda one: one[1])
    beyond = {token: number for token, number in every if known is not None and number >= known}
    special = {token: number for token, number in beyond.items() if number in tokenizer.all_special_ids}
    return special, {token: number for token, number in beyond.items() if token not in special}


def _read(subject: Subject) -> Iterator[tuple[Any, str, list[int]]]:
    """Every way in which a text becomes tokens: the tokenizer, the text, and the tokens."""
    lens = subject.lens
    readers = [lens.tokenizer]
    if lens.model.config.is_encoder_decoder:
        readers.append(AsTarget(lens.tokenizer))
    for tokenizer in readers:
        for text in TEXTS:
            yield tokenizer, text, encode_text(tokenizer, text).inputs["input_ids"]
        for item in sentence_inputs(sample(), tokenizer, subject.longest).items:
            yield tokenizer, " ".join(item.encoded.forms), item.encoded.inputs["input_ids"]
    for (source, _), ids, real in zip(
        subject.pairs, subject.together.inputs["input_ids"], subject.together.source, strict=True
    ):
        if source.encoded.forms:  # else it was drawn
            yield lens.tokenizer, " ".join(source.encoded.forms), ids[real].tolist()


def _first_difference(text: str, found: list[int], wanted: list[int]) -> str:
    place = next(
        (i for i, (one, two) in enumerate(zip(found, wanted, strict=False)) if one != two),
        min(len(found), len(wanted)),
    )
    shown = slice(max(0, place - AROUND), place + AROUND + 1)
    return (
        f"{text!r} is read as {len(found)} tokens, its tokenizer makes {len(wanted)}; from "
        f"token {shown.start} on they are {found[shown]} instead of {wanted[shown]}"
    )


def words(subject: Subject) -> Outcome:
    """Every word owns pieces, and they spell it."""
    tokenizer = subject.lens.tokenizer
    if tokenizer is None:
        return does_not_apply(NO_TOKENIZER)
    unknown = unknown_ids(tokenizer)
    spelled = n = 0
    for _, sentence in sample().sentences:
        try:
            encoded = encode_words(tokenizer, sentence.forms)
        except AlignmentError as error:
            return Outcome(False, f"{sentence.text!r}: {error.problem}")
        n += len(encoded.forms)
        for form, ids in _pieces(encoded):
            if unknown.intersection(ids):
                continue
            told = tokenizer.decode(ids)
            if _bare(told) != _bare(form):
                return Outcome(False, f"the pieces of {form!r} in {sentence.text!r} spell {told!r}")
            spelled += 1
    if not spelled:
        return does_not_apply("the tokenizer knows none of the words that it was asked")
    rest = f" ({n - spelled} more are unknown to the tokenizer)" if n > spelled else ""
    return Outcome(True, f"the pieces of {spelled} words spell them{rest}", spelled)


def _pieces(encoded: Encoded) -> Iterator[tuple[str, list[int]]]:
    for number, form in enumerate(encoded.forms):
        ids = encoded.inputs["input_ids"]
        yield form, [one for one, word in zip(ids, encoded.words, strict=True) if word == number]


def _bare(text: str) -> str:
    """A text without case, accents and blanks, which tokenizers may drop."""
    parts = unicodedata.normalize("NFKD", text.casefold())
    return "".join(char for char in parts if not char.isspace() and not unicodedata.combining(char))
