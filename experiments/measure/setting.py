"""What the parts measure: a real small model, and shapes of others with random weights."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any

import torch
import transformers
from tokenizers import Tokenizer, models, pre_tokenizers
from torch import Tensor

from headlens.corpus.corpus import Corpus
from headlens.lens import Lens, load
from headlens.model.source import find
from headlens.scoring.classify import read_corpus

GPT2 = {"n_embd": 768, "n_layer": 12, "n_head": 12}
LLAMA = {"hidden_size": 576, "intermediate_size": 1536, "num_attention_heads": 9, "num_key_value_heads": 3}
SMALL_GPT2 = {"n_embd": 32, "n_layer": 2, "n_head": 4}
SMALL_LLAMA = {"hidden_size": 36, "intermediate_size": 48, "num_attention_heads": 9, "num_key_value_heads": 3}


@dataclass(frozen=True)
class Setting:
    """How to measure.

    Args:
        folder: for files that are made on the way.
        model: what `headlens.load` takes.
        path: of the corpus; the bundled English sample by default.
        rounds: turns that each thing compared gets.
        layers: of the Llama shape that reads long inputs.
        small: a tiny form of everything, to see that it runs: its numbers mean nothing.
    """

    folder: Path
    model: str = "minilm"
    path: Path | None = None
    rounds: int = 3
    layers: int = 2
    small: bool = False

    @cached_property
    def corpus(self) -> Corpus:
        """The corpus, its first three documents where all is small."""
        corpus = read_corpus(self.path)
        return replace(corpus, documents=corpus.documents[:3]) if self.small else corpus

    @cached_property
    def lens(self) -> Lens:
        """The real model."""
        return load(self.model)

    @cached_property
    def checkpoint(self) -> Path:
        """Where the real model is stored: other tools load it from there."""
        return Path(find(self.model).place)

    @cached_property
    def gpt2(self) -> Path:
        """A checkpoint of GPT-2 small's shape with random weights, whose tokens are the corpus's words."""
        words = sorted({word.form for _, sentence in self.corpus.sentences for word in sentence.words})
        tokenizer = word_tokenizer(words)
        shape = SMALL_GPT2 if self.small else GPT2
        return save(
            transformers.GPT2LMHeadModel,
            transformers.GPT2Config(vocab_size=len(tokenizer), bos_token_id=0, eos_token_id=0, **shape),
            tokenizer,
            self.folder / "gpt2",
        )

    def llama(self, layers: int) -> Path:
        """A checkpoint of SmolLM2-135M's shape with fewer words and layers, and random weights."""
        tokenizer = word_tokenizer([f"w{number}" for number in range(997)])
        config = transformers.LlamaConfig(
            vocab_size=len(tokenizer),
            num_hidden_layers=layers,
            max_position_embeddings=2**16,
            bos_token_id=0,
            eos_token_id=0,
            **(SMALL_LLAMA if self.small else LLAMA),
        )
        return save(transformers.LlamaForCausalLM, config, tokenizer, self.folder / f"llama-{layers}")


def word_tokenizer(words: Sequence[str]) -> Any:
    """A tokenizer whose tokens are words between blanks."""
    vocabulary = {word: number for number, word in enumerate(["<s>", "<unk>", *words])}
    inner = Tokenizer(models.WordLevel(vocabulary, unk_token="<unk>"))
    inner.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    return transformers.PreTrainedTokenizerFast(
        tokenizer_object=inner, bos_token="<s>", eos_token="<s>", pad_token="<s>", unk_token="<unk>"
    )


def save(kind: Any, config: Any, tokenizer: Any, folder: Path) -> Path:
    """Store a model with random weights, once."""
    if not folder.exists():
        torch.manual_seed(0)
        kind(config).save_pretrained(folder)
        tokenizer.save_pretrained(folder)
    return folder


def random_inputs(lens: Lens, shape: tuple[int, int]) -> dict[str, Tensor]:
    """Random tokens without padding."""
    generator = torch.Generator().manual_seed(0)
    ids = torch.randint(5, lens.model.config.vocab_size, shape, generator=generator)
    return {"input_ids": ids, "attention_mask": torch.ones_like(ids)}


def forward(lens: Lens, inputs: Sequence[Mapping[str, Tensor]], name: str = "eager", **options: Any) -> None:
    """Run bare forward passes."""
    own = lens.model.config._attn_implementation
    lens.model.set_attn_implementation(name)
    options |= {"use_cache": False} if "use_cache" in lens.model.config.to_dict() else {}
    with torch.inference_mode():
        for each in inputs:
            lens.model.base_model(**{key: value.to(lens.device) for key, value in each.items()}, **options)
    lens.model.set_attn_implementation(own)
