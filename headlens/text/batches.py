"""Batches: inputs of like length, padded, with what scorers need to know about their tokens and words."""

from __future__ import annotations

import unicodedata
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, fields, replace
from functools import cached_property, partial
from typing import Any, TypeVar, cast

import torch
from torch import Tensor
from torch.utils.weak import WeakIdKeyDictionary

from headlens.model.devices import moved
from headlens.text.inputs import Item

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
