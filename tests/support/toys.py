"""Small tokenizers and maps made by hand, and minilm."""

from __future__ import annotations

import importlib
from collections.abc import Sequence
from functools import cache

import pytest
import torch
from tokenizers import Tokenizer, models, pre_tokenizers, processors
from transformers import PreTrainedTokenizerFast

import headlens
from headlens import Lens, Site
from headlens.corpus.batches import Axis
from headlens.view.maps import AttentionMaps
from support import families, real

SOURCE = "the dog chased its tail"
TARGET = "der Hund jagte"


def site(layer: int, n_heads: int, stack: str = "encoder", index: int = 0) -> Site:
    return Site(index, stack, layer, f"{stack}.{layer}", n_heads, n_heads, 4, False)


def axis(tokens: Sequence[str], words: Sequence[int | None] | None = None) -> Axis:
    special = tuple(token.startswith("[") and len(token) > 2 for token in tokens)
    numbers = tuple(range(len(tokens))) if words is None else tuple(words)
    forms = (
        tuple(tokens) if words is None else tuple(f"w{i}" for i in range(1 + max(w or 0 for w in numbers)))
    )
    return Axis(tuple(tokens), numbers, special, forms)


def random_maps(tokens: Sequence[str], layers: int = 1, heads: int = 1) -> AttentionMaps:
    """Maps of one stack with rows that sum to 1."""
    torch.manual_seed(len(tokens))
    sites = tuple(site(layer, heads, index=layer) for layer in range(layers))
    size = (heads, len(tokens), len(tokens))
    patterns = {s: (torch.randn(size) * 3).softmax(-1) for s in sites}
    numbers = {s: tuple(range(heads)) for s in sites}
    along = axis(tokens)
    return AttentionMaps("toy", sites, patterns, numbers, {"encoder": (along, along)})


def word_tokenizer() -> PreTrainedTokenizerFast:
    words = ["<pad>", "<unk>", "</s>", *SOURCE.split(), *TARGET.split()]
    made = Tokenizer(models.WordLevel({word: i for i, word in enumerate(words)}, unk_token="<unk>"))
    made.pre_tokenizer = pre_tokenizers.Whitespace()
    made.post_processor = processors.TemplateProcessing(
        single="$A </s>", pair="$A </s> $B </s>", special_tokens=[("</s>", 2)]
    )
    return PreTrainedTokenizerFast(
        tokenizer_object=made, unk_token="<unk>", pad_token="<pad>", eos_token="</s>"
    )


def family(name: str) -> Lens:
    return headlens.load(families.build(name), word_tokenizer())


@cache
def minilm() -> Lens:
    return headlens.load(real.need_minilm())


@cache
def smollm2() -> Lens:
    """Read once, and its file once as well, which transformers reads three times: it takes many seconds."""
    path = real.smollm2()
    with pytest.MonkeyPatch.context() as patch:
        for name in ("GGUFReader", "get_tensor_name_map"):
            patch.setattr(f"gguf.{name}", cache(getattr(importlib.import_module("gguf"), name)))
        return headlens.load(path)
