"""Running a few tokens through any model, leaving it as it was."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor, nn
from transformers import PreTrainedModel

from headlens.devices import input_device
from headlens.errors import ModelError

N_TOKENS = 4
REMEDIES = {
    "Inference tensors": "Make the model outside torch.inference_mode().",
    "meta tensor": "Its code reads weights that --device-map keeps on disk: give it a --device.",
}
"""What to do, by what a model says when it does not run."""
N_SOURCE = 5  # tokens of an encoder that feeds a decoder: other than N_TOKENS, so that cross-attention shows


@contextmanager
def dry(model: nn.Module) -> Iterator[None]:
    """Eval mode and a fresh graph for a dry run; afterwards the model is as it was."""
    training = [module for module in model.modules() if module.training]
    model.eval()
    try:
        with torch.inference_mode(False), torch.enable_grad():
            yield
    finally:
        for module in training:
            module.training = True


def run(
    model: PreTrainedModel,
    lengths: tuple[int, int] = (N_TOKENS, N_SOURCE),
    drawn: torch.Generator | None = None,
    **options: Any,
) -> Any:
    """Run a few tokens through a model.

    Args:
        model: the model.
        lengths: tokens of a plain model or of a decoder, and of an encoder that feeds a decoder.
        drawn: draws the tokens at random; by default they are the first of the vocabulary.
        **options: further arguments of its forward, whose outputs are returned.

    Raises:
        ModelError: it does not run on token ids.
    """
    config = model.config.get_text_config()
    device = input_device(model)
    n_tokens, n_source = lengths
    try:
        inputs = {
            "input_ids": token_ids(
                config, n_source if model.config.is_encoder_decoder else n_tokens, device, drawn
            )
        }
        if model.config.is_encoder_decoder:
            inputs["decoder_input_ids"] = token_ids(config, n_tokens, device, drawn)
        elif getattr(config, "add_cross_attention", False):  # a decoder that looks at another model's states
            states = torch.zeros(1, n_source, config.hidden_size, device=device, dtype=model.dtype)
            inputs["encoder_hidden_states"] = states
        return model(**inputs, **options)
    except (TypeError, ValueError, RuntimeError, LookupError, AttributeError) as error:
        known = next((why for why in REMEDIES if why in str(error)), "")
        raise ModelError(
            f"{type(model).__name__} does not run on a few token ids ({type(error).__name__}: {error}).",
            REMEDIES.get(known, "headlens serves text models of transformers."),
        ) from error


def token_ids(config: Any, length: int, device: torch.device, drawn: torch.Generator | None) -> Tensor:
    """Token ids that any model takes: small ones that are no padding, and the end-of-sequence id last."""
    end = getattr(config, "eos_token_id", None)
    end = end[0] if isinstance(end, list) else end
    free = [i for i in range(config.vocab_size) if i not in (getattr(config, "pad_token_id", None), end)]
    ids = (free * length)[: length - 1]
    if drawn is not None:
        ids = [free[i] for i in torch.randint(len(free), (length - 1,), generator=drawn).tolist()]
    return torch.tensor([[*ids, free[0] if end is None or end >= config.vocab_size else end]], device=device)
