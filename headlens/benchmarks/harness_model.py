"""A model as lm-evaluation-harness wants it, and left as it was; and which models it can ask."""

from __future__ import annotations

import copy
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

from headlens.benchmarks.harness_documents import Document
from headlens.benchmarks.harness_tasks import quietly
from headlens.benchmarks.inputs import Options, need_tokenizer
from headlens.benchmarks.language_head import check_head_weights, predicts_next
from headlens.errors import ModelError
from headlens.model.lens import Lens


@contextmanager
def wrapped(lens: Lens, longest: int | None) -> Iterator[Any]:
    """Hand a model to lm_eval while the block lasts.

    lm_eval puts models into eval mode, ties weights, and may give tokenizers a padding token: here the mode
    is put back, nothing is tied, and the tokenizer is a copy.

    Args:
        lens: the model.
        longest: most tokens of an input.

    Yields:
        lm_eval's `HFLM`.
    """
    from lm_eval.models.huggingface import HFLM

    backend: Any = "seq2seq" if lens.model.config.is_encoder_decoder else "causal"
    tokenizer = copy.deepcopy(lens.tokenizer)
    first = _first_token(tokenizer)
    with _untouched(lens.model):
        with quietly():
            model = HFLM(lens.model, backend, tokenizer=tokenizer, max_length=longest, prefix_token_id=first)
        yield model


def _first_token(tokenizer: Any) -> int | None:
    """What stands before a text that has nothing before it: BOS or EOS as in lm_eval, else CLS."""
    known = (getattr(tokenizer, f"{name}_token_id", None) for name in ("bos", "eos", "cls"))
    return next((token for token in known if token is not None), None)


@contextmanager
def _untouched(model: Any) -> Iterator[None]:
    training = [module for module in model.modules() if module.training]
    own = vars(model).get("tie_weights")
    model.tie_weights = lambda *_, **__: None
    try:
        yield
    finally:
        del model.tie_weights
        if own is not None:
            model.tie_weights = own
        for module in training:
            module.training = True


def check_model(lens: Lens, options: Options) -> None:
    """Refuse a model that does not write text, or whose head is random.

    Args:
        lens: the model.
        options: whether random weights are accepted.

    Raises:
        ModelError: it has no language-model head, predicts masked tokens, or lacks weights of its head.
    """
    kind = type(lens.model).__name__
    head = lens.model.get_output_embeddings()  # type: ignore[no-untyped-call]
    if head is None or not (lens.model.config.is_encoder_decoder or predicts_next(lens)):
        raise ModelError(
            f"The benchmark harness needs a model that writes text, but this is a {kind}.",
            "Take a checkpoint whose class ends in ForCausalLM, LMHeadModel or ForConditionalGeneration.",
        )
    check_head_weights(lens, options)


def check_tokenizer(lens: Lens, documents: Sequence[Document]) -> None:
    """Refuse a tokenizer that lacks a token which these tasks need.

    Args:
        lens: the model.
        documents: the examples.

    Raises:
        ModelError: there is no token to begin with, or none that ends what is written.
    """
    tokenizer = need_tokenizer(lens)
    writes = any(one.request_type == "generate_until" for two in documents for one in two.requests)
    if _first_token(tokenizer) is None or (writes and tokenizer.eos_token_id is None):
        raise ModelError(
            "lm-evaluation-harness needs a tokenizer with a BOS or EOS token, to write text one with an EOS "
            "token; this one has none.",
            "Set tokenizer.eos_token.",
        )
