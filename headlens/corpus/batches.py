"""Batches of inputs of about the same length, with everything that scorers ask about them."""

from __future__ import annotations

import unicodedata
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, fields, replace
from functools import cached_property, partial
from typing import TYPE_CHECKING, Any, TypeVar, cast

import torch
from torch import Tensor
from torch.utils.weak import WeakIdKeyDictionary

from headlens.corpus.inputs import AsTarget, Item, decoder_ids, start_id
from headlens.corpus.words import Encoded, encode_text
from headlens.errors import InputError
from headlens.model.devices import moved
from headlens.model.lens import check_ids, longest_input
from headlens.util.formatting import mended, readable_tokens, visible

if TYPE_CHECKING:
    from headlens.model.lens import Lens


T = TypeVar("T")

# A batch holds at most this many tokens, padding included, unless a size is given. More of them leave the
# caches of a CPU: at 128 tokens, four times as many took 30 % longer per token.
TOKENS_AT_ONCE = 1024


@dataclass(frozen=True)
class Batch:
    """Some inputs side by side.

    Args:
        items: the inputs.
        inputs: what the model reads: input_ids, attention_mask, token_type_ids [input, token].
        pad_left: whether padding stands on the left.
    """

    items: tuple[Item, ...]
    inputs: dict[str, Tensor]
    pad_left: bool = False
    _known: dict[Any, Any] = field(default_factory=dict, repr=False)
    _known_of: WeakIdKeyDictionary = field(default_factory=WeakIdKeyDictionary, repr=False)

    def __reduce__(self) -> tuple[Any, ...]:
        """Send what was worked out of it to nobody."""
        told = {one.name: getattr(self, one.name) for one in fields(self) if not one.name.startswith("_")}
        return partial(type(self), **told), ()

    def once(self, make: Callable[[Batch], T]) -> T:
        """Work something out of this batch once, however many sites ask for it.

        Args:
            make: called with the batch the first time.

        Returns:
            What it returned.
        """
        if make not in self._known:
            self._known[make] = make(self)
        return cast(T, self._known[make])

    def on(self, device: torch.device, what: str | Callable[[Batch], T]) -> Any:
        """Bring something of this batch to a device once, however many sites ask for it there.

        Args:
            device: where to.
            what: the name of a property, or what makes it, see `once`.

        Returns:
            It, on the device.
        """
        key = (device, what)
        if key not in self._known:
            made = getattr(self, what) if isinstance(what, str) else self.once(what)
            self._known[key] = moved(made, device)
        return self._known[key]

    def known_of(self, visible: Tensor) -> dict[Any, Any]:
        """What was worked out of this batch and of what some queries may see; gone as soon as `visible` is.

        Args:
            visible: which keys each query may see: not a tensor like this one, but this one.
        """
        known: dict[Any, Any] = self._known_of.setdefault(visible, {})  # type: ignore[no-untyped-call]
        return known

    @property
    def real(self) -> Tensor:
        """Which tokens are no padding, bool [input, token]."""
        return self.inputs["attention_mask"].bool()

    @cached_property
    def units(self) -> Tensor:
        """The unit of each input, [input]."""
        return torch.tensor([item.unit for item in self.items])

    @cached_property
    def special(self) -> Tensor:
        """Which tokens the tokenizer added, bool [input, token]."""
        return self._spread([item.encoded.special for item in self.items], False, torch.bool)

    @cached_property
    def punctuation(self) -> Tensor:
        """Which tokens belong to a punctuation mark (UPOS PUNCT, else Unicode's P), bool [input, token]."""
        marks = []
        for item in self.items:
            words = [word.upos == "PUNCT" if word.upos else _is_punctuation(word.form) for word in item.words]
            marks.append([index is not None and words[index] for index in item.encoded.words])
        return self._spread(marks, False, torch.bool)

    @cached_property
    def first(self) -> Tensor:
        """Which token is the first of its input, bool [input, token]."""
        real = self.real
        return real & (real.cumsum(dim=1) == 1)

    @cached_property
    def n_words(self) -> int:
        """Words of the input that has most."""
        return max(len(item.words) for item in self.items)

    @cached_property
    def owners(self) -> Tensor:
        """The word that each token is a piece of, `n_words` where it is a piece of none, [input, token]."""
        none = self.n_words
        words = [[none if w is None else w for w in item.encoded.words] for item in self.items]
        return self._spread(words, none, torch.long)

    @cached_property
    def n_pieces(self) -> Tensor:
        """How many tokens each word has, [input, word]."""
        counts = torch.zeros(len(self.items), self.n_words + 1)
        return counts.scatter_add_(1, self.owners, torch.ones(self.owners.shape))[:, :-1]

    def _spread(self, rows: Sequence[Sequence[Any]], fill: Any, dtype: torch.dtype) -> Tensor:
        return pad(rows, fill, dtype, self.pad_left)


def pad(rows: Sequence[Sequence[Any]], fill: Any, dtype: torch.dtype, left: bool = False) -> Tensor:
    """Put rows of unequal length side by side.

    Args:
        rows: one sequence per input.
        fill: what stands where a row is shorter than the longest.
        dtype: of the result.
        left: whether the filling stands on the left.

    Returns:
        Tensor [row, longest].
    """
    longest = max(map(len, rows))
    padded = torch.full((len(rows), longest), fill, dtype=dtype)
    for index, row in enumerate(rows):
        place = slice(longest - len(row), None) if left else slice(0, len(row))
        padded[index, place] = torch.tensor(list(row), dtype=dtype)
    return padded


def numbered(items: Sequence[Item]) -> tuple[Tensor, tuple[Item, ...]]:
    """Number the units of some inputs from 0.

    Args:
        items: the inputs.

    Returns:
        The units that there are, in order, [unit]; and the inputs, each with its unit's place there.
    """
    units = sorted({item.unit for item in items})
    place = {unit: number for number, unit in enumerate(units)}
    return torch.tensor(units), tuple(replace(item, unit=place[item.unit]) for item in items)


def make_batches(
    items: Sequence[Item],
    pad_id: int,
    batch_size: int | None = None,
    pad_left: bool = False,
    positions: bool = False,
    ordered: bool = False,
) -> Iterator[Batch]:
    """Group inputs of like length.

    Args:
        items: the inputs.
        pad_id: the id that padding gets; the attention mask hides it.
        batch_size: inputs in a batch; by default as many as hold 1,024 tokens.
        pad_left: pad on the left instead of on the right.
        positions: whether the model must then be told the position of each token.
        ordered: keep the order of the inputs, whatever their lengths.

    Yields:
        Batches, shortest inputs first; the same every time.
    """
    order = sorted(range(len(items)), key=lambda index: 0 if ordered else len(items[index].encoded))
    group: list[Item] = []
    for index in order:
        size = batch_size or max(1, TOKENS_AT_ONCE // len(items[index].encoded))
        if len(group) >= size:
            yield _batch(group, pad_id, pad_left, positions)
            group = []
        group.append(items[index])
    if group:
        yield _batch(group, pad_id, pad_left, positions)


def _batch(items: Sequence[Item], pad_id: int, left: bool, positions: bool) -> Batch:
    coded = [item.encoded.inputs for item in items]
    inputs = {"input_ids": pad([x["input_ids"] for x in coded], pad_id, torch.long, left)}
    mask = [[1] * len(x["input_ids"]) for x in coded]
    inputs["attention_mask"] = pad(mask, 0, torch.long, left)
    if "token_type_ids" in coded[0]:
        inputs["token_type_ids"] = pad([x["token_type_ids"] for x in coded], 0, torch.long, left)
    if left and positions:
        inputs["position_ids"] = (inputs["attention_mask"].cumsum(dim=1) - 1).clamp(min=0)
    return Batch(tuple(items), inputs, left)


def _is_punctuation(form: str) -> bool:
    return bool(form) and all(unicodedata.category(char).startswith("P") for char in form)


# ---- One text (or two, or a text and its translation) made ready for a model, with the tokens people read


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
class ModelInput:
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
) -> ModelInput:
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
        return ModelInput(inputs, _axis(tokenizer, source))
    written = encode_text(AsTarget(tokenizer), target)
    _check_tokens(lens, written, "target", max_length)
    ids = torch.tensor([decoder_ids(lens.model, written.inputs["input_ids"])])
    inputs |= {
        "decoder_input_ids": ids.to(lens.device),
        "decoder_attention_mask": torch.ones_like(ids).to(lens.device),
    }
    return ModelInput(inputs, _axis(tokenizer, source), _shifted_axis(tokenizer, written, ids))


def reading_of(lens: Lens, encoded: Encoded) -> ModelInput:
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
    return ModelInput(inputs, _axis(lens.tokenizer, encoded))


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


# ---- Which positions of an axis make up one word


def word_groups(axis: Axis) -> tuple[list[int], Axis]:
    """Merge the pieces of each word; positions of no word stay alone.

    A word without a piece of its own has no position: its signs are shown with the word before it where
    one piece covers both (such as ``."``).

    Args:
        axis: tokens.

    Returns:
        For each position the index of its place in the new axis, and the new axis.
    """
    places: dict[tuple[str, int], int] = {}
    members: list[list[int]] = []
    owner = []
    for position, word in enumerate(axis.words):
        name = ("token", position) if word is None else ("word", word)
        if name not in places:
            places[name] = len(members)
            members.append([])
        members[places[name]].append(position)
        owner.append(places[name])
    tokens = tuple(_label(axis, positions) for positions in members)
    words = tuple(axis.words[positions[0]] for positions in members)
    special = tuple(axis.special[positions[0]] for positions in members)
    return owner, Axis(tokens, words, special, axis.forms)


def spread(owner: Sequence[int]) -> Tensor:
    """Write groups as a matrix of 0 and 1.

    Args:
        owner: for each position the index of its group; groups are counted from 0 without gaps.

    Returns:
        float64 [position, group].
    """
    return torch.nn.functional.one_hot(torch.tensor(owner)).double()


def _label(axis: Axis, positions: Sequence[int]) -> str:
    word = axis.words[positions[0]]
    if word is None:
        return axis.tokens[positions[0]]
    written = "".join(axis.tokens[position] for position in positions)
    label, owned = axis.forms[word], set(axis.words)
    for following in range(word + 1, len(axis.forms)):
        longer = label + axis.forms[following]
        if following in owned or not written.startswith(longer):
            break
        label = longer
    return visible(label)
