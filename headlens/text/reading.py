"""One text (or two, or a text and its translation) made ready for a model, with the tokens people read."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from headlens.errors import InputError
from headlens.model.lens import check_ids, longest_input
from headlens.text.targets import AsTarget, decoder_ids, start_id
from headlens.text.words import Encoded, encode_text
from headlens.util.formatting import mended, readable_tokens

if TYPE_CHECKING:
    from headlens.model.lens import Lens


@dataclass(frozen=True, slots=True)
class Axis:
    """The tokens (or words) along one side of a pattern.

    Args:
        tokens: what stands at each position, as people read it.
        words: for each position the index of its word in `forms`, None where it belongs to none.
        special: for each position whether it is a special token ([CLS], <s>, ...).
        forms: the words of the text.
    """

    tokens: tuple[str, ...]
    words: tuple[int | None, ...]
    special: tuple[bool, ...]
    forms: tuple[str, ...]

    def __len__(self) -> int:
        return len(self.tokens)

    def at(self, places: Sequence[int]) -> Axis:
        """Keep only some positions, in the order given."""
        return Axis(
            tuple(self.tokens[place] for place in places),
            tuple(self.words[place] for place in places),
            tuple(self.special[place] for place in places),
            self.forms,
        )


@dataclass(frozen=True, slots=True)
class Reading:
    """One input of a model.

    Args:
        inputs: the model's arguments, each [1, tokens].
        source: the text that the model reads.
        target: what the decoder of an encoder-decoder model is given, None for other models.
    """

    inputs: dict[str, Tensor]
    source: Axis
    target: Axis | None = None

    def axes(self, stack: str) -> tuple[Axis, Axis]:
        """The query and key sides of a stack's patterns: "cross" is target by source."""
        if self.target is None or stack == "encoder":
            return self.source, self.source
        return self.target, self.source if stack == "cross" else self.target


def read(
    lens: Lens, text: str, pair: str | None = None, target: str | None = None, max_length: int | None = None
) -> Reading:
    """Tokenize one input, whole: nothing is ever cut.

    What is no character (half of a surrogate pair) becomes U+FFFD, with a warning.

    Args:
        lens: the model and its tokenizer.
        text: what the model reads.
        pair: a second text, for models that read two.
        target: what an encoder-decoder model writes; its decoder is given the start token and the target
            shifted by one, as in training.
        max_length: refuse inputs of more tokens; by default what the model takes.

    Returns:
        The input, on the lens's device.

    Raises:
        InputError: there is no tokenizer, the text is empty or too long, or a target is missing or too much.
    """
    kind, tokenizer = type(lens.model).__name__, lens.tokenizer
    if tokenizer is None:
        raise InputError(
            f"The {kind} came without a tokenizer, so there is nothing that turns a text into its tokens.",
            "Load it as headlens.load(model, tokenizer=...), or from a directory that holds its tokenizer.",
        )
    _check_target(kind, "cross" in lens.anatomy.stacks, target)
    text, (pair, target) = mended(text, pair, target)
    source = encode_text(tokenizer, text, pair)
    _check_tokens(lens, source, "text", max_length)
    inputs = _tensors(lens, source.inputs)
    if target is None:
        return Reading(inputs, _axis(tokenizer, source))
    written = encode_text(AsTarget(tokenizer), target)
    _check_tokens(lens, written, "target", max_length)
    ids = torch.tensor([decoder_ids(lens.model, written.inputs["input_ids"])])
    inputs |= {
        "decoder_input_ids": ids.to(lens.device),
        "decoder_attention_mask": torch.ones_like(ids).to(lens.device),
    }
    return Reading(inputs, _axis(tokenizer, source), _shifted_axis(tokenizer, written, ids))


def reading_of(lens: Lens, encoded: Encoded) -> Reading:
    """Make an input of what is tokenized already.

    Args:
        lens: the model and its tokenizer.
        encoded: the tokens; no longer than the model takes.

    Returns:
        The input. The decoder of an encoder-decoder model is given its start token alone, so that its encoder
        runs as ever.
    """
    inputs = _tensors(lens, encoded.inputs)
    if lens.model.config.is_encoder_decoder:
        inputs["decoder_input_ids"] = torch.tensor([[start_id(lens.model)]], device=lens.device)
    return Reading(inputs, _axis(lens.tokenizer, encoded))


def _check_target(kind: str, wanted: bool, target: str | None) -> None:
    if wanted and target is None:
        raise InputError(
            f"{kind} is an encoder-decoder model: beside the text that it reads it needs the text that it "
            "writes, and none came.",
            "Give it with --target TEXT (in Python: target=...).",
        )
    if not wanted and target is not None:
        raise InputError(
            f"A target is for encoder-decoder models, but {kind} has no decoder that looks at an encoder.",
            "Leave --target out; a second text to read is given with --pair TEXT.",
        )


def _check_tokens(lens: Lens, encoded: Encoded, name: str, max_length: int | None) -> None:
    longest, count = longest_input(lens), len(encoded)
    if max_length is not None and count > max_length:
        raise InputError(
            f"The {name} has {count} tokens, but --max-length allows {max_length}.",
            "Shorten it or allow more; headlens never cuts a text silently.",
        )
    if longest is not None and count > longest:
        raise InputError(
            f"The {name} has {count} tokens, but {type(lens.model).__name__} takes at most {longest}.",
            "Shorten it, or look at it in parts; headlens never cuts a text silently.",
        )
    if count == 0:
        raise InputError(
            f"The tokenizer makes no token of the {name}.", "Give at least one word that it knows."
        )
    check_ids(lens, [encoded.inputs["input_ids"]])


def _tensors(lens: Lens, inputs: dict[str, list[int]]) -> dict[str, Tensor]:
    """Inputs [1, tokens] on the device, with a mask that hides nothing."""
    tensors = {name: torch.tensor([ids]) for name, ids in inputs.items()}
    tensors["attention_mask"] = torch.ones_like(tensors["input_ids"])
    return {name: tensor.to(lens.device) for name, tensor in tensors.items()}


def _axis(tokenizer: Any, encoded: Encoded) -> Axis:
    tokens = readable_tokens(tokenizer, encoded.tokens)
    return Axis(tokens, encoded.words, encoded.special, encoded.forms)


def _shifted_axis(tokenizer: Any, written: Encoded, ids: Tensor) -> Axis:
    """The decoder's actual inputs: a start token, then the target without its last token."""
    pieces = tokenizer.convert_ids_to_tokens(ids[0].tolist())
    words, special = (None, *written.words[:-1]), (True, *written.special[:-1])
    return Axis(readable_tokens(tokenizer, pieces), words, special, written.forms)
