"""Which models can predict tokens, and whether their head was ever trained."""

from __future__ import annotations

from headlens.benchmarks.inputs import Options, need_tokenizer
from headlens.errors import ModelError
from headlens.model.lens import Lens, body_weights


def predicts_next(lens: Lens) -> bool:
    """Tell whether a language model reads from left to right.

    Args:
        lens: the model.

    Returns:
        True where no query sees a later key.
    """
    return all(site.causal for site in lens.anatomy.sites)


def has_head(lens: Lens) -> bool:
    """Tell whether a model can predict tokens of one text: causal or masked, not encoder-decoder.

    Args:
        lens: the model.

    Returns:
        Whether it has a language-model head that this benchmark can use.
    """
    head = lens.model.get_output_embeddings()  # type: ignore[no-untyped-call]
    return head is not None and not lens.model.config.is_encoder_decoder


def check_head(lens: Lens, options: Options, benchmark: str = "language") -> None:
    """Refuse a model that cannot predict tokens, or whose head is random.

    Args:
        lens: the model.
        options: whether random weights are accepted.
        benchmark: the kind that needs the head, for messages.

    Raises:
        ModelError: it has no language-model head, or the checkpoint lacks weights of it.
    """
    kind = type(lens.model).__name__
    if not has_head(lens):
        raise ModelError(
            f"The benchmark {benchmark} needs a causal or masked language model, but this is a {kind}.",
            "Take a checkpoint whose class ends in ForCausalLM, LMHeadModel or ForMaskedLM, or another "
            "benchmark: similarity:FILE.tsv works with every encoder.",
        )
    check_head_weights(lens, options)
    if not predicts_next(lens) and getattr(need_tokenizer(lens), "mask_token_id", None) is None:
        raise ModelError(
            f"{kind} predicts masked tokens, but its tokenizer has no mask token.", "Take its own tokenizer."
        )


def check_head_weights(lens: Lens, options: Options) -> None:
    """Refuse a language-model head that was never trained.

    Args:
        lens: the model.
        options: whether random weights are accepted.

    Raises:
        ModelError: the checkpoint lacks weights of the head.
    """
    body = set(body_weights(lens))
    lacking = [name for name in lens.missing if name not in body and "pooler" not in name]
    if lacking and not options.allow_random_weights:
        kind = type(lens.model).__name__
        raise ModelError(
            f"The checkpoint lacks weights of the language-model head of {kind}: {', '.join(lacking)}.",
            "Use a complete checkpoint, or --allow-random-weights to measure it all the same.",
        )
