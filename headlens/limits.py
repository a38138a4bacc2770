"""How long an input may be."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from inspect import signature

from torch import nn

from headlens.errors import InputError
from headlens.lens import Lens

_SANE = 10**9  # tokenizers without a limit claim one beyond this


def longest_input(lens: Lens) -> int | None:
    """Find the longest input that a model takes.

    Args:
        lens: the model with its tokenizer.

    Returns:
        A number of tokens, special ones included: the smaller of what the model's positions and its
        tokenizer allow; None where neither has a limit.
    """
    config = lens.model.config.get_text_config()
    limits = [getattr(config, name, None) for name in ("max_position_embeddings", "n_positions")]
    table = _position_table(lens)
    if table is not None:
        limits.append(table)
    if lens.tokenizer is not None and lens.tokenizer.model_max_length < _SANE:
        limits.append(lens.tokenizer.model_max_length)
    known = [int(limit) for limit in limits if limit]
    return min(known) if known else None


def takes_positions(lens: Lens) -> bool:
    """Tell whether inputs that are padded on the left must say the position of each token.

    Args:
        lens: the model.

    Returns:
        False for models without positions of their own, and for those (RoBERTa) that count real tokens
        by themselves.
    """
    return "position_ids" in signature(lens.model.base_model.forward).parameters and not _counts_by_itself(
        lens
    )


def n_known(lens: Lens) -> int | None:
    """How many token ids the model knows, None where it does not tell."""
    return getattr(lens.model.get_input_embeddings(), "num_embeddings", None)


def check_ids(lens: Lens, rows: Iterable[Sequence[int]]) -> None:
    """Refuse token ids that the model has no embedding for.

    Args:
        lens: the model.
        rows: token ids of each input.

    Raises:
        InputError: there is one.
    """
    known = n_known(lens)
    largest = max((max(row, default=0) for row in rows), default=0)
    if known is not None and largest >= known:
        raise InputError(
            f"The tokenizer made the token id {largest}, but the model knows only ids below {known}.",
            "Give the tokenizer that belongs to this model.",
        )


def known_pad(lens: Lens, pad: int) -> int:
    """Keep a padding id that the model knows; of another one 0, since the attention mask hides it."""
    known = n_known(lens)
    return pad if known is None or pad < known else 0


def _position_tables(lens: Lens) -> list[nn.Embedding]:
    tables = [getattr(module, "position_embeddings", None) for module in lens.model.modules()]
    return [table for table in tables if isinstance(table, nn.Embedding)]


def _counts_by_itself(lens: Lens) -> bool:
    return any(table.padding_idx is not None for table in _position_tables(lens))


def _position_table(lens: Lens) -> int | None:
    """Rows of a table of position embeddings that are left for real tokens (RoBERTa begins after padding)."""
    for table in _position_tables(lens):
        return table.num_embeddings - (0 if table.padding_idx is None else table.padding_idx + 1)
    return None
