"""Sentences as a language model reads them whole, and which of their tokens are scored."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from headlens.benchmarks.inputs import need_tokenizer
from headlens.benchmarks.tables import Row
from headlens.errors import InputError
from headlens.model.lens import Lens

NO_CONTEXT = "none: first tokens are not scored"


@dataclass(frozen=True, slots=True)
class Sentence:
    """One sentence.

    Args:
        ids: its token ids, special ones included.
        scored: places of those that are scored.
    """

    ids: tuple[int, ...]
    scored: tuple[int, ...]


def context_token(lens: Lens) -> tuple[int | None, str]:
    """Find what stands before the first token of a sentence for a causal model.

    Args:
        lens: the model with its tokenizer; ids in the model's config are not asked, since they are often
            those of its class and name any token.

    Returns:
        The token to put there, None where the tokenizer puts one itself or knows none; and the token in
        words, whoever puts it there.
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


def encode(lens: Lens, rows: Sequence[Row], causal: bool, longest: int | None) -> list[Sentence]:
    """Encode the sentences of a file.

    Args:
        lens: the model with its tokenizer.
        rows: cells are sentences.
        causal: whether the model predicts the next token; else masked ones.
        longest: most tokens, special ones included; None for no limit.

    Returns:
        The sentences, those of a row one after another.

    Raises:
        InputError: nothing of a sentence can be scored, or it is too long; the message names the line.
    """
    texts = [text for row in rows for text in row.cells]
    places = [row.place for row in rows for _ in row.cells]
    first = context_token(lens)[0] if causal else None
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
        made.append(Sentence(tuple(ids), tuple(scored)))
    return made
