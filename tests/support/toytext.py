"""Word-level tokenizers and texts for the models of `families`: the word ``w7`` has the id 7."""

from __future__ import annotations

from pathlib import Path

import numpy as np
from tokenizers import Tokenizer, models, pre_tokenizers, processors
from transformers import PreTrainedTokenizerFast

from support.families import VOCAB, build


def toy_tokenizer(
    frame: tuple[str, ...] = ("[CLS]", "[SEP]"), mask: bool = True, pad: int = 0
) -> PreTrainedTokenizerFast:
    """Words between blanks; `frame` are the special tokens around a text: none, one before, or both."""
    vocabulary = {f"w{i}": i for i in range(4, VOCAB)}
    names = ["[PAD]", "[CLS]"] if pad == 0 else ["[CLS]", "[PAD]"]
    vocabulary |= {name: i for i, name in enumerate([*names, "[SEP]", "[MASK]"])}
    inner = Tokenizer(models.WordLevel(vocabulary, unk_token="w4"))
    inner.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    if frame:
        around = [frame[0], "$A", *frame[1:]]
        inner.post_processor = processors.TemplateProcessing(
            single=" ".join(around), special_tokens=[(name, vocabulary[name]) for name in frame]
        )
    return PreTrainedTokenizerFast(
        tokenizer_object=inner,
        pad_token="[PAD]",
        cls_token="[CLS]",
        sep_token="[SEP]",
        model_max_length=60,
        **({"mask_token": "[MASK]"} if mask else {}),
    )


def toy_text(n_words: int, seed: int) -> str:
    """Words drawn at random."""
    return " ".join(f"w{i}" for i in np.random.default_rng(seed).integers(5, VOCAB, n_words))


def toy_pairs(n: int = 24) -> list[tuple[str, str, float]]:
    """Pairs of texts of unequal length, with scores."""
    scores = np.random.default_rng(9).uniform(0, 5, n)
    return [
        (toy_text(2 + i % 9, i), toy_text(3 + i % 5, 1000 + i % 7), round(float(s), 2))
        for i, s in enumerate(scores)
    ]


def write_pairs(path: Path, pairs: list[tuple[str, str, float]]) -> str:
    """Write a file for the benchmark similarity and say how it is named."""
    lines = ["text_a\ttext_b\tscore", *(f"{a}\t{b}\t{s}" for a, b, s in pairs)]
    path.write_text("\n".join(lines) + "\n", encoding="utf-8")
    return f"similarity:{path}"


def write_lines(path: Path, n_lines: int = 14) -> str:
    """Write a file for the benchmark language, lines of unequal length, and say how it is named."""
    lines = [toy_text(2 + i % 6, i) + "\n" * (i % 4 == 0) for i in range(n_lines)]
    path.write_text("\n".join(lines), encoding="utf-8")
    return f"language:{path}"


def store_bert(place):
    """A small random BERT without language-model head, with its tokenizer, on disk."""
    build("bert").bert.save_pretrained(place)
    toy_tokenizer().save_pretrained(place)
