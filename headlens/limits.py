"""How long an input may be."""

from __future__ import annotations

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


def _position_table(lens: Lens) -> int | None:
    """Rows of a table of position embeddings that are left for real tokens (RoBERTa begins after padding)."""
    for module in lens.model.modules():
        table = getattr(module, "position_embeddings", None)
        padding = getattr(table, "padding_idx", None)
        rows = getattr(table, "num_embeddings", None)
        if rows is not None:
            return int(rows) if padding is None else int(rows) - int(padding) - 1
    return None
