"""Which models write texts from texts, and whether their head was ever trained."""

from __future__ import annotations

from headlens.benchmarks.inputs import Options
from headlens.benchmarks.language_head import check_head_weights
from headlens.errors import InputError, ModelError
from headlens.model.lens import Lens


def check_writer(lens: Lens, options: Options) -> None:
    """Refuse a model that does not write texts from texts, or whose head is random.

    Args:
        lens: the model.
        options: whether random weights are accepted, and how many beams there are.

    Raises:
        InputError: there are fewer beams than 1.
        ModelError: it is no encoder-decoder with a language-model head, or weights of that are missing.
    """
    kind = type(lens.model).__name__
    head = lens.model.get_output_embeddings()  # type: ignore[no-untyped-call]
    if head is None or not lens.model.config.is_encoder_decoder:
        raise ModelError(
            "The benchmark translation needs an encoder-decoder model that writes text, but this is a "
            f"{kind}.",
            "Take a checkpoint whose class ends in ForConditionalGeneration or MTModel, or another "
            "benchmark: similarity:FILE.tsv works with every encoder.",
        )
    check_head_weights(lens, options)
    if options.beams < 1:
        raise InputError(
            f"Expected 1 beam or more, found {options.beams}.", "Type --beams 1 for greedy decoding."
        )
