"""Which token's logit is looked at, and where."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from headlens.benchmarks.predict import predicts_next
from headlens.errors import InputError
from headlens.model.finite import holds_none
from headlens.model.lens import Lens
from headlens.util.formatting import readable_tokens


@dataclass(frozen=True, slots=True)
class Predicted:
    """One token's logit.

    Args:
        token: as people read it.
        id: its id.
        position: where it is predicted, from 0.
        logit: the logit.
        probability: its share after the softmax over the vocabulary, 0..1.
    """

    token: str
    id: int
    position: int
    logit: float
    probability: float


def position_of(
    lens: Lens, inputs: Mapping[str, Tensor], position: int | None
) -> tuple[int | None, str | None]:
    """Choose where a logit is looked at.

    Args:
        lens: the model and its tokenizer.
        inputs: of the model, [1, token].
        position: as the user chose it, from 0; None for the default: the last token of a model that writes
            from left to right, the first mask token for one that fills masks in.

    Returns:
        The position, None where there is none to look at, and then why.

    Raises:
        InputError: there is no such position.
    """
    ids = inputs.get("decoder_input_ids", inputs["input_ids"])
    count = ids.shape[1]
    if position is not None and not 0 <= position < count:
        raise InputError(
            f"There is no position {position}: the text has {count} tokens.",
            f"Positions count from 0: give one from 0 to {count - 1}.",
        )
    if lens.model.get_output_embeddings() is None:  # type: ignore[no-untyped-call]
        kind = lens.anatomy.architecture
        return None, f"{kind} has no language head, so heads have no effect on a logit: logit is empty."
    if position is not None:
        return position, None
    if "decoder_input_ids" in inputs or predicts_next(lens):
        return count - 1, None
    mask = getattr(lens.tokenizer, "mask_token_id", None)
    places = [] if mask is None else (ids[0] == mask).nonzero()[:, 0].tolist()
    if places:
        return int(places[0]), None
    example = getattr(lens.tokenizer, "mask_token", None) or "[MASK]"
    return None, (
        f"The text has no mask token, so no token is predicted and logit is empty: write {example} where a "
        "word shall be filled in, or choose --position N."
    )


def token_id(lens: Lens, text: str) -> int:
    """Find the one token that a text is.

    Args:
        lens: the model and its tokenizer.
        text: such as " Paris"; with the blank before it where the tokenizer keeps blanks.

    Returns:
        Its id.

    Raises:
        InputError: it is several tokens, or none.
    """
    ids = lens.tokenizer(text, add_special_tokens=False)["input_ids"]
    if len(ids) == 1 and ids[0] != lens.tokenizer.unk_token_id:
        return int(ids[0])
    vocabulary = lens.tokenizer.get_vocab()
    if text in vocabulary:
        return int(vocabulary[text])
    if not ids:
        raise InputError(f"--token {text!r} is no token of the tokenizer.", "Give one that it knows.")
    pieces = readable_tokens(lens.tokenizer, lens.tokenizer.convert_ids_to_tokens(ids))
    if len(ids) == 1:
        raise InputError(f"The tokenizer does not know --token {text!r}.", "Give a token that it knows.")
    raise InputError(
        f"--token must be one token, but {text!r} is {len(ids)}: {' | '.join(pieces)}.",
        "Give one of them, or another word; a blank before a word counts.",
    )


def predicted(lens: Lens, answer: Any, position: int, token: int | None) -> Predicted:
    """Read a logit off what a model put out.

    Args:
        lens: the model and its tokenizer.
        answer: what the model put out for one input.
        position: where.
        token: its id; the one that the model ranks first by default.

    Returns:
        The token and its logit.

    Raises:
        InputError: the model has no logit for the token.
        NotNumbersError: the largest logit there is no number.
    """
    logits = answer.logits[0, position].float()  # [vocabulary]
    if not bool(torch.isfinite(logits.amax())):
        raise holds_none(f"The logits of position {position}")
    chosen = int(logits.argmax()) if token is None else token
    if chosen >= len(logits):
        raise InputError(
            f"The tokenizer made the token id {chosen}, but the model has logits only below {len(logits)}.",
            "Give the tokenizer that belongs to this model.",
        )
    piece = lens.tokenizer.convert_ids_to_tokens([chosen])[0]  # None for ids that only the model has
    name = f"id {chosen}" if piece is None else readable_tokens(lens.tokenizer, [piece])[0]
    share = float(logits.softmax(-1)[chosen])
    return Predicted(name, chosen, position, float(logits[chosen]), share)
