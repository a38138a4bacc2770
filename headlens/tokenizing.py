"""The tokenizer that comes with a checkpoint: there, broken, or none."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from transformers import AutoTokenizer

from headlens.compact import read_compact
from headlens.errors import ModelError, first_line
from headlens.sources import Source

FILES = (
    "tokenizer.json",
    "tokenizer_config.json",
    "vocab.txt",
    "vocab.json",
    "merges.txt",
    "bpe.codes",
    "tokenizer.model",
    "spiece.model",
    "spm.model",
    "sentencepiece.model",
    "sentencepiece.bpe.model",
    "spm_char.model",
    "source.spm",
    "target.spm",
    "tekken.json",
)
"""What `transformers` calls the files that a tokenizer is read from."""

_IN_GGUF = "tokenizer.ggml.tokens"


def load_tokenizer(source: Source) -> Any:
    """Load the tokenizer that comes with a checkpoint.

    Args:
        source: where from.

    Returns:
        The tokenizer; None where the checkpoint brings none.

    Raises:
        ModelError: it brings one that cannot be read.
    """
    compact = read_compact(source.place)
    config = {} if compact is None else {"config": compact.own_config()}
    try:
        tokenizer = AutoTokenizer.from_pretrained(source.place, **source.options, **config)
        # for a checkpoint without tokenizer files transformers makes one that knows no word
        n_words = len(tokenizer.get_vocab()) - len(tokenizer.added_tokens_decoder)
    except Exception as error:  # transformers and tokenizers raise many kinds
        file = tokenizer_file(source)
        if file is None:
            return None  # a model without a tokenizer still has an anatomy
        raise _broken(source, file, error) from error
    if n_words > 1:  # T5's has one piece, the blank
        return tokenizer
    file = tokenizer_file(source)
    if file is not None:
        raise _broken(source, file, ValueError("it knows no words"))
    return None


def tokenizer_file(source: Source) -> str | None:
    """Find a file of a tokenizer in a checkpoint, without asking the network.

    Args:
        source: where the checkpoint is; of a hub model the files in the cache are looked at.

    Returns:
        The name of the first one; None where there is none.
    """
    if "gguf_file" in source.options:
        return _gguf_file(source)
    from huggingface_hub import try_to_load_from_cache

    place, revision = Path(source.place), source.options.get("revision")
    for name in FILES:
        if place.is_dir():
            there = (place / name).exists()
        else:
            there = isinstance(try_to_load_from_cache(source.place, name, revision=revision), str)
        if there:
            return name
    return None


def _gguf_file(source: Source) -> str | None:
    from gguf import GGUFReader

    name: str = source.options["gguf_file"]
    fields: Mapping[str, Any] = GGUFReader(Path(source.place) / name).fields
    return name if _IN_GGUF in fields else None


def _broken(source: Source, file: str, error: Exception) -> ModelError:
    remedy = "Fetch its tokenizer files again"
    if isinstance(error, ImportError):
        remedy = "Install the package that is named"
    elif "custom code" in str(error) or "trust_remote_code" in str(error):
        remedy = "Read the code that comes with it, and type --trust-remote-code to run it"
    reason = first_line(error)
    if isinstance(error, LookupError):  # which say a mere key
        reason = f"{type(error).__name__}: {reason}"
    elif "instantiate the backend tokenizer" in reason:  # goes on over several lines
        reason = "its vocabulary is missing."
    return ModelError(
        f"{source.name!r} brings a tokenizer ({file}), which cannot be read: {reason}",
        f"{remedy}, or give another tokenizer: headlens.load(model, tokenizer=...).",
    )
