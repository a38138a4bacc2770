"""Small random models of every family that the seam is held to, made from configs alone."""

from __future__ import annotations

import inspect

import torch
import transformers
from transformers import PreTrainedModel

VOCAB = 61

_BERT = {
    "vocab_size": VOCAB,
    "hidden_size": 32,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "intermediate_size": 48,
    "max_position_embeddings": 64,
    "pad_token_id": 0,
}
_LLAMA = {
    **_BERT,
    "num_key_value_heads": 2,
    "head_dim": 8,
    "bos_token_id": 1,
    "eos_token_id": 2,
}
_SEQ2SEQ = {
    "vocab_size": VOCAB,
    "d_model": 32,
    "encoder_layers": 2,
    "decoder_layers": 2,
    "encoder_attention_heads": 4,
    "decoder_attention_heads": 4,
    "encoder_ffn_dim": 48,
    "decoder_ffn_dim": 48,
    "max_position_embeddings": 64,
    "pad_token_id": 0,
    "bos_token_id": 1,
    "eos_token_id": 2,
    "decoder_start_token_id": 2,
}
_GPT2 = {
    "vocab_size": VOCAB,
    "n_embd": 32,
    "n_layer": 2,
    "n_head": 4,
    "n_positions": 64,
    "pad_token_id": 0,
    "bos_token_id": 1,
    "eos_token_id": 2,
}

BY_INTERFACE: dict[str, tuple[str, str, dict[str, object]]] = {
    "bert": ("BertConfig", "BertForMaskedLM", _BERT),
    "roberta": ("RobertaConfig", "RobertaForMaskedLM", {**_BERT, "pad_token_id": 1}),
    "electra": ("ElectraConfig", "ElectraForMaskedLM", {**_BERT, "embedding_size": 16}),
    "albert": ("AlbertConfig", "AlbertForMaskedLM", {**_BERT, "embedding_size": 16, "num_hidden_layers": 3}),
    "distilbert": (
        "DistilBertConfig",
        "DistilBertForMaskedLM",
        {"vocab_size": VOCAB, "dim": 32, "n_layers": 2, "n_heads": 4, "hidden_dim": 48, "pad_token_id": 0},
    ),
    "modernbert": (
        "ModernBertConfig",
        "ModernBertForMaskedLM",
        {
            **_BERT,
            "num_hidden_layers": 4,
            "local_attention": 4,
            "global_attn_every_n_layers": 3,
            "cls_token_id": 1,
            "sep_token_id": 2,
            "bos_token_id": 1,
            "eos_token_id": 2,
        },
    ),
    "gpt2": ("GPT2Config", "GPT2LMHeadModel", _GPT2),
    "gptj": ("GPTJConfig", "GPTJForCausalLM", {**_GPT2, "rotary_dim": 4}),
    "gpt_neox": ("GPTNeoXConfig", "GPTNeoXForCausalLM", _BERT),
    "opt": ("OPTConfig", "OPTForCausalLM", {**_BERT, "ffn_dim": 48, "word_embed_proj_dim": 32}),
    "phi": ("PhiConfig", "PhiForCausalLM", {**_BERT, "num_key_value_heads": 4}),
    "llama": ("LlamaConfig", "LlamaForCausalLM", _LLAMA),
    "mistral": ("MistralConfig", "MistralForCausalLM", {**_LLAMA, "sliding_window": 4}),
    "qwen3": ("Qwen3Config", "Qwen3ForCausalLM", _LLAMA),
    "gemma3": (
        "Gemma3TextConfig",
        "Gemma3ForCausalLM",
        {**_LLAMA, "sliding_window": 4, "layer_types": ["sliding_attention", "full_attention"]},
    ),
    "gpt_oss": (
        "GptOssConfig",
        "GptOssForCausalLM",
        {**_LLAMA, "num_local_experts": 2, "num_experts_per_tok": 1, "sliding_window": 4},
    ),
    "t5": (
        "T5Config",
        "T5ForConditionalGeneration",
        {
            "vocab_size": VOCAB,
            "d_model": 32,
            "d_kv": 8,
            "d_ff": 48,
            "num_layers": 2,
            "num_heads": 4,
            "pad_token_id": 0,
            "eos_token_id": 2,
            "decoder_start_token_id": 0,
        },
    ),
    "bart": ("BartConfig", "BartForConditionalGeneration", _SEQ2SEQ),
    "marian": ("MarianConfig", "MarianMTModel", _SEQ2SEQ),
}
BY_HOOKS: dict[str, tuple[str, str, dict[str, object]]] = {
    "deberta_v2": (
        "DebertaV2Config",
        "DebertaV2ForMaskedLM",
        {
            **_BERT,
            "relative_attention": True,
            "pos_att_type": ["c2p", "p2c"],
            "position_buckets": 8,
            "max_relative_positions": 16,
            "type_vocab_size": 0,
        },
    ),
    "bloom": (
        "BloomConfig",
        "BloomForCausalLM",
        {"vocab_size": VOCAB, "hidden_size": 32, "n_layer": 2, "n_head": 4, "pad_token_id": 0},
    ),
    "falcon": (
        "FalconConfig",
        "FalconForCausalLM",
        {**_BERT, "new_decoder_architecture": True, "num_kv_heads": 2, "alibi": False},
    ),
    "gpt_neo": (
        "GPTNeoConfig",
        "GPTNeoForCausalLM",
        {
            "vocab_size": VOCAB,
            "hidden_size": 32,
            "num_layers": 2,
            "num_heads": 4,
            "window_size": 4,
            "max_position_embeddings": 64,
            "attention_types": [[["global", "local"], 1]],
            "intermediate_size": 48,
            "pad_token_id": 0,
            "bos_token_id": 1,
            "eos_token_id": 2,
        },
    ),
    "mpnet": ("MPNetConfig", "MPNetForMaskedLM", {**_BERT, "pad_token_id": 1}),
}
ALL = {**BY_INTERFACE, **BY_HOOKS}

# family -> the module whose input is the residual stream with the branch added, by layer
JOINED = {
    "bert": "bert.encoder.layer.{}.attention.output.LayerNorm",
    "gpt2": "transformer.h.{}.ln_2",
    "llama": "model.layers.{}.post_attention_layernorm",
}


def implementations(family: str) -> list[str]:
    """The attention implementations that the installed `transformers` has for a family."""
    kind = getattr(transformers, ALL[family][1])
    return ["eager", "sdpa"] if kind._supports_sdpa else ["eager"]


def goes_through_the_interface(family: str) -> bool:
    """Whether the family's own code asks `transformers`' attention interface (GPT-J: newer releases)."""
    return "ALL_ATTENTION_FUNCTIONS" in inspect.getsource(
        inspect.getmodule(getattr(transformers, ALL[family][1]))
    )


def build(family: str, implementation: str | None = None, seed: int = 0) -> PreTrainedModel:
    """Make a small random model whose patterns are far from uniform and whose biases are not 0."""
    config_name, model_name, options = ALL[family]
    torch.manual_seed(seed)
    config = getattr(transformers, config_name)(**options)
    kind = getattr(transformers, model_name)
    model = kind._from_config(config, attn_implementation=implementation) if implementation else kind(config)
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            if parameter.ndim >= 2 and "embed" not in name:
                parameter.normal_(0, 0.1 if family == "t5" else 0.2)  # T5 does not scale its logits down
            elif name.endswith("bias"):
                parameter.normal_(0, 0.1)
    return model.eval()


def batch(model: PreTrainedModel, left: bool = False) -> dict[str, torch.Tensor]:
    """Three inputs of 11, 7 and 4 tokens, padded on one side."""
    generator = torch.Generator().manual_seed(3)
    pad = model.config.get_text_config().pad_token_id or 0
    inputs = _padded((11, 7, 4), pad, left, generator)
    if model.config.is_encoder_decoder:
        target = _padded((6, 9, 3), pad, False, generator)
        inputs |= {f"decoder_{name}": tensor for name, tensor in target.items()}
    return inputs


def _padded(
    lengths: tuple[int, ...], pad: int, left: bool, generator: torch.Generator
) -> dict[str, torch.Tensor]:
    ids = torch.full((len(lengths), max(lengths)), pad)
    mask = torch.zeros_like(ids)
    for row, length in enumerate(lengths):
        place = slice(max(lengths) - length, None) if left else slice(0, length)
        ids[row, place] = torch.randint(3, VOCAB, (length,), generator=generator)
        mask[row, place] = 1
    return {"input_ids": ids, "attention_mask": mask}
