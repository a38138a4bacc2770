"""A small Llama as a .gguf file: most of its weights are quantised."""

from __future__ import annotations

from pathlib import Path

import gguf
import numpy as np
import torch
from tokenizers.pre_tokenizers import ByteLevel
from transformers import LlamaConfig, LlamaForCausalLM

NAMES = {
    "self_attn.q_proj": "attn_q",
    "self_attn.k_proj": "attn_k",
    "self_attn.v_proj": "attn_v",
    "self_attn.o_proj": "attn_output",
    "mlp.gate_proj": "ffn_gate",
    "mlp.up_proj": "ffn_up",
    "mlp.down_proj": "ffn_down",
    "input_layernorm": "attn_norm",
    "post_attention_layernorm": "ffn_norm",
}
WHOLE = {"model.embed_tokens": "token_embd", "model.norm": "output_norm", "lm_head": "output"}


def write_llama(path: Path) -> str:
    """Two layers of four heads on two key-value heads; a token for each byte, for th, and for the end."""
    tokens = [*sorted(ByteLevel.alphabet()), "th", "<|end|>"]
    torch.manual_seed(0)
    config = LlamaConfig(
        vocab_size=len(tokens), hidden_size=64, intermediate_size=96, num_hidden_layers=2,
        num_attention_heads=4, num_key_value_heads=2, max_position_embeddings=64,
    )  # fmt: skip
    model = LlamaForCausalLM(config)
    file = gguf.GGUFWriter(path, "llama")
    file.add_vocab_size(len(tokens))
    file.add_context_length(64)
    file.add_embedding_length(64)
    file.add_feed_forward_length(96)
    file.add_block_count(2)
    file.add_head_count(4)
    file.add_head_count_kv(2)
    file.add_layer_norm_rms_eps(config.rms_norm_eps)
    file.add_rope_dimension_count(16)
    file.add_rope_freq_base(10_000.0)
    file.add_tokenizer_model("gpt2")
    file.add_token_list(tokens)
    file.add_token_types([1] * (len(tokens) - 1) + [3])
    file.add_token_merges(["t h"])
    file.add_bos_token_id(len(tokens) - 1)
    file.add_eos_token_id(len(tokens) - 1)
    for name, weight in model.state_dict().items():
        values = 5 * weight.numpy() if weight.ndim > 1 else weight.numpy()  # patterns far from uniform
        place = name.removesuffix(".weight")
        if place in WHOLE:
            file.add_tensor(f"{WHOLE[place]}.weight", values)
            continue
        layer, _, place = place.removeprefix("model.layers.").partition(".")
        quantised = weight.ndim > 1
        if quantised:
            values = gguf.quants.quantize(values, gguf.GGMLQuantizationType.Q8_0)
        kind = gguf.GGMLQuantizationType.Q8_0 if quantised else None
        file.add_tensor(f"blk.{layer}.{NAMES[place]}.weight", np.ascontiguousarray(values), raw_dtype=kind)
    file.write_header_to_file()
    file.write_kv_data_to_file()
    file.write_tensors_to_file()
    file.close()
    return str(path)
