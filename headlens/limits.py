"""How long an input may be."""

from __future__ import annotations

from inspect import signature

from torch import nn

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
