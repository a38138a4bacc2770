"""What a dry run must have seen to be believed: a model that would be half measured is refused by name."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from transformers import PreTrainedModel

from headlens.dryrun import N_SOURCE, N_TOKENS
from headlens.errors import ModelError
from headlens.probe import Call

SERVED = "headlens serves models in which every layer attends once, over all tokens, by heads side by side."


def check(model: PreTrainedModel, calls: Sequence[Call]) -> None:
    """Refuse a model whose attention is not what headlens can measure.

    Args:
        model: the model.
        calls: what the dry run saw of it.

    Raises:
        ModelError: no attention was seen, or only that of some stacks, or over other lengths than the
            tokens given (pooled or chunked), or several times in one layer.
    """
    kind = type(model).__name__
    if not calls:
        raise ModelError(
            f"{kind} ran, but none of its layers could be seen to compute attention.",
            "headlens serves models whose attention passes through transformers' AttentionInterface or that "
            "return their patterns with output_attentions=True.",
        )
    _check_lengths(model, kind, calls)
    if model.config.is_encoder_decoder:
        missing = {"encoder", "decoder", "cross"} - {call.stack for call in calls}
        if missing:
            raise ModelError(
                f"The attention of {kind}'s {' and '.join(sorted(missing))} cannot be seen.", SERVED
            )
    _check_layers(model, kind, calls)


def _check_lengths(model: PreTrainedModel, kind: str, calls: Sequence[Call]) -> None:
    lengths = {(N_TOKENS, N_TOKENS)}
    if model.config.is_encoder_decoder:
        lengths |= {(N_SOURCE, N_SOURCE), (N_TOKENS, N_SOURCE)}
    elif getattr(model.config.get_text_config(), "add_cross_attention", False):
        lengths |= {(N_TOKENS, N_SOURCE)}
    for call in calls:
        if (call.n_queries, call.n_keys) not in lengths:
            raise ModelError(
                f"{kind} attends in {call.module} with {call.n_queries} queries over {call.n_keys} keys, "
                f"given {N_TOKENS} tokens.",
                SERVED,
            )


def _check_layers(model: PreTrainedModel, kind: str, calls: Sequence[Call]) -> None:
    """A module that is called again must be the next layer of a model with shared layers (ALBERT)."""
    n_layers = getattr(model.config.get_text_config(), "num_hidden_layers", None)
    for stack in {call.stack for call in calls}:
        mine = Counter(call.module for call in calls if call.stack == stack)
        if max(mine.values()) > 1 and mine.total() != n_layers:
            raise ModelError(
                f"{kind} attends {mine.total()} times in {n_layers} layers, more than once in some.", SERVED
            )
